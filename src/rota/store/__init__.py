"""Remembers: the journal, the tables projected from it, logs and files."""
