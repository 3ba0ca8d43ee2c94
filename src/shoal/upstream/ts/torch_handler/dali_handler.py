"""DALIHandler, which needs NVIDIA DALI and is not provided."""

from shoal.upstream.ts.utils.missing import MissingHandler


class DALIHandler(MissingHandler):
    """Fails at load."""

    why = "it needs NVIDIA DALI pipelines, which are not run here; derive the handler from VisionHandler"
