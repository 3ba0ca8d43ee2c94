"""Context and RequestProcessor: what TorchServe tells a handler about its model and the batch at hand."""

from collections.abc import Mapping
from typing import Any


class RequestProcessor:
    """One request's headers, and what the handler says about its answer. Names are looked up as they are spelt."""

    def __init__(self, request_header: Mapping[str, Any]) -> None:
        self._request_header = request_header
        self._response_header: dict[str, Any] = {}
        self._status_code: int = 200
        self._reason_phrase: str | None = None

    def get_request_property(self, key: str) -> Any:
        """One header of the request; None if it has none spelt like this."""
        return self.get_request_properties().get(key)

    def get_request_properties(self) -> Mapping[str, Any]:
        """All headers of the request."""
        return self._request_header

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Choose the status of the answer."""
        self._status_code = code
        self._reason_phrase = reason_phrase

    def get_response_status_code(self) -> int:
        """The status chosen so far."""
        return self._status_code

    def get_response_status_phrase(self) -> str | None:
        """The reason phrase chosen so far."""
        return self._reason_phrase

    def add_response_property(self, key: str, value: str) -> None:
        """Set a header of the answer."""
        self._response_header[key] = value

    def get_response_headers(self) -> dict[str, Any]:
        """The headers chosen so far."""
        return self._response_header

    def get_response_header(self, key: str) -> Any:
        """One header chosen so far; None if it was not."""
        return self._response_header.get(key)


class Context:
    """What a handler is told. It lives as long as its worker, so handlers may hang their own things on it."""

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any] | None,
        batch_size: int,
        gpu: int | None,
        mms_version: str,
        limit_max_image_pixels: bool = True,
        metrics: Any = None,
        model_yaml_config: dict[str, Any] | None = None,
    ) -> None:
        self.model_name = model_name
        self.manifest = manifest
        self._system_properties: dict[str, Any] = {
            "model_dir": model_dir,
            "gpu_id": gpu,
            "batch_size": batch_size,
            "server_name": "MMS",  # what both servers say; handlers compare it
            "server_version": mms_version,
            "limit_max_image_pixels": limit_max_image_pixels,
        }
        self.request_ids: Any = None  # row to id
        self._request_processor: Any = None
        self._metrics = metrics
        self.model_yaml_config = model_yaml_config
        self.stopping_criteria: Any = None
        self.header_key_sequence_id = "ts_request_sequence_id"
        self.header_key_sequence_start = "ts_request_sequence_start"
        self.header_key_sequence_end = "ts_request_sequence_end"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Context) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    @property
    def system_properties(self) -> dict[str, Any]:
        """The model's folder, device and batch size, and the server's name and version."""
        return self._system_properties

    @property
    def request_processor(self) -> Any:
        """The requests of the batch at hand, one RequestProcessor each."""
        return self._request_processor

    @request_processor.setter
    def request_processor(self, processors: list[RequestProcessor]) -> None:
        self._request_processor = processors

    def _processor(self, idx: int) -> Any:
        return self.request_processor[idx]

    @property
    def metrics(self) -> Any:
        """Where the handler's own metrics go."""
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: Any) -> None:
        self._metrics = metrics

    def get_request_id(self, idx: int = 0) -> str | None:
        """The id of one request; None if there is no such."""
        ids = self.request_ids
        return ids.get(idx) if ids else None

    def get_request_header(self, idx: int, key: str) -> Any:
        """One header of one request, None if it has none spelt like this."""
        return self._processor(idx).get_request_property(key)

    def get_all_request_header(self, idx: int) -> Any:
        """All headers of one request."""
        return self._processor(idx).get_request_properties()

    def get_sequence_id(self, idx: int) -> Any:
        """The id of the sequence the request belongs to, None if to none."""
        return self.get_request_header(idx, self.header_key_sequence_id)

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Choose the content type of one answer."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> Any:
        """The content type chosen for one answer so far."""
        return self._processor(idx).get_response_header("content-type")

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Set a header of one answer."""
        self._processor(idx).add_response_property(key, value)

    def get_response_headers(self, idx: int) -> Any:
        """The headers chosen for one answer so far."""
        return self._processor(idx).get_response_headers()

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Choose the status of one answer; its body stays what the handler gives."""
        self._processor(idx).report_status(code, phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Choose the status of all answers of the batch."""
        for processor in self.request_processor:
            processor.report_status(code, phrase)

    def get_response_status(self, idx: int) -> tuple[int, str | None]:
        """The status and reason phrase chosen for one answer so far."""
        processor = self._processor(idx)
        return processor.get_response_status_code(), processor.get_response_status_phrase()
