"""How many examples a property is held against: a few every day, many where there is time."""

from __future__ import annotations

import os

THOROUGH = "ROTA_TEST_THOROUGH"
"""Set by `make test-slow`."""


def examples(everyday: int, thorough: int) -> int:
    """The number for this run."""
    return thorough if THOROUGH in os.environ else everyday
