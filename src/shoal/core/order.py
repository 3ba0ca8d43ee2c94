"""AnswerOrder: answers leave in the order in which their requests came, whoever is done first.

It stands between a request and whoever hears its answers. What a later request answers is kept until every earlier one
has ended: pieces of streams, errors and refusals too. One that was withdrawn ends where it stands.
"""

from collections import deque

from shoal.core.request import OnAnswer, Outcome, Request


class Place:
    """Where one request stands, who hears it, and what is kept for it."""

    __slots__ = ("has_ended", "kept", "on_answer", "request")

    def __init__(self, request: Request, on_answer: OnAnswer) -> None:
        self.request = request
        self.on_answer = on_answer
        self.kept: deque[tuple[Outcome, bool]] = deque()
        self.has_ended = False  # nothing more will come for it


class AnswerOrder:
    """The requests of one model that were admitted and not answered to the end yet."""

    def __init__(self) -> None:
        self._places: deque[Place] = deque()
        self._by_request: dict[Request, Place] = {}
        self._is_telling = False

    def __len__(self) -> int:
        return len(self._by_request)

    def add(self, request: Request) -> None:
        """Let the request's answers take their turn behind those of everybody who is here."""
        place = Place(request, request.on_answer)
        self._places.append(place)
        self._by_request[request] = place
        request.on_answer = self._hear

    def drop(self, request: Request) -> None:
        """The client left: nothing is told it any more, and nobody waits for its turn."""
        place = self._by_request.pop(request, None)
        if place is not None:
            place.has_ended = True
            place.kept.clear()
            self._tell()

    def _hear(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        place = self._by_request[request]
        place.kept.append((outcome, is_last))
        place.has_ended = place.has_ended or is_last
        self._tell()

    def _tell(self) -> None:
        """Tell what has its turn; whoever hears it may ask, answer or leave meanwhile."""
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._places:
                place = self._places[0]
                while place.kept:
                    outcome, is_last = place.kept.popleft()
                    if is_last:
                        del self._by_request[place.request]
                    place.on_answer(place.request, outcome, is_last)
                if not place.has_ended:
                    break
                self._places.popleft()
        finally:
            self._is_telling = False
