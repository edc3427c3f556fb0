"""Answers about the state: why a job does not run, what would help, and snapshots."""
