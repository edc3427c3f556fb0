"""Verification: judges deterministic simulation, storms on real processes, and live checks.

`history` and `replay` hold the evidence of a run, `checkers` the promises; `live` checks an
installation over its API. The simulation itself is `tests/simtest`, outside the package.
"""
