"""HGT's compiled passes: ``passes`` is the entry; ``forward`` and ``backward`` do one relation of a ``relation_table``."""
