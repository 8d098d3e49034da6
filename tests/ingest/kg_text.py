"""Small kg.csv files as text, for the tests of ingestion."""

from pathlib import Path

from tests.samples.biomed import HEADER

COLUMNS = {
    "head_id": "head",
    "head_type": "head_type",
    "relation": "relation",
    "tail_id": "tail",
    "tail_type": "tail_type",
}
"""The column map of tables ``head, head_type, relation, tail, tail_type``."""
GENE = "0,9796,gene/protein,PHYHIP,NCBI"
OTHER_GENE = "1,56992,gene/protein,KIF15,NCBI"
DRUG = "2,DB00997,drug,Doxorubicin,DrugBank"
DISEASE = "3,9796,disease,carcinoma,MONDO"


def row(head: str, tail: str, relation: str = "drug_protein", display: str = "target") -> str:
    """One line without its line break."""
    return f"{relation},{display},{head},{tail}"


def both(head: str, tail: str, relation: str = "drug_protein") -> list[str]:
    """The two lines of an undirected edge."""
    return [row(head, tail, relation), row(tail, head, relation)]


CLEAN = [*both(DRUG, GENE), *both(GENE, OTHER_GENE, "protein_protein"), *both(DISEASE, GENE, "disease_protein")]
"""Six rows, three pairs, four nodes without gaps; nothing odd except that 9796 is a gene and a disease."""


def text(*lines: str, end: str = "\n") -> bytes:
    """A file of these lines below PrimeKG's header."""
    return end.join([HEADER.rstrip("\n"), *lines, ""]).encode()


def write(directory: Path, data: bytes | str, name: str = "kg.csv") -> Path:
    """``data`` as a file."""
    path = directory / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path
