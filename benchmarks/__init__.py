"""Measurements: ratios within one run, kept in RESULTS.md with their commit."""
