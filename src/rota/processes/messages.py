"""Messages between a server's main process and its background process."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from rota.core.model import Millis
from rota.store.protocol import ProjectionStatus, Seq, StoredRecord


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base class of the messages."""


class Configure(Message, frozen=True, tag="c"):
    """Comes first: what the background process works on."""

    store: str
    """The database's address, which may hold a password: it never stands on a command line."""
    lanes: int
    """Connections that project."""
    retention_ms: Millis | None
    """How long finished work is kept; None: for ever."""


class Lead(Message, frozen=True, tag="l"):
    """Says whether this server leads."""

    leads: bool


class Appended(Message, frozen=True, tag="a"):
    """The newest record of the journal, which has so many writes."""

    record: StoredRecord
    writes: int


class Want(Message, frozen=True, tag="w"):
    """A reader waits until the tables have record `seq`."""

    seq: Seq


class SweepSoon(Message, frozen=True, tag="s"):
    """Deleted jobs have left logs and files."""


class LookAgain(Message, frozen=True, tag="q"):
    """Another process has changed the quarantine."""


class Ping(Message, frozen=True, tag="g"):
    """Asks for the status, which shows that the process is not frozen."""


class ShutDown(Message, frozen=True, tag="e"):
    """Asks the process to finish what it does and to end."""


ToBackground: TypeAlias = (
    Configure | Lead | Appended | Want | SweepSoon | LookAgain | Ping | ShutDown
)


class Status(Message, frozen=True, tag="p"):
    """How far the tables are, and what is wrong with them."""

    status: ProjectionStatus


FromBackground: TypeAlias = Status
