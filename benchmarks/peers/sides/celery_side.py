"""Celery's side: a broker that PEERS_BROKER names, the results in Redis.

Settings for short tasks as Celery's page on optimizing says: many are prefetched; and what costs
without being asked for (rate limits, events) is off. The pool and its size are in the command line.
"""

from __future__ import annotations

import os

import redis
import start_signal
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
    start_signal.spin()


@app.task
def pickup() -> None:
    start_signal.send()


KINDS = {"noop": noop, "spin": spin}


def submit_jobs(kind: str, count: int) -> None:
    """Uses one producer, which is a little faster than a group and than single calls."""
    with app.producer_pool.acquire() as producer:
        for _ in range(count):
            KINDS[kind].apply_async((), producer=producer)


def call() -> None:
    pickup.delay()


def recorded() -> int:
    return results.dbsize()
