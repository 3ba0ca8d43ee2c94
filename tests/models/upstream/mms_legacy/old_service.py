"""A service of the 0.x archives."""

from typing import Any

from mms.model_service.model_service import SingleNodeService  # type: ignore[import-not-found]


class OldService(SingleNodeService):  # type: ignore[misc]
    def __init__(self, model_name: Any, model_dir: Any, manifest: Any, gpu: Any) -> None:
        super().__init__(model_name, model_dir, manifest, gpu)
        self.named = manifest["Model"]["Model-Name"]

    def _inference(self, data: Any) -> Any:
        return {"name": self.named, "data": data}
