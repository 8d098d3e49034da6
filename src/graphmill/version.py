"""The version, from the one place that has it: the installed package's metadata (``pyproject.toml``)."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("graphmill")
except PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "0+unknown"
