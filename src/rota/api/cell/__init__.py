"""Calls about the cell: its servers, workers, queues, policy and tokens, and what it would need."""
