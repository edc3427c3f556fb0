"""Warm children for tests: a pool of them beside a folder with a user's module in it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec

from rota.wire.jobs import PythonCall
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.clock import BootClock
from rota.worker.runners.process import RunnerContext
from rota.worker.runners.python_call import PythonRunner
from rota.worker.runners.python_pool import ChildSettings, PythonPool
from rota.worker.runners.workspace import inherited_environment
from tests.worker.orders import order
from tests.worker.runner_context import ObservedSupervisor, Sink, runner_context

MODULE = "user_functions"
SOURCE = Path(__file__).with_name("functions.py")


class PythonCalls:
    """Runs functions of the user's module as an agent would."""

    def __init__(
        self, folder: Path, *, app: bool = False, grace_s: float = 5.0, **limits: Any
    ) -> None:
        """Makes the pool; `limits` replace the usual ones."""
        self.sink = Sink()
        self._context: RunnerContext = runner_context(folder / "work", self.sink, grace_s)
        env = {**inherited_environment(), "ROTA_WORKER": "tester"}
        if "PYTHONPATH" in os.environ:
            env["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.pool = PythonPool(
            ChildSettings(
                supervisor=self._context.supervisor,
                workspace=self._context.workspace,
                env=env,
                grace_s=grace_s,
                app=f"{MODULE}:app" if app else None,
                idle_max=4,
                **limits,
            )
        )
        self._made = 0

    def mask(self, *names: str) -> None:
        """Masks the values of these variables of the agent."""
        self._context = dataclasses.replace(self._context, mask=names)

    def lease(self, seconds: float) -> None:
        """Leases executions for this long from now on."""
        clock = BootClock()
        self._context = dataclasses.replace(self._context, deadline=lambda _: clock.now() + seconds)

    @property
    def supervisor(self) -> ObservedSupervisor:
        supervisor = self._context.supervisor
        assert isinstance(supervisor, ObservedSupervisor)
        return supervisor

    def run(self, view: OrderView) -> PythonRunner:
        """Makes a runner that has not started."""
        task = msgspec.json.decode(view.task, type=PythonCall | None)
        return PythonRunner(view, task, self._context, self.pool)

    def order(self, function: str, *args: Any, **changes: Any) -> OrderView:
        """Makes a call of one of the user's functions; `kwargs` are its named arguments."""
        self._made += 1
        task = {
            "kind": "python",
            "entry": function if ":" in function else f"{MODULE}:{function}",
            "args": args,
            "kwargs": changes.pop("kwargs", {}),
        }
        return order(f"e{self._made}", task, **changes)

    def registered(self, name: str, payload: Any, **changes: Any) -> OrderView:
        """Makes a call of a function of the app."""
        self._made += 1
        view = order(f"e{self._made}", name=name, **changes)
        raw = msgspec.Raw(msgspec.json.encode(payload))
        return msgspec.structs.replace(view, task=msgspec.Raw(b"null"), payload=raw)

    async def call(self, function: str, *args: Any, **changes: Any) -> CompletedReport:
        return await self.run(self.order(function, *args, **changes)).run()

    async def calls(self, *orders: OrderView) -> list[CompletedReport]:
        """Runs calls concurrently."""
        return list(await asyncio.gather(*(self.run(view).run() for view in orders)))


def write_functions(folder: Path) -> None:
    """Puts the user's module where children find it."""
    (folder / "work").mkdir()
    shutil.copy(SOURCE, folder / f"{MODULE}.py")


def result(report: CompletedReport) -> Any:
    """Decodes what a function returned."""
    assert report.status == "succeeded", bytes(report.error)
    return msgspec.json.decode(report.result)


def error(report: CompletedReport) -> dict[str, Any]:
    """Decodes the error of a failed call."""
    assert report.status != "succeeded", bytes(report.result)
    found: dict[str, Any] = msgspec.json.decode(report.error)
    return found
