from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.postgres.server import remove_shared_server


@pytest.fixture(scope="session", autouse=True)
def _postgres_ends() -> Iterator[None]:
    yield
    remove_shared_server()
