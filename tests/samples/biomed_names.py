"""Invented identifiers and names for the synthetic biomedical graph; they carry no structure.

Names are built from syllables by counting, so that they are distinct within a type. About one in twelve has a comma or
a quote, as in PrimeKG; some have letters outside ASCII. Every third disease has the number of a gene as its id: an id
alone is not a key.
"""

import numpy as np

_VOWELS = {
    "b": "aeo", "c": "aeo", "d": "aeo", "f": "aei", "g": "aeo", "h": "ae", "k": "ao", "l": "aeiou", "m": "aeiou",
    "n": "aeio", "p": "aeio", "r": "aeio", "s": "aeiou", "t": "aeiou", "v": "aei", "x": "ao", "y": "a", "z": "aeio"
}  # fmt: skip
_SYLLABLES = [consonant + vowel for consonant, vowels in _VOWELS.items() for vowel in vowels]
_ADJECTIVES = (
    "familial", "juvenile", "acute", "chronic", "adult", "congenital", "focal", "diffuse", "benign", "atypical",
    "rare", "mixed"
)  # fmt: skip
_DISEASES = ("syndrome", "disease", "disorder", "anemia", "myopathy", "fever", "cancer", "dystrophy")
_PROCESSES = ("binding", "transport", "folding", "repair", "secretion", "splicing", "uptake", "decay")
_PARTS = ("cortex", "duct", "gland", "nerve", "muscle", "membrane", "vessel", "tract")
_SIGNS = ("pain", "swelling", "delay", "weakness", "rash", "atrophy", "seizure", "edema")

GROUPED = "MONDO_grouped"
SOURCES = {
    "gene/protein": "NCBI",
    "disease": "MONDO",
    "drug": "DrugBank",
    "pathway": "REACTOME",
    "biological_process": "GO",
    "molecular_function": "GO",
    "cellular_component": "GO",
    "effect/phenotype": "HPO",
    "anatomy": "UBERON",
    "exposure": "CTD",
}
"""The vocabulary that PrimeKG names for each node type, in the order in which types are numbered."""


def node_texts(node_type: str, count: int, first_index: int, wordy: bool) -> list[str]:
    """The CSV text ``index,id,type,name,source`` of ``count`` nodes, quoted where the format needs it.

    ``wordy`` makes names as long as those of PrimeKG; without it they are short, for the committed sample.
    """
    ids = node_ids(node_type, count)
    texts = []
    for number in range(count):
        source = GROUPED if "_" in ids[number] else SOURCES[node_type]
        name = quoted(node_name(node_type, number, wordy))
        texts.append(f"{first_index + number},{ids[number]},{node_type},{name},{source}")
    return texts


def node_ids(node_type: str, count: int) -> list[str]:
    """``count`` distinct ids that look like those of the type's vocabulary."""
    numbers = _spread(count, 11 if node_type in ("gene/protein", "disease") else 3 * count + 1009)
    if node_type == "drug":
        return [f"DB{n:05d}" for n in numbers]
    if node_type == "pathway":
        return [f"R-HSA-{n}" for n in numbers]
    if node_type == "exposure":
        return [f"C{n:06d}" for n in numbers]
    if node_type == "disease":
        return [_disease_id(position, n) for position, n in enumerate(numbers.tolist())]
    return [str(n) for n in numbers]


def _disease_id(position: int, number: int) -> str:
    """Every third id is also a gene's number; one in five of the others stands for several MONDO entries."""
    if position % 3 == 0:
        return str(number)
    mondo = number + 1_000_000
    return f"{mondo}_{mondo + 7}" if position % 5 == 0 else str(mondo)


def _spread(count: int, start: int) -> np.ndarray:
    """``count`` distinct increasing numbers from ``start``, with uneven steps of 1 to 4."""
    steps = 1 + (np.arange(count, dtype=np.int64) * 2_654_435_761 >> 7) % 4
    return start + np.cumsum(steps)


def node_name(node_type: str, number: int, wordy: bool) -> str:
    """The name of node ``number`` of its type; distinct within the type."""
    word = _word(number)
    if node_type == "gene/protein":
        mixed = (number * 7_919 + 5_003) % 26**3
        letters = "".join(chr(65 + mixed // 26**k % 26) for k in range(3))
        return f"{letters}{number % 40}" + ("L" * (number // 26**3))
    if node_type == "drug":
        name = word.capitalize() + ("ine", "ol", "mab", "ib", "am")[number % 5]
        name += " hydrochloride" if wordy and number % 2 else ""
        return f"{name}, topical" if number % 12 == 5 else name
    if node_type == "disease":
        name = f"{_ADJECTIVES[number % 12]} {word} {_DISEASES[number // 12 % 8]}"
        if number % 40 == 7:
            return f'"{_ADJECTIVES[number % 12]}" {word} {_DISEASES[number // 12 % 8]}'
        name += " due to an inherited defect" if wordy else ""
        return f"{name}, type {number % 7 + 1}" if number % 14 == 3 else name
    if node_type in ("biological_process", "molecular_function", "cellular_component"):
        name = f"{word} {_PROCESSES[number % 8]}"
        if number % 90 == 4:
            name = f"naïve {name}" if number % 180 == 4 else f"β-{name}"
        name += f" involved in regulation of {_word(number // 3)} signaling" if wordy else ""
        return f"{name}, {_word(number % 50)[:4]}-linked" if number % 13 == 6 else name
    if node_type == "pathway":
        name = f"{word.capitalize()} pathway"
        return f"{name}, {_PROCESSES[number % 8]}" if number % 11 == 2 else name
    part = (_SIGNS if node_type == "effect/phenotype" else _PARTS)[number % 8]
    name = f"{word} {part}" + (f" of the {_word(number // 5)}" if wordy else "")
    return f"{name}, left" if number % 12 == 9 else name


def _word(number: int) -> str:
    """Word ``number``: three syllables, the fourth from 226,981 on; distinct for distinct numbers."""
    base = len(_SYLLABLES)
    size = base**3
    extra, rest = divmod(number, size)
    # 7,919 is coprime to the number of words, so this is a permutation: neighbours get different words.
    mixed = (rest * 7_919 + 123_457) % size
    parts = [_SYLLABLES[mixed // base**k % base] for k in range(3)]
    return "".join(parts) + (_SYLLABLES[extra % base] if extra else "")


def quoted(text: str) -> str:
    """``text`` as a CSV field: quoted only where needed."""
    if "," in text or '"' in text:
        return '"' + text.replace('"', '""') + '"'
    return text
