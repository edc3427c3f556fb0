"""Stand-in for a part of Rota with some of its methods replaced, for a test to hand in."""

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
    """Returns the part with the methods of `instead`; the part itself does not change."""
    return cast("T", _StandIn(part, instead))
