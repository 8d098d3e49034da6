"""Opening inputs: local and remote, and what messages may show of a path."""

import gzip
import os
import tempfile
from pathlib import Path

import fsspec
import pytest

from graphmill.errors import InputError
from graphmill.ingest import files
from graphmill.ingest.files import Source, path_text


class TestShown:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("data/kg.csv", "data/kg.csv"),
            ("s3://bucket/kg.csv", "s3://bucket/kg.csv"),
            ("ftp://me:secret@host:21/kg.csv", "ftp://host:21/kg.csv"),
            ("https://host/kg.csv?X-Amz-Signature=abc", "https://host/kg.csv"),
        ],
    )
    def test_hides_what_may_be_secret(self, path: str, expected: str) -> None:
        assert path_text(path) == expected


class TestSource:
    def test_reads_through_any_fsspec_file_system(self) -> None:
        with fsspec.open("memory://ingest/kg.csv.gz", "wb") as file:
            file.write(gzip.compress(b"a,b\n1,2\n"))
        with Source("memory://ingest/kg.csv.gz") as source:
            assert (source.read(3), source.read()) == (b"a,b", b"\n1,2\n")

    def test_gzip_is_known_by_its_content_not_its_name(self, tmp_path: Path) -> None:
        (tmp_path / "kg.csv").write_bytes(gzip.compress(b"a") + gzip.compress(b"b"))
        with Source(tmp_path / "kg.csv") as source:
            assert source.read() == b"ab"

    def test_skips_a_byte_order_mark(self, tmp_path: Path) -> None:
        (tmp_path / "kg.csv").write_bytes(b"\xef\xbb\xbfa")
        with Source(tmp_path / "kg.csv") as source:
            assert (source.bom, source.read()) == (True, b"a")

    def test_utf16_text_of_several_blocks_is_read_in_parts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "".join(f"{row};ä𝄞\n" for row in range(300))
        (tmp_path / "kg.csv").write_bytes(text.encode("utf-16"))
        monkeypatch.setattr(files, "_BUFFER", 101)  # blocks end within a character
        monkeypatch.setattr(files, "available_memory", lambda: 1000)
        with Source(tmp_path / "kg.csv") as source:
            assert (source.bom, source.read(2).decode(), source.read().decode()) == (True, text[:2], text[2:])

    @pytest.mark.parametrize("url", ["memory://nothing/there.csv", "nosuch://place/x.csv"])
    def test_a_url_that_cannot_be_opened_is_refused(self, url: str) -> None:
        with pytest.raises(InputError, match=r"does not exist|cannot be opened"):
            Source(url)

    def test_a_refusal_does_not_repeat_a_password(self) -> None:
        with pytest.raises(InputError) as caught:
            Source("nosuch://me:secret@place/x.csv?token=abc")
        assert "secret" not in str(caught.value)
        assert "abc" not in str(caught.value)

    def test_a_file_without_permission_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
            os.chmod(folder, 0o755)
            path = Path(folder) / "kg.csv"
            path.write_text("a")
            path.chmod(0)
            user = os.geteuid()
            if user == 0:  # who may read everything: asked as somebody else
                os.seteuid(65534)
            try:
                with pytest.raises(InputError, match="may not be read; check its permissions"):
                    Source(path)
            finally:
                os.seteuid(user)

    def test_no_file_stays_open_after_a_refusal(self, tmp_path: Path) -> None:
        (tmp_path / "x.zip").write_bytes(b"PK\x03\x04")
        before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
        for _ in range(5):
            with pytest.raises(InputError, match="zip archive"):
                Source(tmp_path / "x.zip")
        assert not before or len(os.listdir("/proc/self/fd")) == before
