"""Taskiq's side: a Redis stream, acknowledged when executed, and results in Redis."""

from __future__ import annotations

import asyncio
import os

import redis
import start_signal
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = f"redis://127.0.0.1:{os.environ['PEERS_REDIS_PORT']}"
AT_ONCE = 100

broker = RedisStreamBroker(url=f"{URL}/0").with_result_backend(
    RedisAsyncResultBackend(redis_url=f"{URL}/1")
)
results = redis.Redis.from_url(f"{URL}/1")


@broker.task
async def noop() -> None:
    """Nothing."""


@broker.task
async def spin() -> None:
    start_signal.spin()


@broker.task
async def pickup() -> None:
    start_signal.send()


KINDS = {"noop": noop, "spin": spin}
_runner = asyncio.Runner()


def _started() -> asyncio.Runner:
    if not broker.is_worker_process and not getattr(broker, "peers_started", False):
        _runner.run(broker.startup())
        broker.peers_started = True
    return _runner


def submit_jobs(kind: str, count: int) -> None:
    async def send() -> None:
        for first in range(0, count, AT_ONCE):
            await asyncio.gather(*(KINDS[kind].kiq() for _ in range(min(AT_ONCE, count - first))))

    _started().run(send())


def call() -> None:
    _started().run(pickup.kiq())


def recorded() -> int:
    return results.dbsize()
