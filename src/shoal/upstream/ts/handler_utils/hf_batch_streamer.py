"""TextIteratorStreamerBatch: the text of a running `model.generate` call, for every sequence of a batch at once."""

from collections.abc import Iterator
from queue import Queue
from typing import Any

UNFINISHED = "\ufffd"  # what a tokenizer gives for the first bytes of a character


class TextIteratorStreamerBatch:
    """Give it to `generate` as its streamer and iterate over it from another thread.

    Each step is a list with the new text of every sequence, empty where a sequence has nothing new. Text is given once
    its characters are whole. With `skip_prompt` the prompt, which `generate` sends first, is left out; `timeout` is the
    seconds a step may take; the other arguments go to the tokenizer's `decode`.
    """

    def __init__(
        self,
        tokenizer: Any,
        batch_size: int = 1,
        skip_prompt: bool = False,
        timeout: float | None = None,
        **decode_kwargs: Any,
    ) -> None:
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.skip_prompt = skip_prompt
        self.timeout = timeout
        self.decode_kwargs = decode_kwargs
        self.text_queue: Queue[list[str] | None] = Queue()
        self._sequences = [_Sequence() for _ in range(batch_size)]
        self._is_prompt = True

    def put(self, value: Any) -> None:
        """Take the prompts, then one token for each sequence at every call."""
        tokens = value.tolist() if hasattr(value, "tolist") else value
        rows = [row if isinstance(row, list) else [row] for row in tokens]
        if len(rows) != self.batch_size:
            raise ValueError(f"this streamer is for {self.batch_size} sequences, and {len(rows)} came")
        is_prompt, self._is_prompt = self._is_prompt, False
        if not (is_prompt and self.skip_prompt):
            texts = [sequence.add(row, self._decode) for sequence, row in zip(self._sequences, rows, strict=True)]
            self.on_finalized_text(texts)

    def end(self) -> None:
        """Give what is left, whole or not, and end the iteration."""
        self.on_finalized_text([sequence.rest(self._decode) for sequence in self._sequences], stream_end=True)
        self._sequences = [_Sequence() for _ in range(self.batch_size)]
        self._is_prompt = True

    def on_finalized_text(self, texts: list[str], stream_end: bool = False) -> None:
        """Put the new text of every sequence where the iteration finds it."""
        self.text_queue.put(texts, timeout=self.timeout)
        if stream_end:
            self.text_queue.put(None, timeout=self.timeout)

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        texts = self.text_queue.get(timeout=self.timeout)
        if texts is None:
            raise StopIteration
        return texts

    def _decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, **self.decode_kwargs))


class _Sequence:
    """The tokens of one sequence. Only the last few are decoded again: enough for the spaces between words."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._from = 0  # where the decoded window begins
        self._given = 0  # tokens whose text was given

    def add(self, tokens: list[int], decode: Any) -> str:
        self._tokens += tokens
        text = self._new_text(decode)
        if not text or text.endswith(UNFINISHED):
            return ""
        self._from, self._given = self._given, len(self._tokens)
        return text

    def rest(self, decode: Any) -> str:
        return self._new_text(decode)

    def _new_text(self, decode: Any) -> str:
        before = decode(self._tokens[self._from : self._given]) if self._given > self._from else ""
        whole: str = decode(self._tokens[self._from :])
        return whole[len(before) :]
