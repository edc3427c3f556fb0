from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.server import remove_shared_server

pytest.register_assert_rewrite(
    "tests.store.conformance",
    "tests.store.conformance_access",
    "tests.store.conformance_bulk",
    "tests.store.conformance_events",
    "tests.store.conformance_leadership",
    "tests.store.conformance_retention",
    "tests.store.conformance_shelves",
    "tests.store.conformance_schedules",
    "tests.store.naive",
)


@pytest.fixture(scope="session", autouse=True)
def _postgres_ends() -> Iterator[None]:
    yield
    remove_shared_server()
