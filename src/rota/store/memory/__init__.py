"""The forgetful store, for tests and the simulator: no threads, no files."""
