"""HGT's compiled passes: ``passes`` is the entry, ``relation_table`` its input; ``forward``, ``backward``: one relation."""
