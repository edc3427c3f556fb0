"""Tells of jobs in traces: made from the journal after the fact, never in a turn."""
