"""Dramatiq's side: a Redis broker in database 0, the results in database 1."""

from __future__ import annotations

import os

import dramatiq
import redis
import start_signal
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
    return 0


@dramatiq.actor
def spin() -> int:
    start_signal.spin()
    return 0


@dramatiq.actor
def pickup() -> None:
    start_signal.send()


KINDS = {"noop": noop, "spin": spin}


def submit_jobs(kind: str, count: int) -> None:
    group(KINDS[kind].message() for _ in range(count)).run()


def call() -> None:
    pickup.send()


def recorded() -> int:
    return results.dbsize()
