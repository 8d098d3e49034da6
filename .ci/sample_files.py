"""Packs the samples of ``data/01_raw`` into the archives that the wheel has, the same bytes each time.

``python .ci/sample_files.py`` after a change of a sample.
"""

import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from graphmill.ingest.samples import FOLDER, PLACES  # noqa: E402


def main() -> None:
    """Write one archive per sample."""
    for name, place in PLACES.items():
        source = ROOT / "data/01_raw" / place
        with zipfile.ZipFile(FOLDER / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(source.iterdir()) if source.is_dir() else [source]:
                entry = zipfile.ZipInfo(file.name, (1980, 1, 1, 0, 0, 0))  # no times, so that the bytes stay the same
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, file.read_bytes(), compresslevel=9)


if __name__ == "__main__":
    main()
