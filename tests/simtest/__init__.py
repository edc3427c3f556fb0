"""Deterministic simulation of whole clusters: servers, workers, users and faults from one seed."""
