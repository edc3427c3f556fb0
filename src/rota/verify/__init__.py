"""Deterministic simulation, storms on real processes and live checks are all judged here.

`history` and `replay` hold what is known of a run, `checkers` the promises, `live` checks an
installation over its API. The simulation itself is `tests/simtest`, outside the package.
"""
