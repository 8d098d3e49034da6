"""Blend: scores links by a sum of parts that validation links weigh by relation; ComplEx and NBFNet are trained."""
