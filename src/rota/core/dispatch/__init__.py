"""Dispatch: gives ready jobs to workers in each turn, with backfill, preemption and prefetch."""
