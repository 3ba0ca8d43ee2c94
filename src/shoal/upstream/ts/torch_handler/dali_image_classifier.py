"""DALIImageClassifier, which needs NVIDIA DALI and is not provided."""

from shoal.upstream.ts.torch_handler.dali_handler import DALIHandler


class DALIImageClassifier(DALIHandler):
    """Fails at load."""

    why = "it needs NVIDIA DALI pipelines, which are not run here; use image_classifier"
