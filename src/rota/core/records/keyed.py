"""What inputs have in common: a key that makes a repeat safe, and what was read from the tables."""

from __future__ import annotations

import msgspec

from rota.core.model import Instant, JobRecord, KeyRecord
from rota.core.records.events import AcceptedEvent


class Input(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The base of all inputs."""


class Preloaded(Input, frozen=True, kw_only=True):
    """What the tables said at `at`: jobs that may have left memory, and the key if it was used."""

    at: Instant
    jobs: tuple[JobRecord, ...] = ()
    upstream: tuple[JobRecord, ...] = ()
    """What `jobs` depend on: only for how they ended."""
    key: KeyRecord | None = None
    accepted_events: tuple[AcceptedEvent, ...] = ()
    """Events that were accepted before."""


class Key(Input, frozen=True, kw_only=True):
    """An idempotency key and the fingerprint of the request that carries it."""

    key: str
    fingerprint: str


class Idempotent(Input, frozen=True, kw_only=True):
    """The base of inputs that may be repeated safely under a key."""

    key: Key | None = None
    preloaded: Preloaded | None = None
