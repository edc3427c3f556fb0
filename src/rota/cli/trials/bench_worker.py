"""The worker that `rota bench` brings along: the real agent, in this process, for one queue."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rota.cli.problems import Failure
from rota.cli.trials.bench_line import Line
from rota.sdk import Endpoint
from rota.worker.agent import Agent, ResourceOverrides, WorkerConfig
from rota.worker.diary import open_diary

CPUS = 1_000
"""A job asks for one: so many are held at once, and figures are not those of round trips."""
LOOK_S = 0.02
START_S_MAX = 30.0
"""From the start of an agent until its server lists it as online."""


@asynccontextmanager
async def hired(
    endpoint: Endpoint, queue: str, capability: str
) -> AsyncIterator[Callable[[Line], Awaitable[None]]]:
    """A worker until the block is left; what is yielded returns when the server knows of it."""
    said = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
        agent = Agent(_config(endpoint, queue, capability, Path(folder)), open_diary(said))
        task = asyncio.create_task(agent.run())

        async def online(line: Line) -> None:
            deadline = line.clock.elapsed_s() + START_S_MAX
            path = f"/workers?status=online&capabilities={capability}"
            while not (await line.ask("GET", path))["items"]:
                if task.done() or line.clock.elapsed_s() > deadline:
                    last = (said.getvalue().strip().splitlines() or ["it said nothing"])[-1]
                    raise Failure(f"the bench's own worker did not start: {last}")
                await asyncio.sleep(LOOK_S)

        try:
            yield online
        finally:
            # Told once it drains; told twice it also stops what it runs, and leaves.
            agent.told_to_stop()
            agent.told_to_stop()
            await task


def _config(endpoint: Endpoint, queue: str, capability: str, folder: Path) -> WorkerConfig:
    return WorkerConfig(
        servers=[endpoint.url],
        token=endpoint.token,
        name=capability,
        resources=ResourceOverrides(cpu=CPUS),
        capabilities=[capability],
        queues=[queue],
        work_dir=folder,
        isolation="subreaper",
        containers="none",
    )
