"""HGT's compiled passes: ``passes`` is the entry, ``jobs`` what it is handed, ``forward`` and ``backward`` one relation."""
