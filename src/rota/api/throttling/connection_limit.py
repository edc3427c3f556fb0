"""The connection limit of a server, and which connection is closed when one more comes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

from rota.api.limits import CONNECTIONS_MAX


class ClientConnection(Protocol):
    """One connection."""

    def close_now(self) -> None:
        """Closes it at once."""
        ...

    def close_if_stalled(self) -> None:
        """Closes it if its client takes nothing of what it asked for."""
        ...


class ConnectionLimit:
    """All connections of a server, and among them those whose next word it waits for.

    Whoever has asked something whole is served, however long that takes. Whoever has not, be it an
    idle connection, half a head or half a body, gives way to a newcomer once the house is full: the
    one first that has been silent for longest. So those who only hold connections cannot keep
    anybody out who has something to say.
    """

    def __init__(self, limit: int = CONNECTIONS_MAX) -> None:
        self.limit = limit
        self.evicted = 0
        """Closed for a newcomer, since the start."""
        self.refused = 0
        """Newcomers for whom nobody could go."""
        self._connections: dict[ClientConnection, None] = {}
        self._awaited: OrderedDict[ClientConnection, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._connections)

    def admit(self, guest: ClientConnection) -> bool:
        """Lets a newcomer in, if need be in the place of another."""
        if len(self._connections) >= self.limit:
            if not self._awaited:
                self.refused += 1
                return False
            silent, _ = self._awaited.popitem(last=False)
            # Before its end is reported: several may come in the meantime.
            del self._connections[silent]
            self.evicted += 1
            silent.close_now()
        self._connections[guest] = None
        self._awaited[guest] = None
        return True

    def wait_for(self, guest: ClientConnection) -> None:
        """From now on it is the client's turn."""
        if guest in self._connections:
            self._awaited[guest] = None
            self._awaited.move_to_end(guest)

    def note_data(self, guest: ClientConnection) -> None:
        """It has said something, if not all."""
        if guest in self._awaited:
            self._awaited.move_to_end(guest)

    def note_request(self, guest: ClientConnection) -> None:
        """It has said all it had to: now it is the server's turn."""
        self._awaited.pop(guest, None)

    def remove(self, guest: ClientConnection) -> None:
        """It has gone."""
        self._connections.pop(guest, None)
        self._awaited.pop(guest, None)

    def close_stalled(self) -> None:
        """Looks after clients that do not read."""
        for guest in list(self._connections):
            guest.close_if_stalled()
