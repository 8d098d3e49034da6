"""The list of benchmarks is whole, and no page, setting or message names one that is not there."""

import re
import subprocess
from pathlib import Path


def test_the_list_has_every_command_and_no_other(repository: Path) -> None:
    folder = repository / "benchmarks"
    listed = set(re.findall(r"^\| `(\w+)`[^|]*\|", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {path.stem for path in folder.glob("[a-z]*.py")} | {"device"}


def test_every_benchmark_that_is_named_is_there(repository: Path) -> None:
    known = subprocess.run(["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True).stdout
    gone = []
    for name in known.splitlines():
        if not name.endswith((".py", ".md", ".yaml", ".sh", "Makefile")) or Path(name).name.startswith(
            ("LOG", "CHANGELOG")
        ):
            continue
        text = (repository / name).read_text(encoding="utf-8")
        for module in re.findall(r"(?:-m |import |from |`)(benchmarks(?:\.[a-z]\w+)+)", text):
            path = repository / module.replace(".", "/")
            if not (path.with_suffix(".py").is_file() or path.is_dir()):
                gone += [f"{name}: {module}"]
    assert gone == []
