"""Handler and Context: the contract users write against, and what a context knows about the batch at hand.

A context lives as long as its worker, so a handler may keep it and hang its own things on it. What it says about
requests is always about the batch that the calling thread works on: stages of several batches may run at once.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from shoal.config.model import ModelConfig
from shoal.version import __version__
from shoal.wire.messages import Item
from shoal.worker.each import decode_each, encode_each
from shoal.worker.requests import Requests


class Handler:
    """What a model does with a batch. Override `inference`, and of the rest what the model needs.

    In place of one item's value any method may give an exception: that item fails with it, the others go on.
    """

    def initialize(self, context: "Context") -> None:
        """Load the model. Called once in each worker, before the first batch."""

    def preprocess(self, data: list[Any]) -> Any:
        """Make what `inference` takes from the whole batch. Overridden, it is given TorchServe's rows: dicts."""
        return decode_each(self.decode, data)

    def inference(self, data: Any) -> Any:
        """Run the model on the whole batch; give a list or array with one output per item."""
        raise NotImplementedError(f"{type(self).__name__} must define inference(self, data)")

    def postprocess(self, data: Any) -> list[Any]:
        """Make one result per item from what `inference` gave."""
        return encode_each(self.encode, data)

    def decode(self, item: Any) -> Any:
        """Read one item: the body (object, str or bytes by its content type), or a dict of a form's parts."""
        return item

    def encode(self, output: Any) -> Any:
        """Turn one output into a result: bytes, str, or anything JSON can say."""
        return output


class RequestView:
    """What a handler sees of one request, and what it says about the answer. The methods have TorchServe's names."""

    __slots__ = ("_headers", "_item", "_response_headers", "reason", "status")

    def __init__(self, item: Item) -> None:
        self._item = item
        self._headers: dict[str, str] | None = None
        self._response_headers: dict[str, str] = {}
        self.status = 200
        self.reason = ""

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self._item.id.decode("latin-1")

    @property
    def content_type(self) -> str:
        """The content type the handler chose; empty when it chose none."""
        return self.get_response_header("content-type") or ""

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers the handler chose, without the content type."""
        return [(key, value) for key, value in self._response_headers.items() if key.lower() != "content-type"]

    def get_request_properties(self) -> dict[str, str]:
        """All headers of the request, with the client's spelling."""
        if self._headers is None:
            self._headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in self._item.headers}
        return self._headers

    def get_request_property(self, key: str) -> str | None:
        """One header of the request: spelt like this if there is one, else in any case."""
        return _look_up(self.get_request_properties(), key)

    def report_status(self, code: int, reason_phrase: str | None = None) -> None:
        """Choose the status of the answer."""
        self.status = int(code)
        self.reason = _text(reason_phrase or "")

    def get_response_status_code(self) -> int:
        """The status chosen so far."""
        return self.status

    def get_response_status_phrase(self) -> str:
        """The reason phrase chosen so far."""
        return self.reason

    def add_response_property(self, key: str, value: str) -> None:
        """Set a header of the answer."""
        self._response_headers[_text(key)] = _text(value)

    def get_response_headers(self) -> dict[str, str]:
        """The headers chosen so far."""
        return self._response_headers

    def get_response_header(self, key: str) -> str | None:
        """One header chosen so far."""
        return _look_up(self._response_headers, key)


Emit = Callable[[Sequence[Any]], None]
AtHand = tuple[Requests, Emit]


def _emit_nothing(results: Sequence[Any]) -> None:
    raise RuntimeError("pieces can only be sent while a batch is at hand")


NOTHING: AtHand = (Requests((), RequestView), _emit_nothing)


class Bound:
    """What makes a context speak of the batch that the calling thread works on."""

    def __init__(self) -> None:
        self._latest = NOTHING
        self._current: ContextVar[AtHand] = ContextVar("at hand")

    def enter(self, requests: Requests, emit: Emit) -> None:
        """Make these the batch at hand for this thread, and for threads of the handler's own, which know of none."""
        self._latest = at_hand = (requests, emit)
        self._current.set(at_hand)

    def leave(self) -> None:
        """Forget the batch at hand, so that nothing of it stays in memory."""
        if self._latest is self._current.get(NOTHING):
            self._latest = NOTHING
        self._current.set(NOTHING)

    @property
    def requests(self) -> Requests:
        """The batch at hand."""
        return self._at_hand[0]

    @property
    def _at_hand(self) -> AtHand:
        at_hand = self._current.get(NOTHING)
        return self._latest if at_hand is NOTHING else at_hand


