"""BaseDeepSpeedHandler, which spreads a model over processes and is not provided."""

from shoal.upstream.ts.utils.missing import MissingHandler


class BaseDeepSpeedHandler(MissingHandler):
    """Fails at load."""

    why = "it spreads a model over several processes with deepspeed, and a worker here is one process; use BaseHandler"
