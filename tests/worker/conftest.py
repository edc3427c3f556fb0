"""Every test of the worker has a guard of its own, if it needs one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.worker.site import dismiss_guards


@pytest.fixture(autouse=True)
async def _guards_are_dismissed() -> AsyncIterator[None]:
    yield
    await dismiss_guards()
