"""Huey's side: its Redis queue, read by blocking, with results in one hash."""

from __future__ import annotations

import os

import start_signal
from huey import RedisHuey

queue = RedisHuey("peers", host="127.0.0.1", port=int(os.environ["PEERS_REDIS_PORT"]))


@queue.task()
def noop() -> int:
    return 0


@queue.task()
def spin() -> int:
    start_signal.spin()
    return 0


@queue.task()
def pickup() -> None:
    start_signal.send()


KINDS = {"noop": noop, "spin": spin}


def submit_jobs(kind: str, count: int) -> None:
    for _ in range(count):
        KINDS[kind]()


def call() -> None:
    pickup()


def recorded() -> int:
    return queue.result_count()
