"""Dramatiq's side: a Redis broker in database 0, the results in database 1."""

from __future__ import annotations

import os

import bell
import dramatiq
import redis
from dramatiq import group
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

URL = f"redis://127.0.0.1:{os.environ['PEERS_REDIS_PORT']}"

broker = RedisBroker(url=f"{URL}/0")
broker.add_middleware(Results(backend=RedisBackend(url=f"{URL}/1"), store_results=True))
dramatiq.set_broker(broker)
results = redis.Redis.from_url(f"{URL}/1")


@dramatiq.actor
def noop() -> int:
    """Nothing, but a result that is recorded."""
    return 0


@dramatiq.actor
def spin() -> int:
    """A millisecond of work."""
    bell.spin()
    return 0


@dramatiq.actor
def ring() -> None:
    """Says that it runs."""
    bell.ring()


KINDS = {"noop": noop, "spin": spin}


def pour(kind: str, count: int) -> None:
    """As a group."""
    group(KINDS[kind].message() for _ in range(count)).run()


def call() -> None:
    """One."""
    ring.send()


def recorded() -> int:
    """Each result is a key."""
    return results.dbsize()
