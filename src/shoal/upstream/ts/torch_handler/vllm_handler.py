"""VLLMHandler, which needs vLLM and is not provided."""

from shoal.upstream.ts.utils.missing import MissingHandler


class VLLMHandler(MissingHandler):
    """Fails at load."""

    why = "the engine of vllm is not run inside a worker here; write a handler that calls vllm itself"
