"""Without Chromium, the browser tests fail where ``.ci/run`` runs them, and are skipped elsewhere."""

from pathlib import Path

import pytest

from tests import chromium


@pytest.mark.parametrize(("required", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_browser(
    required: str, outcome: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "PATH", str(tmp_path / "none"))
    monkeypatch.setenv(chromium.REQUIRED, required)
    with pytest.raises(outcome, match="no Chromium here"), chromium.chromium():
        pass


def test_ci_requires_it(repository: Path) -> None:
    assert f"export {chromium.REQUIRED}=1" in (repository / ".ci" / "run").read_text()
