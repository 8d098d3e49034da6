"""Damaged embedding files, seeded: read or refused in a sentence."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import GraphmillError, InputError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from tests.ingest.damage import damaged

COUNT = 9
IDS, TYPES = [f"a{n:03}" for n in range(COUNT)], ["drug", "gene", "drug"] * 3
VECTORS = (np.arange(3 * COUNT) / 7).astype(np.float32).reshape(COUNT, 3)


def packed(kind: str) -> bytes:
    written = io.BytesIO()
    if kind == "npy":
        np.save(written, VECTORS)
        return written.getvalue()
    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 3)
    table = pa.table({"node_id": IDS, "node_type": TYPES, "embedding": lists})
    pq.write_table(table, written, write_page_checksum=True)
    return written.getvalue()


FILES = {
    "Parquet": {"e.parquet": packed("parquet")},
    "npy": {
        "e.npy": packed("npy"),
        "e.ids.txt": "".join(f"{k}\t{n}\n" for k, n in zip(TYPES, IDS, strict=True)).encode(),
    },
}


def rows(embeddings: Embeddings) -> dict[tuple[str, str], tuple[float, ...]]:
    keys = zip((embeddings.type_names[code] for code in embeddings.types), embeddings.ids, strict=True)
    return {key: tuple(vector) for key, vector in zip(keys, embeddings.vectors.tolist(), strict=True)}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.long)])
def test_a_damaged_file_is_read_or_refused_in_a_sentence(tmp_path: Path, kind: str, count: int) -> None:
    files, refused = FILES[kind], 0
    for file, data in files.items():
        (tmp_path / file).write_bytes(data)
    main, names = tmp_path / next(iter(files)), sorted(files)
    before = rows(read_embeddings(main))
    for seed in range(count):
        rng = np.random.default_rng([seed, *kind.encode()])
        chosen = names[int(rng.integers(len(names)))]
        hurt = damaged(files[chosen], rng)
        (tmp_path / chosen).write_bytes(hurt)
        after: dict[tuple[str, str], tuple[float, ...]] | None = None
        said = ""
        try:
            after = rows(read_embeddings(main))
        except GraphmillError as error:
            said = str(error)
            refused += 1
        assert "\n" not in said, seed
        assert len(said) < 1500, seed
        if after is not None and chosen == "e.npy":
            assert len(hurt) == len(files[chosen]), seed
        elif after is not None and kind != "npy":
            assert after == before, seed
        (tmp_path / chosen).write_bytes(files[chosen])
    assert refused > count // 2


def test_what_is_wrong_is_said_by_name(tmp_path: Path) -> None:
    for file, data in FILES["npy"].items():
        (tmp_path / file).write_bytes(data)
    (tmp_path / "e.ids.txt").write_bytes(b"drug\t\xff\n" * COUNT)
    with pytest.raises(InputError, match=r"^e\.ids\.txt is not text in UTF-8"):
        read_embeddings(tmp_path / "e.npy")
    (tmp_path / "e.npy").write_bytes(packed("npy") + b"\0\0\0")
    with pytest.raises(InputError, match=r"^e\.npy is damaged: .*3 bytes more"):
        read_embeddings(tmp_path / "e.npy")
    (tmp_path / "e.npy").write_bytes(packed("npy").replace(b"}", b"("))
    with pytest.raises(InputError, match=r"^e\.npy is not a readable \.npy file \(.*\); export it again$"):
        read_embeddings(tmp_path / "e.npy")
