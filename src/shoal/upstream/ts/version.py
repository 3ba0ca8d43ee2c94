"""The version of TorchServe whose contract this is."""

from shoal.upstream.ts import __version__

__all__ = ["__version__"]
