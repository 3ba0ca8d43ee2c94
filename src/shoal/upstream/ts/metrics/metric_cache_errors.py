"""What can be wrong with a metric or with the file that declares metrics."""

from yaml import YAMLError


class GeneralMetricsCacheError(Exception):
    """Anything else."""


class MetricsCacheIOError(OSError):
    """The file cannot be read."""


class MetricsCachePyYamlError(YAMLError):
    """The file is no YAML."""


class MetricsCacheTypeError(TypeError):
    """An argument is of the wrong type."""


class MetricsCacheValueError(ValueError):
    """An argument has a value that means nothing."""


class MetricsCacheKeyError(KeyError):
    """No such metric was declared."""
