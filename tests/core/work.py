"""How much work something is, without a clock: calls of functions, also of those written in C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def work_of(act: Callable[[], object]) -> int:
    """How many functions are called by it."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls
