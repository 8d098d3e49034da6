"""A synthetic biomedical knowledge graph in PrimeKG's 12 columns, seeded, with a known structure.

Model. Each node ``i`` belongs to one of :data:`LATENT` = 64 communities, which all types share, with weight 0.9, and
to a second one with weight 0.1 (``z_i``, 64 non-negative numbers), and has a popularity ``p_i`` (Pareto: degrees are
skewed). Each relation ``r`` stresses the dimensions differently (``w_r``, 64 positive numbers). A pair of ``r`` is
drawn with probability proportional to

    λ_r(x, y) = p_x p_y [ (1 - ε) Σ_k w_rk z_xk z_yk / Λ_r  +  ε / (P_x P_y) ]

with ε = 0.05, Λ_r the sum of the first term over all pairs and P the sum of popularities of a type. The first term is a
DistMult score of rank 64; message passing sees it too, because a drug's genes, its diseases' genes and their processes
come from the same communities. After the largest relation of a type is drawn, nodes of this type that are in fewer than
three pairs get more pairs from their own community. No pair of a relation is drawn twice, there are no self loops, and
each pair is written in both directions.

Oracle. Ranking the pairs of the graph against uniformly drawn pairs of the same types by λ, the planted truth, gives
the AUC that no model can be expected to pass: 0.98 on ``tiny`` as the mean over relations (0.67 by popularity alone).
A spectral embedding of nine tenths of the pairs reaches 0.9 on the rest, so the structure is learnable. Both are
tested.

Presets. ``tiny``: 2,000 nodes of five types, 12,000 rows, the committed sample. ``small``: 40,000 rows. ``paper``:
PrimeKG's whole shape (129,375 nodes of ten types, 8,100,498 rows of 30 relations; the counts only, the nodes are made
up), for timing and memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.samples.biomed_names import node_texts

LATENT = 64
BACKGROUND = 0.05
MIN_DEGREE = 3
_MAIN, _SECOND = 0.9, 0.1

HEADER = "relation,display_relation,x_index,x_id,x_type,x_name,x_source,y_index,y_id,y_type,y_name,y_source\n"

_GENE, _DISEASE, _DRUG, _PATHWAY, _PROCESS = "gene/protein", "disease", "drug", "pathway", "biological_process"
_FUNCTION, _COMPONENT, _PHENOTYPE = "molecular_function", "cellular_component", "effect/phenotype"
_ANATOMY, _EXPOSURE = "anatomy", "exposure"


@dataclass(frozen=True)
class Relation:
    """A relation between two node types and the number of undirected pairs (rows / 2) in each preset; 0: absent."""

    name: str
    displays: tuple[str, ...]
    head: str
    tail: str
    tiny: int
    small: int
    paper: int


_CHILD = ("parent-child",)
RELATIONS = (
    Relation("protein_protein", ("ppi",), _GENE, _GENE, 1050, 3600, 321_075),
    Relation("drug_protein", ("target", "enzyme", "carrier", "transporter"), _DRUG, _GENE, 650, 2000, 25_653),
    Relation("contraindication", ("contraindication",), _DRUG, _DISEASE, 250, 900, 30_675),
    Relation("indication", ("indication",), _DRUG, _DISEASE, 300, 900, 9_388),
    Relation("off-label use", ("off-label use",), _DRUG, _DISEASE, 60, 200, 2_568),
    Relation("drug_drug", ("synergistic interaction",), _DRUG, _DRUG, 650, 2600, 1_336_314),
    Relation("phenotype_protein", ("associated with",), _PHENOTYPE, _GENE, 0, 0, 3_330),
    Relation("phenotype_phenotype", _CHILD, _PHENOTYPE, _PHENOTYPE, 0, 0, 18_736),
    Relation("disease_phenotype_negative", ("phenotype absent",), _DISEASE, _PHENOTYPE, 0, 0, 1_193),
    Relation("disease_phenotype_positive", ("phenotype present",), _DISEASE, _PHENOTYPE, 0, 0, 150_317),
    Relation("disease_protein", ("associated with",), _DISEASE, _GENE, 1200, 4600, 80_411),
    Relation("disease_disease", _CHILD, _DISEASE, _DISEASE, 140, 500, 32_194),
    Relation("drug_effect", ("side effect",), _DRUG, _PHENOTYPE, 0, 0, 64_784),
    Relation("bioprocess_bioprocess", _CHILD, _PROCESS, _PROCESS, 150, 600, 52_886),
    Relation("molfunc_molfunc", _CHILD, _FUNCTION, _FUNCTION, 0, 0, 13_574),
    Relation("cellcomp_cellcomp", _CHILD, _COMPONENT, _COMPONENT, 0, 0, 4_845),
    Relation("molfunc_protein", ("interacts with",), _FUNCTION, _GENE, 0, 0, 69_530),
    Relation("cellcomp_protein", ("interacts with",), _COMPONENT, _GENE, 0, 0, 83_402),
    Relation("bioprocess_protein", ("interacts with",), _PROCESS, _GENE, 900, 2700, 144_805),
    Relation("exposure_protein", ("interacts with",), _EXPOSURE, _GENE, 0, 0, 1_212),
    Relation("exposure_disease", ("linked to",), _EXPOSURE, _DISEASE, 0, 0, 2_304),
    Relation("exposure_exposure", _CHILD, _EXPOSURE, _EXPOSURE, 0, 0, 2_070),
    Relation("exposure_bioprocess", ("interacts with",), _EXPOSURE, _PROCESS, 0, 0, 1_625),
    Relation("exposure_molfunc", ("interacts with",), _EXPOSURE, _FUNCTION, 0, 0, 45),
    Relation("exposure_cellcomp", ("interacts with",), _EXPOSURE, _COMPONENT, 0, 0, 10),
    Relation("anatomy_anatomy", _CHILD, _ANATOMY, _ANATOMY, 0, 0, 14_032),
    Relation("anatomy_protein_present", ("expression present",), _ANATOMY, _GENE, 0, 0, 1_518_203),
    Relation("anatomy_protein_absent", ("expression absent",), _ANATOMY, _GENE, 0, 0, 19_887),
    Relation("pathway_pathway", _CHILD, _PATHWAY, _PATHWAY, 50, 200, 2_535),
    Relation("pathway_protein", ("interacts with",), _PATHWAY, _GENE, 600, 1200, 42_646),
)

_TYPES = (_GENE, _DISEASE, _DRUG, _PATHWAY, _PROCESS, _FUNCTION, _COMPONENT, _PHENOTYPE, _ANATOMY, _EXPOSURE)
_COUNTS = {
    "tiny": (740, 320, 360, 170, 410),
    "small": (2100, 900, 1000, 500, 1300),
    "paper": (27_671, 17_080, 7_957, 2_516, 28_642, 11_169, 4_176, 15_311, 14_035, 818),
}
NODE_COUNTS = {preset: dict(zip(_TYPES, counts, strict=False)) for preset, counts in _COUNTS.items()}
PRESETS = tuple(NODE_COUNTS)


@dataclass(frozen=True)
class Planted:
    """The latent variables of one node type: ``main`` and ``second`` community (int64, N), ``popularity`` (float64, N)."""

    main: np.ndarray
    second: np.ndarray
    popularity: np.ndarray

    def memberships(self) -> np.ndarray:
        """``z``, float64, N × :data:`LATENT`; each row adds up to 1."""
        z = np.zeros((len(self.main), LATENT))
        z[np.arange(len(z)), self.main] = _MAIN
        z[np.arange(len(z)), self.second] = _SECOND
        return z


class Biomed:
    """The synthetic graph of one preset: nodes, planted truth, pairs; the same for the same seed."""

    def __init__(self, preset: str = "tiny", seed: int = 0) -> None:
        self.preset = preset
        self.counts = NODE_COUNTS[preset]
        self.relations = tuple(r for r in RELATIONS if getattr(r, preset))
        self.first_index = dict(zip(self.counts, np.cumsum([0, *self.counts.values()]).tolist(), strict=False))
        self._rng = np.random.default_rng(seed)
        self.planted = {node_type: self._plant(count) for node_type, count in self.counts.items()}
        self.weights = {r.name: 0.25 + 1.5 * self._rng.random(LATENT) for r in self.relations}
        self._draws = {node_type: _Draws(planted) for node_type, planted in self.planted.items()}
        self._degree = {node_type: np.zeros(count, dtype=np.int64) for node_type, count in self.counts.items()}
        by_size = sorted(self.relations, key=lambda r: -getattr(r, preset))
        self._home = {t: next(r.name for r in by_size if t in (r.head, r.tail)) for t in self.counts}

    def _plant(self, count: int) -> Planted:
        # Every community has members of every type: communities are assigned in turn, then shuffled.
        main = (np.arange(count) % LATENT)[np.argsort(self._rng.random(count))]
        second = (main + 1 + (self._rng.random(count) * (LATENT - 1)).astype(np.int64)) % LATENT
        popularity = np.minimum((1 - self._rng.random(count)) ** (-1 / 1.8), 15.0)
        return Planted(main, second, popularity)

    def pairs(self) -> Iterator[tuple[Relation, np.ndarray, np.ndarray]]:
        """Each relation with its pairs: two int64 arrays, numbers within the head's and the tail's type.

        Call it once: it draws from the generator that the constructor seeded.
        """
        for r in self.relations:
            result = self._top_up(r)
            wanted = getattr(r, self.preset)
            drawn = 2 * (wanted - len(result)) + 64
            while len(result) < wanted:
                fresh = self._keys(r, *self._draw(r, drawn))
                result = _distinct(np.concatenate([result, fresh]))
            keys = result[:wanted]
            keys = keys[np.argsort(self._rng.random(len(keys)))]
            heads, tails = keys // self.counts[r.tail], keys % self.counts[r.tail]
            np.add.at(self._degree[r.head], heads, 1)
            np.add.at(self._degree[r.tail], tails, 1)
            yield r, heads, tails

    def _top_up(self, r: Relation) -> np.ndarray:
        """Keys of additional pairs for nodes that are in too few, of the largest relation of their type.

        Nodes in no pair come first, so that they get one even if the relation is too small for all nodes.
        """
        keys = [np.zeros(0, dtype=np.int64)]
        for lowest in range(MIN_DEGREE):
            for node_type in dict.fromkeys((r.head, r.tail)):
                if self._home[node_type] != r.name:
                    continue
                nodes = np.flatnonzero(self._degree[node_type] <= lowest)
                other = r.tail if node_type == r.head else r.head
                partners = self._draws[other].within(self.planted[node_type].main[nodes], self._rng)
                heads, tails = (nodes, partners) if node_type == r.head else (partners, nodes)
                keys.append(self._keys(r, heads, tails))
        return _distinct(np.concatenate(keys))

    def _draw(self, r: Relation, number: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = self._draws[r.head], self._draws[r.tail]
        cumulative = np.cumsum(self.weights[r.name] * x.mass * y.mass)
        dimension = np.searchsorted(cumulative, self._rng.random(number) * cumulative[-1], side="right")
        heads, tails = x.within(dimension, self._rng), y.within(dimension, self._rng)
        background = self._rng.random(number) < BACKGROUND
        count = int(background.sum())
        heads[background], tails[background] = x.anywhere(count, self._rng), y.anywhere(count, self._rng)
        return heads, tails

    def _keys(self, r: Relation, heads: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """One number per pair; within one type the smaller node comes first and self loops are left out."""
        if r.head == r.tail:
            heads, tails = np.minimum(heads, tails), np.maximum(heads, tails)
            heads, tails = heads[heads != tails], tails[heads != tails]
        return heads * self.counts[r.tail] + tails

    def csv_chunks(self, pairs_at_once: int = 50_000) -> Iterator[bytes]:
        """The file in pieces: the header, then for each relation all pairs forwards, then all pairs backwards."""
        wordy = self.preset == "paper"
        texts = {t: node_texts(t, count, self.first_index[t], wordy) for t, count in self.counts.items()}
        yield HEADER.encode()
        for r, heads, tails in self.pairs():
            x, y = texts[r.head], texts[r.tail]
            for first, second, a, b in ((heads, tails, x, y), (tails, heads, y, x)):
                for start in range(0, len(heads), pairs_at_once):
                    rows = slice(start, start + pairs_at_once)
                    # The display must not depend on the direction.
                    output = _displays(r, heads[rows], tails[rows])
                    lines = [
                        f"{r.name},{display},{a[i]},{b[j]}\n"
                        for display, i, j in zip(output, first[rows].tolist(), second[rows].tolist(), strict=True)
                    ]
                    yield "".join(lines).encode()


def _displays(r: Relation, heads: np.ndarray, tails: np.ndarray) -> list[str]:
    """Most pairs have the relation's first display name, the others one of the rest."""
    choice = (heads * 31 + tails * 17) % 8
    return [r.displays[c] if c < len(r.displays) else r.displays[0] for c in choice.tolist()]


