"""How a job tells the driver that it runs: a datagram to PEERS_BELL on loopback.

The same for every system, so that no system's way of storing results is in the time of its pickup.
"""

from __future__ import annotations

import os
import socket
import time

ADDRESS = ("127.0.0.1", int(os.environ.get("PEERS_BELL", "0")))
WAIT_S_MAX = 60.0
SPIN_S = 0.001
RUNG_BYTES_MAX = 32


class Bell:
    """The driver's end."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(ADDRESS)
        self._socket.settimeout(WAIT_S_MAX)

    def wait(self) -> None:
        """Until a job has rung."""
        self._socket.recv(RUNG_BYTES_MAX)


def ring() -> None:
    """A job's first act: it says when it ran, by a clock that all processes of a machine share."""
    runs = time.monotonic_ns()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"%d" % runs, ADDRESS)


def spin() -> None:
    """A millisecond of a processor's time, of this thread."""
    until = time.thread_time() + SPIN_S
    while time.thread_time() < until:
        pass
