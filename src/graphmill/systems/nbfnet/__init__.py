"""NBFNet: scores links by propagation from the head, conditioned on the relation; no vectors of nodes."""
