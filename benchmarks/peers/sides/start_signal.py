"""Start signal of a job to the driver: a datagram to PEERS_SIGNAL_PORT on loopback.

The same for every system, so that no system's way of storing results is in the time of its pickup.
"""

from __future__ import annotations

import os
import socket
import time

ADDRESS = ("127.0.0.1", int(os.environ.get("PEERS_SIGNAL_PORT", "0")))
WAIT_S_MAX = 60.0
SPIN_S = 0.001
SIGNAL_BYTES_MAX = 32


class StartSignal:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(ADDRESS)
        self._socket.settimeout(WAIT_S_MAX)

    def wait(self) -> None:
        self._socket.recv(SIGNAL_BYTES_MAX)


def send() -> None:
    """Sends the time at which the job runs, by a clock that all processes of a machine share."""
    runs = time.monotonic_ns()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"%d" % runs, ADDRESS)


def spin() -> None:
    """Uses a millisecond of processor time in this thread."""
    until = time.thread_time() + SPIN_S
    while time.thread_time() < until:
        pass
