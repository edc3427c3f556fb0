"""A part of ours with some of its methods done otherwise, for a test to hand in in its place."""

from __future__ import annotations

from typing import Any, TypeVar, cast

T = TypeVar("T")


class _StandIn:
    def __init__(self, part: object, instead: dict[str, Any]) -> None:
        self._part = part
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._part, name)


def stand_in(part: T, **instead: Any) -> T:
    """All but `instead` is the part's own; the part itself stays as it is."""
    return cast("T", _StandIn(part, instead))
