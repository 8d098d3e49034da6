"""The files of a new project (``template/``) and of its production kit (``kit/``), with the project's names filled in."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

_SUFFIX = ".tmpl"
# With their real names, tools would use the templates as their own settings.
_DOTTED = {"gitignore": ".gitignore", "github": ".github"}


KIT = "deploy"
"""Where the production kit is, below the project's root."""


def kit(values: Mapping[str, str]) -> dict[str, str]:
    """The production kit, path → text: Dockerfile, compose file, Kubernetes manifests, an instance on PostgreSQL."""
    result = rendered(values, "kit")
    instance = rendered({"package": "", **values})["dagster.yaml"].split("\n", 1)[1]
    result["dagster.yaml"] = "# Settings of the Dagster instance on a server.\n" + instance + result.pop("storage.yaml")
    return {f"{KIT}/{path}": text for path, text in result.items()}


def rendered(values: Mapping[str, str], folder: str = "template") -> dict[str, str]:
    """Path below the project's root → text, for every template; ``{{name}}`` is replaced by ``values[name]``."""
    out = {}
    for path, template in _templates(files("graphmill.project") / folder, ()):
        text = template.read_text(encoding="utf-8")
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
        out["/".join(values["package"] if part == "package" else _DOTTED.get(part, part) for part in path)] = text
    return out


def _templates(folder: Traversable, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            yield from _templates(entry, (*path, entry.name))
        elif entry.name.endswith(_SUFFIX):
            yield (*path, entry.name.removesuffix(_SUFFIX)), entry
