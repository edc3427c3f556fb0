"""Doubts: runs servers, workers and clients under virtual time and faults, all from one seed."""
