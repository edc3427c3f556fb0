"""The parts of protocol.py: what may be asked of a store, one subject a module."""
