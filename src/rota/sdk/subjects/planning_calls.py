"""The calls about how much is needed and what jobs take, as values."""

from __future__ import annotations

from collections.abc import Mapping

from rota.sdk.calls import Call
from rota.wire.autoscale import AutoscaleView
from rota.wire.reports import WasteView


def get_autoscale(asked: Mapping[str, str]) -> Call[AutoscaleView]:
    """How many workers would clear what waits; `target`, `queue`, and the size of a worker."""
    return Call("GET", "/autoscale", AutoscaleView, params=tuple(asked.items()))


def get_waste(asked: Mapping[str, str]) -> Call[WasteView]:
    """What jobs asked for and took; of a `tenant` or `name`, `since` a time."""
    return Call("GET", "/reports/waste", WasteView, params=tuple(asked.items()))
