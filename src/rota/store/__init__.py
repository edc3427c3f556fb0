"""REMEMBERS: the journal, the tables folded from it, and the logs."""
