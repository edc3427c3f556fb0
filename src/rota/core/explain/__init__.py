"""Explain: answers why a job does not run and what would help, and gives snapshots for readers."""
