"""For tests, users' and our own: time that stands still, handlers without a server, and servers for a moment."""

from shoal.testing.fakes import Answers, FakeAlarm, FakeClock, StubInstance
from shoal.testing.handlers import run_handler
from shoal.testing.servers import Client, PredictionFailed, serving

__all__ = [
    "Answers",
    "Client",
    "FakeAlarm",
    "FakeClock",
    "PredictionFailed",
    "StubInstance",
    "run_handler",
    "serving",
]
