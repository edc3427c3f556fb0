"""How many connections a server has open at once, and who has to go when one more comes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from rota.api.limits import CONNECTIONS_MAX


class Guest(Protocol):
    """One connection."""

    def dismiss(self) -> None:
        """Closes it at once."""
        ...

    def look(self) -> None:
        """Closes it if its client takes nothing of what it asked for."""
        ...


class Lobby:
    """All connections of a server, and among them those whose next word it waits for.

    Whoever has asked something whole is served, however long that takes. Whoever has not, be it an
    idle connection, half a head or half a body, gives way to a newcomer once the house is full: the
    one first that has been silent for longest. So those who only hold connections cannot keep
    anybody out who has something to say.
    """

    def __init__(self, limit: int = CONNECTIONS_MAX) -> None:
        self.limit = limit
        self.dismissed = 0
        """Closed for a newcomer, since the start."""
        self.refused = 0
        """Newcomers for whom nobody could go."""
        self._guests: dict[Guest, None] = {}
        self._awaited: OrderedDict[Guest, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._guests)

    def admit(self, guest: Guest) -> bool:
        """Lets a newcomer in, if need be in the place of another."""
        if len(self._guests) >= self.limit:
            if not self._awaited:
                self.refused += 1
                return False
            silent, _ = self._awaited.popitem(last=False)
            # Before its end is reported: several may come in the meantime.
            del self._guests[silent]
            self.dismissed += 1
            silent.dismiss()
        self._guests[guest] = None
        self._awaited[guest] = None
        return True

    def wait_for(self, guest: Guest) -> None:
        """From now on it is the client's turn."""
        if guest in self._guests:
            self._awaited[guest] = None
            self._awaited.move_to_end(guest)

    def hear(self, guest: Guest) -> None:
        """It has said something, if not all."""
        if guest in self._awaited:
            self._awaited.move_to_end(guest)

    def serve(self, guest: Guest) -> None:
        """It has said all it had to: now it is the server's turn."""
        self._awaited.pop(guest, None)

    def leave(self, guest: Guest) -> None:
        """It has gone."""
        self._guests.pop(guest, None)
        self._awaited.pop(guest, None)

    def look(self) -> None:
        """Looks after clients that do not read."""
        for guest in list(self._guests):
            guest.look()
