"""Links by similar neighbourhoods in closed form: spectral vectors, and kNN."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "spectral": Entry(
        __name__,
        "SpectralSettings",
        "SpectralSystem",
        "Spectral vectors: a truncated SVD of typed neighbourhoods, and links by their similarities; no training",
        explains=True,
        new_nodes=True,
        closed_form=True,
    ),
    "knn": Entry(
        __name__,
        "KnnSettings",
        "KnnSystem",
        "kNN: links of nodes with similar typed neighbourhoods; scores new nodes and edges untrained",
        explains=True,
        vectors=False,
        closed_form=True,
    ),
}
