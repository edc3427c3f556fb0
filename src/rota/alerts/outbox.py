"""Notices on their way: each goes to its address until it was taken, or is too old to be news."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rota.alerts.board import Notice
from rota.alerts.limits import GIVE_UP_MS, OUTBOX_MAX, RETRY_MS_FIRST, RETRY_MS_MAX
from rota.alerts.rules import RANK, Book, Rule
from rota.core.model import Instant


class Letter(msgspec.Struct, frozen=True):
    """One notice for one address."""

    channel: str
    notice: Notice
    tries: int = 0
    due_at: Instant = 0


class Outbox(msgspec.Struct):
    """Those that were not taken yet, oldest first."""

    letters: list[Letter] = []

    def put(self, notices: Sequence[Notice], book: Book) -> None:
        """For everybody who is to be told."""
        for notice in notices:
            rule = book.rule(notice.rule)
            if rule is not None:
                self.letters += [Letter(name, notice) for name in _told(rule, book)]
        del self.letters[:-OUTBOX_MAX]

    def due(self, now: Instant) -> list[Letter]:
        """The first of each address, if it is time: what follows waits, so they stay in order."""
        first: dict[str, Letter] = {}
        for letter in self.letters:
            first.setdefault(letter.channel, letter)
        return [letter for letter in first.values() if letter.due_at <= now]

    def taken(self, letter: Letter) -> None:
        """It has arrived."""
        self.letters = [one for one in self.letters if one is not letter]

    def failed(self, letter: Letter, now: Instant) -> bool:
        """To be tried again later; False: it is given up."""
        if now - letter.notice.at >= GIVE_UP_MS:
            self.taken(letter)
            return False
        pause = min(RETRY_MS_FIRST * 2**letter.tries, RETRY_MS_MAX)
        later = replace(letter, tries=letter.tries + 1, due_at=now + pause)
        self.letters = [later if one is letter else one for one in self.letters]
        return True

    def forget(self, channel: str) -> None:
        """The address is gone."""
        self.letters = [one for one in self.letters if one.channel != channel]


def _told(rule: Rule, book: Book) -> list[str]:
    return [
        channel.name
        for channel in book.channels.values()
        if (rule.channels is None or channel.name in rule.channels)
        and RANK[rule.severity] >= RANK[channel.severity]
    ]
