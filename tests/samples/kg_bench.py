"""A synthetic knowledge graph in ROBOKOP's triple files, seeded. Its links follow from rules; a list marks the noise.

Model. Genes fall into modules. A drug targets a few genes of one module, a disease is associated with a few genes of
one module, and a drug *treats* a disease when some gene is targeted by the one and associated with the other, as a rule:

    treats(x, z)  ←  targets(x, y) ∧ associated_with(y, z)
    causes(z, w)  ←  associated_with(y, z) ∧ expressed_in_phenotype(y, w)

Each rule's conclusions are thinned at random, so that the held-out ones follow from what is left; ``interacts_with``
joins genes of one module and is symmetric: both directions are written, and both are in the same split, so that no test
triple has its mirror in train. On top of that :data:`NOISE` of the training triples are *noise*: a true triple with its
tail replaced by a random entity of the same kind. They are listed in ``noise.txt``, for testing whether influence
analysis finds them.

Files, as the format ``triples`` reads them: ``train.txt``, ``valid.txt``, ``test.txt``; ``node_dict.txt``,
``rel_dict.txt`` (``predicate:k``), ``node_name_dict.txt`` (some names belong to two nodes, as in the original) and
``edge_map.json`` (detailed predicate → ``predicate:k``).

Oracle. A ranker that knows modules and rules puts a held-out ``treats`` among the diseases of the drug's module; ConvE
reaches an MRR several times that of a ranking by frequency, which is tested.

Presets. ``tiny``: the committed sample, 1,872 triples over 360 entities. ``small``: ten times that. ``paper``: about
216,000 triples over 40,000 entities, for timing.
"""

import json
from collections.abc import Iterator

import numpy as np

PREDICATES = (
    ("predicate:27", "biolink:targets"),
    ("predicate:3", "biolink:gene_associated_with_condition"),
    ("predicate:14", "biolink:treats"),
    ("predicate:8", "biolink:interacts_with"),
    ("predicate:0", "biolink:expressed_in_phenotype"),
    ("predicate:21", "biolink:causes"),
)
_TARGETS, _ASSOCIATED, _TREATS, _INTERACTS, _PHENOTYPE, _CAUSES = range(len(PREDICATES))
NOISE = 0.05
HELD_OUT = 0.1
KEPT_CONCLUSIONS = 0.8
PRESETS = {"tiny": (90, 160, 70, 40), "small": (900, 1600, 700, 400), "paper": (9000, 16_000, 10_000, 5000)}
"""Drugs, genes, diseases and phenotypes."""
MODULE = 8
"""Genes of a module."""
_PREFIXES = ("UNII:", "NCBIGene:", "MONDO:", "HP:")
_WORDS = ("drug", "gene", "disease", "phenotype")


