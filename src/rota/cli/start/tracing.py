"""Decides by the standard OTEL_* variables whether a server traces, and puts that together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from rota.api.deps import AppDeps
from rota.engine.loop import Engine
from rota.traces.spans import RecordingPropagator, TraceFollower

if TYPE_CHECKING:
    from rota.traces.otlp import Otlp

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Whether an exporter or an address is configured, and tracing not disabled."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter and exporter not in ("otlp", "none"):
        raise click.ClickException(
            f"OTEL_TRACES_EXPORTER={exporter} is not known here: otlp, or none"
        )
    return exporter == "otlp" or (
        not exporter and any(environment.get(name) for name in _ENDPOINTS)
    )


@dataclass(frozen=True, slots=True)
class Tracing:
    """Running parts of tracing."""

    otlp: Otlp
    follower: TraceFollower

    def start(self) -> None:
        """Follows the journal from now on."""
        self.follower.start()

    async def stop(self) -> None:
        """Lets go of what was made."""
        await self.follower.stop()
        await asyncio.to_thread(self.otlp.close)


def trace(
    parts: AppDeps, engine: Engine, environment: Mapping[str, str]
) -> tuple[AppDeps, list[Tracing]]:
    """Adds tracing if it is configured; otherwise nothing of the SDK is loaded."""
    if not wants_traces(environment):
        return parts, []
    try:
        from rota.traces.otlp import open_otlp
    except ImportError as error:
        raise click.ClickException(
            f"OTEL_* asks for traces, and {error.name} is not here: pip install 'rota[otel]'"
        ) from error
    otlp = open_otlp(engine.node)
    naming = RecordingPropagator(otlp.samples)
    follower = TraceFollower(engine, engine.journal_notifier, parts.catalog, naming, otlp)
    return replace(parts, naming=naming), [Tracing(otlp, follower)]
