"""What is written after a training."""

from graphmill.settings import Settings, setting


class ExportSettings(Settings):
    """Formats of the exported embeddings. Parquet is what the other assets read, so it is on by default."""

    csv: bool = setting(True, "The origin's CSV: node_index, node_id, node_name, node_type, embedding", identity=False)
    parquet: bool = setting(True, "Parquet with a fixed-size list of float32 per node", identity=False)
    npy: bool = setting(False, "A .npy matrix and the ids beside it", identity=False)
