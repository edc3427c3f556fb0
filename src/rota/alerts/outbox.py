"""Notices on their way: each goes to its address until it was taken, or is too old to be news."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rota.alerts.board import Notification
from rota.alerts.limits import (
    DELIVERIES_KEPT,
    GIVE_UP_MS,
    OUTBOX_MAX,
    RETRY_MS_FIRST,
    RETRY_MS_MAX,
)
from rota.alerts.rules import RANK, AlertRule, AlertSettings
from rota.core.model import Instant


class OutboxEntry(msgspec.Struct, frozen=True):
    """One notice for one address."""

    channel: str
    notice: Notification
    tries: int = 0
    due_at: Instant = 0
    tried_at: Instant | None = None
    error: str = ""
    """Why it was not taken the last time."""


class Delivery(msgspec.Struct, frozen=True):
    """What became of a letter in the end."""

    notice_id: str
    channel: str
    at: Instant
    tries: int
    error: str = ""
    """Why it was given up; empty: it was taken."""


TOO_MANY = "too many notices waited for this address"


class Outbox(msgspec.Struct):
    """Those that were not taken yet, oldest first, and what became of others."""

    letters: list[OutboxEntry] = []
    past: list[Delivery] = []
    """Newest last."""

    def put(self, notices: Sequence[Notification], book: AlertSettings) -> None:
        """For everybody who is to be told."""
        for notice in notices:
            rule = book.rule(notice.rule)
            if rule is not None:
                self.letters += [OutboxEntry(name, notice) for name in recipients(rule, book)]
        for letter in self.letters[:-OUTBOX_MAX]:
            self._note(letter, letter.notice.at, TOO_MANY)
        del self.letters[:-OUTBOX_MAX]

    def due(self, now: Instant) -> list[OutboxEntry]:
        """The first of each address, if it is time: what follows waits, so they stay in order."""
        first: dict[str, OutboxEntry] = {}
        for letter in self.letters:
            first.setdefault(letter.channel, letter)
        return [letter for letter in first.values() if letter.due_at <= now]

    def delivered(self, letter: OutboxEntry, now: Instant) -> None:
        """It has arrived."""
        self.drop(letter)
        self._note(replace(letter, tries=letter.tries + 1), now)

    def drop(self, letter: OutboxEntry) -> None:
        """Nobody is there to take it."""
        self.letters = [one for one in self.letters if one is not letter]

    def failed(self, letter: OutboxEntry, now: Instant, error: str) -> bool:
        """To be tried again later; False: it is given up."""
        tries = letter.tries + 1
        if now - letter.notice.at >= GIVE_UP_MS:
            self.drop(letter)
            self._note(replace(letter, tries=tries), now, error)
            return False
        pause = min(RETRY_MS_FIRST * 2**letter.tries, RETRY_MS_MAX)
        later = replace(letter, tries=tries, due_at=now + pause, tried_at=now, error=error)
        self.letters = [later if one is letter else one for one in self.letters]
        return True

    def tried(self, letter: OutboxEntry, now: Instant, error: str = "") -> None:
        """One that was sent only to try the address; it is not kept for later."""
        self._note(replace(letter, tries=1), now, error)

    def forget(self, channel: str) -> None:
        """The address is gone."""
        self.letters = [one for one in self.letters if one.channel != channel]

    def _note(self, letter: OutboxEntry, now: Instant, error: str = "") -> None:
        done = Delivery(letter.notice.id, letter.channel, now, letter.tries, error)
        self.past = [*self.past, done][-DELIVERIES_KEPT:]


def recipients(rule: AlertRule, book: AlertSettings) -> list[str]:
    """Who hears of a rule."""
    return [
        channel.name
        for channel in book.channels.values()
        if (rule.channels is None or channel.name in rule.channels)
        and RANK[rule.severity] >= RANK[channel.severity]
    ]
