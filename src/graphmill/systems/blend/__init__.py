"""Blend: scores links by a sum of parts that validation links weigh by relation; ComplEx and NBFNet are trained."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "blend": Entry(
        __name__,
        "BlendSettings",
        "BlendSystem",
        "Blend of spectral vectors, kNN, paths, ComplEx and NBFNet, weighed on validation links by relation",
        explains=True,
        new_nodes=True,
    ),
}
