"""Shuts down the supervisor that a test of the worker has started."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.worker.runner_context import shut_down_supervisors


@pytest.fixture(autouse=True)
async def _supervisors_are_shut_down() -> AsyncIterator[None]:
    yield
    await shut_down_supervisors()
