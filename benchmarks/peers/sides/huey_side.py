"""Huey's side: its Redis queue, read by blocking, with results in one hash."""

from __future__ import annotations

import os

import bell
from huey import RedisHuey

queue = RedisHuey("peers", host="127.0.0.1", port=int(os.environ["PEERS_REDIS_PORT"]))


@queue.task()
def noop() -> int:
    """Nothing, but a result that is recorded."""
    return 0


@queue.task()
def spin() -> int:
    """A millisecond of work."""
    bell.spin()
    return 0


@queue.task()
def ring() -> None:
    """Says that it runs."""
    bell.ring()


KINDS = {"noop": noop, "spin": spin}


def pour(kind: str, count: int) -> None:
    """One after the other."""
    for _ in range(count):
        KINDS[kind]()


def call() -> None:
    """One."""
    ring()


def recorded() -> int:
    """All results that nobody has fetched yet."""
    return queue.result_count()
