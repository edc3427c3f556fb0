"""Measure of work without a clock: calls of functions, also of those written in C."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType


def work_of(act: Callable[[], object]) -> int:
    """Number of function calls that `act` makes."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()  # a collection calls functions too, of whoever has asked for it
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
        gc.enable()
    return calls
