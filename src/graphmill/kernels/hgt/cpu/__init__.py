"""HGT's compiled passes.

``passes`` is the entry and ``relation_table`` makes its input; ``forward`` and ``backward`` do one relation.
"""
