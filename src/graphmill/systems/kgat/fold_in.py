"""Vectors of new nodes that fit their facts best."""

from __future__ import annotations

import numpy as np

from graphmill.systems.kgat.graph import CollaborativeGraph
from graphmill.systems.kgat.model import Kgat


def fitted_to_facts(model: Kgat, facts: CollaborativeGraph, new: np.ndarray, first: np.ndarray) -> np.ndarray:
    """float32 [n, d]: for each node v of ``new`` (int64 [n]) the e that minimises Σ ‖W_r e + e_r − W_r e_t‖² + λ ‖e − m‖²
    over its edges (r, t) to known nodes: the training loss of facts, solved in closed form. ``first`` [n, d]: m, the mean
    of the node's type. λ is the mean weight of a fact, so that one fact and m count equally.
    """
    vectors = model.nodes().detach().cpu().double().numpy()
    projections = model.projections.detach().cpu().double().numpy()  # [R, d, k]
    translations = model.translations.detach().cpu().double().numpy()
    grams = np.einsum("rdk,rek->rde", projections, projections)
    weight = float(np.trace(grams, axis1=1, axis2=2).mean()) / vectors.shape[1]
    out = first.astype(np.float64)
    known = np.ones(facts.num_nodes, bool)
    known[new] = False
    for row, node in enumerate(new.tolist()):
        edges = np.arange(facts.indptr[node], facts.indptr[node + 1])
        edges = edges[known[facts.tail[edges]]]
        left, right = weight * np.eye(vectors.shape[1]), weight * out[row]
        for relation in np.unique(facts.relation[edges]):
            tails = vectors[facts.tail[edges[facts.relation[edges] == relation]]]
            projection = projections[relation]
            left = left + len(tails) * grams[relation]
            right = right + ((tails @ projection - translations[relation]) @ projection.T).sum(0)
        out[row] = np.linalg.solve(left, right)
    return out.astype(np.float32)
