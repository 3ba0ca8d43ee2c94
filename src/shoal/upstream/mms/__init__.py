"""Multi Model Server's package as its handlers see it."""

__version__ = "1.1.11"
