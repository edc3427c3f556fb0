"""Number of examples of property tests: few every day, many in `make test-slow`."""

from __future__ import annotations

import os

THOROUGH = "ROTA_TEST_THOROUGH"
"""Set by `make test-slow`."""


def examples(everyday: int, thorough: int) -> int:
    return thorough if THOROUGH in os.environ else everyday
