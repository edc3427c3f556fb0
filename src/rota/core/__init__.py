"""DECIDES: the pure scheduler. Imports nothing of ours, reads no clock, does no I/O."""