class KgBench:
    """The sample of one preset; the same for the same seed.

    ``splits``: three int64 arrays (n, 3) of (head, relation, tail); ``noise``: bool for each training triple.
    """

    def __init__(self, preset: str = "tiny", seed: int = 0) -> None:
        self._counts = PRESETS[preset]
        self._rng = np.random.default_rng(seed)
        self.first = np.concatenate([[0], np.cumsum(self._counts)])
        self.kind = np.repeat(np.arange(4), self._counts)
        true, unit = self._true_triples()
        self.splits = self._split(true, unit)
        self.splits[0], self.noise = self._with_noise(self.splits[0], true)

    def _true_triples(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct triples, and for each the number of its unit: triples that must be in one split (a symmetric pair)."""
        (drugs, all_genes, diseases, phenotypes), rng = self._counts, self._rng
        module_of_gene = np.arange(all_genes) // MODULE
        modules = int(module_of_gene[-1]) + 1
        genes = [np.flatnonzero(module_of_gene == m) for m in range(modules)]

        def linked(number: int, low: int, high: int) -> list[np.ndarray]:
            """A few genes of one module for each of ``number`` nodes."""
            homes = rng.permutation(np.arange(number) % modules)
            picks = []
            for home in homes:
                wanted = min(int(rng.integers(low, high + 1)), len(genes[home]))
                picks.append(np.sort(rng.choice(genes[home], wanted, replace=False)))
            return picks

        targets = linked(drugs, 2, 5)
        associated = linked(diseases, 3, 6)
        output = linked(phenotypes, 3, 6)
        result: list[tuple[int, int, int]] = []
        drug, gene, disease, phenotype = (int(f) for f in self.first[:4])
        result += [(drug + x, _TARGETS, gene + int(y)) for x, ys in enumerate(targets) for y in ys]
        result += [(gene + int(y), _ASSOCIATED, disease + z) for z, ys in enumerate(associated) for y in ys]
        result += [(gene + int(y), _PHENOTYPE, phenotype + w) for w, ys in enumerate(output) for y in ys]
        result += self._conclusions(targets, associated, drug, _TREATS, disease)
        result += self._conclusions(associated, output, disease, _CAUSES, phenotype)
        for members in genes:
            left, right = np.triu_indices(len(members), 1)
            keep = rng.random(len(left)) < 0.5
            pairs = zip(members[left[keep]].tolist(), members[right[keep]].tolist(), strict=True)
            result += [
                t for a, b in pairs for t in ((gene + a, _INTERACTS, gene + b), (gene + b, _INTERACTS, gene + a))
            ]
        triples = np.array(result, dtype=np.int64)
        symmetric = triples[:, 1] == _INTERACTS
        low, high = np.minimum(triples[:, 0], triples[:, 2]), np.maximum(triples[:, 0], triples[:, 2])
        unit = np.where(symmetric, -1 - (low * len(self.kind) + high), np.arange(len(triples)))
        return triples, np.unique(unit, return_inverse=True)[1]

    def _conclusions(
        self, left: list[np.ndarray], right: list[np.ndarray], head: int, relation: int, tail: int
    ) -> list[tuple[int, int, int]]:
        having: dict[int, list[int]] = {}
        for z, ys in enumerate(right):
            for y in ys.tolist():
                having.setdefault(y, []).append(z)
        out = []
        for x, ys in enumerate(left):
            follow = sorted({z for y in ys.tolist() for z in having.get(y, ())})
            out += [(head + x, relation, tail + z) for z in follow if self._rng.random() < KEPT_CONCLUSIONS]
        return out

    def _split(self, triples: np.ndarray, unit: np.ndarray) -> list[np.ndarray]:
        """Assigns a tenth of the units each to valid and test; a triple stays in train if its entity would otherwise
        vanish from train."""
        units = int(unit.max()) + 1
        draw = self._rng.random(units)[unit]
        part = np.where(draw < HELD_OUT, 2, np.where(draw < 2 * HELD_OUT, 1, 0))
        seen = np.zeros(len(self.kind), dtype=bool)
        seen[triples[part == 0][:, [0, 2]]] = True
        lost = ~seen[triples[:, 0]] | ~seen[triples[:, 2]]
        part[np.isin(unit, unit[lost])] = 0
        order = self._rng.permutation(len(triples))
        return [triples[order[part[order] == number]] for number in range(3)]

    def _with_noise(self, train: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rng = self._rng
        known = {tuple(t) for t in true.tolist()}
        extra: list[tuple[int, int, int]] = []
        wanted = round(len(train) * NOISE / (1 - NOISE))
        while len(extra) < wanted:
            head, relation, tail = train[rng.integers(len(train))].tolist()
            kind = self.kind[tail]
            wrong = int(rng.integers(self.first[kind], self.first[kind + 1]))
            triple = (head, relation, wrong)
            if triple not in known and head != wrong:
                known.add(triple)
                extra.append(triple)
        both = np.concatenate([train, np.array(extra, dtype=np.int64).reshape(-1, 3)])
        flags = np.arange(len(both)) >= len(train)
        order = rng.permutation(len(both))
        return both[order], flags[order]

    def ids(self) -> list[str]:
        """A CURIE per entity."""
        return [f"{_PREFIXES[k]}{i:07d}" if k >= 2 else f"{_PREFIXES[k]}{1000 + 37 * i}" for k, i in self._places()]

    def names(self) -> list[str]:
        """A name for each entity; every twentieth disease and phenotype of one number share theirs."""
        return [f"condition {i}" if k >= 2 and i % 20 == 0 else f"{_WORDS[k]} {i}" for k, i in self._places()]

    def _places(self) -> list[tuple[int, int]]:
        """Kind of each entity, and its place within the kind."""
        within = np.arange(len(self.kind)) - self.first[self.kind]
        return list(zip(self.kind.tolist(), within.tolist(), strict=True))

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Name and content of every file."""
        ids = self.ids()

        def lines(triples: np.ndarray) -> bytes:
            rows = triples.tolist()
            return "".join(f"{ids[h]}\t{PREDICATES[r][0]}\t{ids[t]}\n" for h, r, t in rows).encode()

        for name, triples in zip(("train", "valid", "test"), self.splits, strict=True):
            yield f"{name}.txt", lines(triples)
        yield "noise.txt", lines(self.splits[0][self.noise])
        yield "node_dict.txt", "".join(f"{entity}\t{i}\n" for i, entity in enumerate(ids)).encode()
        yield "node_name_dict.txt", "".join(f"{name}\t{i}\n" for i, name in enumerate(self.names())).encode()
        yield "rel_dict.txt", "".join(f"{symbol}\t{i}\n" for i, (symbol, _) in enumerate(PREDICATES)).encode()
        detailed = {json.dumps({"predicate": name}): symbol for symbol, name in PREDICATES}
        yield "edge_map.json", (json.dumps(detailed, indent=2) + "\n").encode()
