"""TRTLLMHandler, which needs TensorRT-LLM and is not provided."""

from shoal.upstream.ts.utils.missing import MissingHandler


class TRTLLMHandler(MissingHandler):
    """Fails at load."""

    why = "tensorrt_llm is not run inside a worker here; write a handler that calls tensorrt_llm itself"
