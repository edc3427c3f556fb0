"""Benchmarks: ratios within one run; results with their commit are in RESULTS.md."""
