"""How far one embedding has moved from another: figures, and verdicts by multiples of the seed's own effect."""
