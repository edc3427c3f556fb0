"""Runs one command on a server and a worker in this process, and prints which modules it enters.

Started by `test_ordinary_job.py` in a process of its own, because tracing slows everything down.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

import rota
from rota.cli.start.serve import Service, start
from rota.cli.start.up import ServerOptions
from rota.worker.agent import Agent, WorkerConfig, open_agent_log

SOURCE = f"{Path(rota.__file__).parent}/"
PATIENCE_S = 60
JOB = {"name": "ordinary", "task": {"kind": "command", "argv": ["true"]}}


class EntryOrder:
    """Modules of the program in the order in which calls enter them."""

    def __init__(self) -> None:
        self.modules: list[str] = [""]
        self.is_on = False
        # Threads that begin later, such as the store's writer, are traced too.
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)

    def _enter(self, frame: FrameType, event: str, _arg: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            module = frame.f_code.co_filename.removeprefix(SOURCE)
            if module != self.modules[-1]:
                self.modules.append(module)


class Caller:
    """A client of the server, in other threads: not part of what is traced."""

    def __init__(self, service: Service, data: Path) -> None:
        self._url = service.url
        self.token = (data / "token").read_text().strip()

    async def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """One call; the JSON that it answers."""
        return await asyncio.to_thread(self._call, method, path, body)

    def _call(self, method: str, path: str, body: object) -> dict[str, Any]:
        request = Request(self._url + path, None if body is None else json.dumps(body).encode())
        request.method = method
        request.add_header("Authorization", f"Bearer {self.token}")
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=PATIENCE_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found


async def trace(folder: Path) -> list[str]:
    """Modules that an ordinary job enters, in order, from its submission until it has succeeded."""
    entered = EntryOrder()
    data = folder / "data"
    service = await start(ServerOptions(host="127.0.0.1", port=0, data=data, lease_ttl_ms=15_000))
    caller = Caller(service, data)
    config = WorkerConfig(servers=[service.url], token=caller.token, work_dir=folder / "work")
    agent = Agent(config, open_agent_log(io.StringIO()))
    running = asyncio.create_task(agent.run())
    # What is done once for each worker is no part of an ordinary job's way: the second is traced.
    for is_traced in (False, True):
        entered.is_on = is_traced
        job = await caller.call("POST", "/jobs", JOB)
        await succeeded(caller, job["job_id"], entered, is_traced=is_traced)
    agent.request_stop()
    await running
    await service.stop()
    return entered.modules


async def succeeded(caller: Caller, job_id: str, entered: EntryOrder, *, is_traced: bool) -> None:
    """Waits until the job has succeeded; looking at it is not traced."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await asyncio.sleep(0.2)
            entered.is_on = False
            if (await caller.call("GET", f"/jobs/{job_id}"))["status"] == "succeeded":
                return
            entered.is_on = is_traced


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(trace(Path(sys.argv[1])))))