def _distinct(keys: np.ndarray) -> np.ndarray:
    """Distinct keys in the order of their first appearance, so that cutting off the end favours no node."""
    _, first = np.unique(keys, return_index=True)
    return keys[np.sort(first)]


class _Draws:
    """Draws nodes of one type with probability proportional to popularity, within a latent dimension or from all."""

    def __init__(self, planted: Planted) -> None:
        self.z = planted.memberships()
        self.mass = planted.popularity @ self.z
        self._anywhere = np.cumsum(planted.popularity)
        nodes = np.concatenate([np.arange(len(self.z)), np.arange(len(self.z))])
        dimensions = np.concatenate([planted.main, planted.second])
        order = np.argsort(dimensions, kind="stable")
        self._nodes = nodes[order]
        share = np.concatenate([planted.popularity * _MAIN, planted.popularity * _SECOND])[order]
        self._cumulative = np.cumsum(share)
        ends = np.cumsum(np.bincount(dimensions, minlength=LATENT))
        self._first, self._final = ends - np.bincount(dimensions, minlength=LATENT), ends - 1

    def within(self, dimension: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """One node for each entry of ``dimension``, ∝ popularity × membership in that dimension."""
        floor = np.where(self._first > 0, self._cumulative[self._first - 1], 0.0)[dimension]
        target = floor + rng.random(len(dimension)) * (self._cumulative[self._final[dimension]] - floor)
        result = np.searchsorted(self._cumulative, target, side="right")
        return self._nodes[np.clip(result, self._first[dimension], self._final[dimension])]

    def anywhere(self, number: int, rng: np.random.Generator) -> np.ndarray:
        """``number`` nodes, ∝ popularity."""
        result = np.searchsorted(self._anywhere, rng.random(number) * self._anywhere[-1], side="right")
        return np.minimum(result, len(self._anywhere) - 1)
