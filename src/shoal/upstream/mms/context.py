"""Context and RequestProcessor: what Multi Model Server tells a handler about its model and the batch at hand."""

from typing import Any

from shoal.upstream.ts.context import Context as TorchServeContext
from shoal.upstream.ts.context import RequestProcessor

__all__ = ["Context", "RequestProcessor"]


class Context(TorchServeContext):
    """What a handler is told: TorchServe's context grew out of this one and says more."""

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any] | None,
        batch_size: int,
        gpu: int | None,
        mms_version: str,
    ) -> None:
        super().__init__(model_name, model_dir, manifest, batch_size, gpu, mms_version)
        del self._system_properties["limit_max_image_pixels"]
