"""What KServe v2 is made of, whichever protocol carries it: made once, shared by HTTP and gRPC."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.core.model import Model
from shoal.frontend.kserve.access import OPEN, Access
from shoal.frontend.kserve.control import Control
from shoal.frontend.kserve.describe import About
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.settings import LogSettings, TraceSettings

Statistics = Callable[[Model], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Parts:
    """One server's. `statistics` gives a model's as clients read them."""

    desk: Desk
    control: Control
    statistics: Statistics
    about: About
    trace: TraceSettings
    logs: LogSettings
    http: Access = OPEN
    grpc: Access = OPEN
