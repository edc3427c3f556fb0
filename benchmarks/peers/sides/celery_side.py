"""Celery's side: a broker that PEERS_BROKER names, the results in Redis.

Settings for short tasks as Celery's page on optimizing says: many are prefetched; and what costs
without being asked for (rate limits, events) is off. The pool and its size are in the command line.
"""

from __future__ import annotations

import os

import bell
import redis
from celery import Celery

RESULTS = f"redis://127.0.0.1:{os.environ['PEERS_REDIS_PORT']}/1"
BROKER = os.environ.get("PEERS_AMQP") or f"redis://127.0.0.1:{os.environ['PEERS_REDIS_PORT']}/0"

app = Celery("celery_side", broker=BROKER, backend=RESULTS)
app.conf.update(
    worker_prefetch_multiplier=128,
    worker_disable_rate_limits=True,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
results = redis.Redis.from_url(RESULTS)


@app.task
def noop() -> None:
    """Nothing."""


@app.task
def spin() -> None:
    """A millisecond of work."""
    bell.spin()


@app.task
def ring() -> None:
    """Says that it runs."""
    bell.ring()


KINDS = {"noop": noop, "spin": spin}


def pour(kind: str, count: int) -> None:
    """By one producer: a little faster than a group, and than one call after the other."""
    with app.producer_pool.acquire() as producer:
        for _ in range(count):
            KINDS[kind].apply_async((), producer=producer)


def call() -> None:
    """One."""
    ring.delay()


def recorded() -> int:
    """Each result is a key."""
    return results.dbsize()
