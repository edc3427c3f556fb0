from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.store.conformance", "tests.store.conformance_bulk", "tests.store.naive"
)
