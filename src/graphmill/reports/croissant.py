"""Describes a run's exported files in Croissant 1.0, MLCommons' machine-readable format for data sets (JSON-LD over
schema.org).

The format: http://mlcommons.org/croissant/1.0. All required properties are present. If no file of the run has the value
(licence, creator), the property says so.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from graphmill.export.weights import NODES

if TYPE_CHECKING:
    from graphmill.reports.card_files import CardFiles

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_MEDIA = {".parquet": "application/x-parquet", ".csv": "text/csv", ".npy": "application/octet-stream"}
_COLUMNS = (
    ("node_index", "sc:Integer", "The source's own node number, or the row number if it has none"),
    ("node_id", "sc:Text", "The source's id, unchanged"),
    ("node_name", "sc:Text", "The source's name"),
    ("node_type", "sc:Text", "Node type"),
)


def croissant(files: CardFiles, prefix: str = "") -> dict[str, Any]:
    """The description. ``prefix`` is put before the files' paths, which are relative to the folder of ``croissant.json``."""
    listed = {**files.export["files"], **files.export.get("aligned", {})}
    rows, dim = files.export["rows"], files.export["dim"]
    software = files.software.get("graphmill", "of an unknown version")
    fingerprint = str(files.export.get("fingerprint", ""))
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": f"{files.dataset}-{files.system or 'embeddings'}",
        "description": f"{rows} vectors of {dim} float32 numbers, one for each node of {files.dataset}."
        if files.vectors
        else f"The weights of {files.system} on {files.dataset}, with its {rows} nodes and its relations.",
        "license": "Not recorded; the terms of the source data apply",
        "url": f"urn:graphmill:{fingerprint or 'unknown'}",
        "creator": {"@type": "sc:Organization", "name": f"Not recorded; made with graphmill {software}"},
        "datePublished": _when(files),
        "version": str(files.export["version"]) + (f".0.0+{fingerprint[:16]}" if fingerprint else ".0.0"),
        "isLiveDataset": False,
        "keywords": ["graph embeddings" if files.vectors else "link prediction", files.system, files.dataset],
        "distribution": [_file(name, entry, prefix) for name, entry in listed.items()],
        "recordSet": [
            _records(name, dim) for name in listed if name.endswith(".parquet") and (files.vectors or name == NODES)
        ],
    }


def _file(name: str, entry: dict[str, Any], prefix: str) -> dict[str, Any]:
    suffix = name[name.rfind(".") :]
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": prefix + name,
        "contentSize": f"{entry['bytes']} B",
        "encodingFormat": _MEDIA.get(suffix, "application/octet-stream"),
        "sha256": entry["sha256"],
    }


def _records(file: str, dim: int) -> dict[str, Any]:
    name = file.partition(".")[0]
    columns = [_field(name, file, *column) for column in _COLUMNS]
    if dim:
        vector = _field(name, file, "embedding", "sc:Float", f"The vector: {dim} numbers, float32")
        columns.append({**vector, "repeated": True})
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": "One row for each node of the graph, in its order",
        "key": [{"@id": f"{name}/node_type"}, {"@id": f"{name}/node_id"}],
        "field": columns,
    }


def _field(records: str, file: str, column: str, kind: str, about: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"{records}/{column}",
        "name": column,
        "description": about,
        "dataType": kind,
        "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
    }


def _when(files: CardFiles) -> str:
    """The date of the export, from the modification time of its manifest."""
    written = (files.export_folder / "manifest.json").stat().st_mtime
    return datetime.fromtimestamp(written, UTC).date().isoformat()
