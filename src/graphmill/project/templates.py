"""The files of a new project: ``template/``, with the project's names filled in."""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

_SUFFIX = ".tmpl"
# Under these names a tool would take the template itself for its settings.
_DOTTED = {"gitignore": ".gitignore", "github": ".github"}


def rendered(values: Mapping[str, str]) -> dict[str, str]:
    """Path below the project's root → text, for every template; ``{{name}}`` is replaced by ``values[name]``."""
    out = {}
    for path, template in _templates(files("graphmill.project") / "template", ()):
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
