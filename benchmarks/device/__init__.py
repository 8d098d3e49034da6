"""Proofs and figures of steps on an accelerator, and of what several processes send (docs/explanation/devices.md)."""
