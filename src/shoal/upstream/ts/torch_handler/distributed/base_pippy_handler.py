"""BasePippyHandler, which spreads a model over processes and is not provided."""

from shoal.upstream.ts.utils.missing import MissingHandler


class BasePippyHandler(MissingHandler):
    """Fails at load."""

    why = "it spreads a model over several processes with pippy, and a worker here is one process; use BaseHandler"
