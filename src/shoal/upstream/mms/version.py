"""The version of Multi Model Server whose contract this is."""

from shoal.upstream.mms import __version__

__all__ = ["__version__"]