class Context(Bound):
    """What a handler is told about its model, its device, and the batch at hand."""

    header_key_sequence_id = "ts_request_sequence_id"
    header_key_sequence_start = "ts_request_sequence_start"
    header_key_sequence_end = "ts_request_sequence_end"

    def __init__(self, config: ModelConfig, worker: str, model_dir: str, manifest: dict[str, Any]) -> None:
        super().__init__()
        self.model_name = config.name
        self.model_dir = model_dir
        self.manifest = manifest
        self.device = config.device
        self.gpu_id = gpu_id(config.device)
        self.worker = worker
        self.parameters = config.parameters
        self.model_yaml_config = config.parameters
        self.system_properties: dict[str, Any] = {
            "model_dir": model_dir,
            "gpu_id": self.gpu_id,
            "batch_size": config.batching.batch_size or 1,
            "server_name": "MMS",  # what both upstream servers say; handlers compare it
            "server_version": __version__,
            "limit_max_image_pixels": True,
        }

    @property
    def request_processor(self) -> list[RequestView]:
        """The requests at hand, as TorchServe names them."""
        requests = self.requests
        return [requests.view(index) for index in range(len(requests))]

    @property
    def request_ids(self) -> dict[int, str]:
        """Index to id of each request."""
        return {index: view.request_id for index, view in enumerate(self.request_processor)}

    def _view(self, idx: int) -> RequestView:
        view: RequestView = self.requests.view(idx)
        return view

    def get_request_id(self, idx: int = 0) -> str:
        """The id of one request."""
        return self._view(idx).request_id

    def get_request_header(self, idx: int, key: str) -> str | None:
        """One header of one request, None if it has none of this name."""
        return self._view(idx).get_request_property(key)

    def get_all_request_header(self, idx: int) -> dict[str, str]:
        """All headers of one request."""
        return self._view(idx).get_request_properties()

    def get_sequence_id(self, idx: int) -> str:
        """The id of the sequence the request belongs to, empty if to none."""
        return self.get_request_header(idx, self.header_key_sequence_id) or ""

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Choose the content type of one answer."""
        self.set_response_header(idx, "content-type", value)

    def get_response_content_type(self, idx: int) -> str | None:
        """The content type chosen for one answer so far."""
        return self._view(idx).get_response_header("content-type")

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        """Set a header of one answer."""
        self._view(idx).add_response_property(key, value)

    def get_response_headers(self, idx: int) -> dict[str, str]:
        """The headers chosen for one answer so far."""
        return self._view(idx).get_response_headers()

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Choose the status of one answer; its body stays what the handler gives."""
        self._view(idx).report_status(code, phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        """Choose the status of all answers of the batch."""
        for view in self.request_processor:
            view.report_status(code, phrase)

    def get_response_status(self, idx: int) -> tuple[int, str]:
        """The status and reason phrase chosen for one answer so far."""
        view = self._view(idx)
        return view.status, view.reason

    def send(self, results: Sequence[Any]) -> None:
        """Send a piece of each answer now (None: nothing for this one); what the handler returns is the last piece."""
        self._at_hand[1](results)


def gpu_id(device: str) -> int | None:
    """The number of a GPU by its device name; None for anything else."""
    kind, _, number = device.partition(":")
    if kind == "cpu":
        return None
    return int(number) if number.isdecimal() else 0


def _text(value: Any) -> str:
    """A value as text that can travel."""
    return str(value).encode(errors="replace").decode()


def _look_up(table: dict[str, str], key: str) -> str | None:
    if key in table:
        return table[key]
    lowered = key.lower()
    return next((value for name, value in table.items() if name.lower() == lowered), None)
