"""Dramatiq's side: a Redis broker in database 0, the results in database 1."""

from __future__ import annotations

import os
import subprocess
import time

import dramatiq
import redis
from dramatiq import Message, group
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

URL = f"redis://127.0.0.1:{os.environ['PEERS_REDIS_PORT']}"

broker = RedisBroker(url=f"{URL}/0")
broker.add_middleware(Results(backend=RedisBackend(url=f"{URL}/1"), store_results=True))
dramatiq.set_broker(broker)
results = redis.Redis.from_url(f"{URL}/1")


@dramatiq.actor
def now() -> int:
    """When it runs."""
    return time.time_ns()


@dramatiq.actor
def command() -> int:
    """When the program runs."""
    return int(subprocess.run(["date", "+%s%N"], capture_output=True, check=True).stdout)


@dramatiq.actor
def add(a: int, b: int) -> int:
    """Next to nothing."""
    return a + b


def when() -> int:
    """By a function."""
    return now.send().get_result(block=True, timeout=60_000)


def date() -> int:
    """By a function that starts the program: there are no other kinds of task."""
    return command.send().get_result(block=True, timeout=60_000)


def pour(count: int) -> list[Message]:
    """As a group."""
    return list(group(add.message(number, number) for number in range(count)).run().children)


def recorded() -> int:
    """Each result is a key."""
    return results.dbsize()


def result(handle: Message) -> int:
    """From the backend."""
    return handle.get_result(block=True, timeout=60_000)
