"""How far one embedding has moved from another: figures, verdicts by multiples of the seed's own effect, a self-test."""
