"""The asset ``<dataset>/raw_<source>``: checks that the files exist and are readable, and records their content hash."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.components.plan import DatasetPlan, Reference, plan_asset
from graphmill.errors import InputError
from graphmill.ingest import sources as source_files
from graphmill.ingest.files import Source, is_binary, path_text
from graphmill.ingest.sources import SourceFile
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.metadata import records
from graphmill.orchestration.page import in_words, links

BINARY = (".npy", ".parquet", ".pq", ".zip")
_BLOCK_BYTES = 1 << 20


def raw_asset(plan: DatasetPlan, source: SourceFile) -> dg.AssetsDefinition:
    """Make the asset of one source. Its value identifies the content from which the tables are made."""
    key = plan.key(f"raw_{source.name}")

    @plan_asset(
        plan,
        f"raw_{source.name}",
        "ingest",
        kinds={Path(source.path.removesuffix(".gz")).suffix[1:].lower() or source.format, "file"},
        description=(
            f"`{path_text(source.path)}`, read as {source.format}. If it has changed, run the job {plan.dataset}_refresh, "
            f"or switch on the sensor {plan.dataset}_files. The data version is the hash of the content."
        ),
        code_version="2",
    )
    def raw(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            if plan.snapshots:
                plan.prepare(source, context.partition_key)
            here = next(each for each in plan.at(context).sources if each.name == source.name)
            locations = here.files()
            size, version = _state(locations)
            digest, about = _content(locations)
        yield dg.MaterializeResult(
            asset_key=key,
            value={"digest": digest, "size": size, "version": version},
            data_version=dg.DataVersion(digest),
            metadata={
                "summary": in_words(_summary(here, size, about), links(key)),
                "file": dg.MetadataValue.path(path_text(here.path)),
                "bytes": size,
                **about,
            },
        )

    return raw


def _summary(source: SourceFile, size: int, about: Mapping[str, Any]) -> str:
    counted = f", {about['lines']:,} lines" if "lines" in about else ""
    return f"`{Path(path_text(source.path)).name}`, read as {source.format}: {size:,} bytes{counted}."


def require_unchanged(source: SourceFile, raw: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` if the content differs from the raw asset's value ``raw``."""
    locations = source.files()
    if _state(locations) == (raw["size"], raw["version"]):
        return
    if _content(locations)[0] != raw["digest"]:
        raise InputError(
            f"{path_text(source.path)} has changed since raw_{source.name} was materialized; materialize raw_{source.name} "
            "together with the tables"
        )


def _state(locations: Mapping[str, str]) -> tuple[int, str]:
    states = {role: source_files.state(location) for role, location in locations.items()}
    version = "|".join(f"{role}:{state.version}" if role else state.version for role, state in states.items())
    return sum(state.size for state in states.values()), version


def _content(locations: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The hash of the files' content (of text: unpacked), and the metadata for the UI."""
    binary = {
        role: source_files.digest(at) for role, at in locations.items() if at.lower().endswith(BINARY) or is_binary(at)
    }
    texts = {role: _text(at) for role, at in locations.items() if role not in binary}
    digest = _digest(binary | {role: digest for role, (digest, _, _) in texts.items()})
    about: dict[str, Any] = {}
    if len(locations) > 1:
        listed = [{"role": role, "file": Path(path_text(at)).name} for role, at in locations.items()]
        sizes = {role: {"bytes": size, "lines": lines} for role, (_, size, lines) in texts.items()}
        plain = {"bytes": 0, "lines": 0}
        about["files"] = records([{**row, **(sizes.get(row["role"]) or plain)} for row in listed])
    if texts:
        about |= {"bytes_unpacked": sum(size for _, size, _ in texts.values())}
        about |= {"lines": sum(lines for _, _, lines in texts.values())}
    return digest, about


def _digest(by_role: Mapping[str, str]) -> str:
    if set(by_role) == {""}:
        return by_role[""]
    text = "\n".join(f"{role} {digest}" for role, digest in sorted(by_role.items()))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _text(location: str) -> tuple[str, int, int]:
    """The hash, bytes and lines of a text file's unpacked content."""
    hasher, size, lines, last = hashlib.blake2b(digest_size=16), 0, 0, b"\n"
    with Source(location) as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
            size += len(block)
            lines += block.count(b"\n")
            last = block[-1:]
    return hasher.hexdigest(), size, lines + (last != b"\n")
