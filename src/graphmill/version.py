"""The version, read from the installed package's metadata (``pyproject.toml``)."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("graphmill")
except PackageNotFoundError:  # used from a source tree without installation
    __version__ = "0+unknown"
