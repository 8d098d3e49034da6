"""What rankings have to beat, each written once against the Scorer protocol."""
