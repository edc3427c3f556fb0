"""Calls between servers of a cell: forwarding to the leader, submissions while there is none."""
