"""Agent that runs beside a test."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import TypeAlias

from rota.worker.agent import Agent, WorkerConfig, open_agent_log
from tests.worker.runner_context import PATIENCE_S


class RunningAgent:
    """Agent and its log."""

    def __init__(self, config: WorkerConfig) -> None:
        self.log = io.StringIO()
        self.agent = Agent(config, open_agent_log(self.log))
        self.task = asyncio.create_task(self.agent.run())

    async def ends(self) -> int:
        """Waits for its end; returns its exit code."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.task

    async def drained(self) -> int:
        """Drains it; returns its exit code."""
        self.agent.request_stop()
        return await self.ends()

    async def stopped(self) -> int:
        """Stops it at once; returns its exit code."""
        self.agent.request_stop()
        self.agent.request_stop()
        return await self.ends()


Starter: TypeAlias = Callable[..., RunningAgent]
