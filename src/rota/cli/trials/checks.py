"""One line of the doctor's report."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Verdict: TypeAlias = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, omit_defaults=True):
    """One thing looked at."""

    name: str
    verdict: Verdict
    found: str
    fix: str = ""
