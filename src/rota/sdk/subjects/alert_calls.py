"""The calls about alerts, as values; does no I/O, like `calls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.sdk.calls import Call
from rota.sdk.paths import path_of
from rota.wire.alerts import (
    AlertPage,
    AlertTrial,
    AlertView,
    ChannelPage,
    ChannelTrial,
    ChannelView,
    NoticePage,
)
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.units import encode

_ALL = (("limit", str(PAGE_ITEMS_MAX)),)
"""There are fewer rules and addresses than a page holds."""


def list_alerts() -> Call[AlertPage]:
    """All rules, and how they stand."""
    return Call("GET", "/alerts", AlertPage, params=_ALL)


def get_alert(name: str) -> Call[AlertView]:
    """One of them."""
    return Call("GET", path_of("alerts", name), AlertView)


def set_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertView]:
    """A rule; what is not given is as its condition has it."""
    return Call("PUT", path_of("alerts", name), AlertView, body=encode(spec))


def try_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertTrial]:
    """What a rule would find now, if it were set."""
    return Call("POST", path_of("alerts", name, "test"), AlertTrial, body=encode(spec), keyed=True)


def delete_alert(name: str) -> Call[None]:
    """A rule is gone, or as it was at first."""
    return Call("DELETE", path_of("alerts", name), type(None))


def silence_alert(name: str, spec: Mapping[str, Any]) -> Call[AlertView]:
    """It tells nobody for a while."""
    return Call("PUT", path_of("alerts", name, "silence"), AlertView, body=encode(spec))


def unsilence_alert(name: str) -> Call[AlertView]:
    """It may tell again."""
    return Call("DELETE", path_of("alerts", name, "silence"), AlertView)


def list_notices() -> Call[NoticePage]:
    """What was told lately."""
    return Call("GET", "/alert-notices", NoticePage, params=_ALL)


def list_channels() -> Call[ChannelPage]:
    """All who are told."""
    return Call("GET", "/alert-channels", ChannelPage, params=_ALL)


def set_channel(name: str, spec: Mapping[str, Any]) -> Call[ChannelView]:
    """Somebody to tell."""
    return Call("PUT", path_of("alert-channels", name), ChannelView, body=encode(spec))


def delete_channel(name: str) -> Call[None]:
    """Told no longer."""
    return Call("DELETE", path_of("alert-channels", name), type(None))


def try_channel(name: str) -> Call[ChannelTrial]:
    """A notice that says it is a test."""
    return Call("POST", path_of("alert-channels", name, "test"), ChannelTrial, keyed=True)
