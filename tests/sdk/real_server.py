"""A real server on a socket, and a worker of a few lines that runs an app's functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvicorn

from rota.sdk import App, Client, Context, Fail
from rota.sdk.arguments import document, error_record
from rota.sdk.context import ContextInfo
from rota.sdk.declare.functions import run_to_end
from rota.wire.formats import ByteSize, Duration
from rota.wire.jobs import FUNCTION_CAPABILITY
from rota.wire.workers import CompletedReport, LeaseSpec, OrderView, RegisterSpec, ResourcesSpec
from tests.api.in_process_server import TOKEN, open_server


class _Quiet(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = threading.Event()
        self.port = 0

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.listens.set()


@contextmanager
def real_server() -> Iterator[str]:
    """Its URL; the token is `TOKEN`."""
    started = threading.Event()
    found: list[_Quiet] = []

    async def serve() -> None:
        async with open_server() as house:
            config = uvicorn.Config(house.app, port=0, log_level="error", lifespan="off")
            found.append(_Quiet(config))
            started.set()
            await found[0].serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(20)
        assert found[0].listens.wait(20)
        yield f"http://127.0.0.1:{found[0].port}"
    finally:
        found[0].should_exit = True
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"


@contextmanager
def small_worker(url: str, app: App) -> Iterator[None]:
    """Runs what functions the app has by now, one at a time, until the block ends."""
    over = threading.Event()
    thread = threading.Thread(target=_work, args=(url, app, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)


def _work(url: str, app: App, over: threading.Event) -> None:
    with Client(url, TOKEN) as client:
        me = client.register(
            RegisterSpec(
                name="small",
                capabilities=[FUNCTION_CAPABILITY + name for name in app.functions],
                resources=ResourcesSpec(cpu=8, memory=ByteSize(8 << 30)),
            )
        )
        done: list[CompletedReport] = []
        while not over.is_set() or done:
            spec = LeaseSpec(max=50, wait=Duration(200), completed=done, session=me.session)
            orders = client.lease(me.worker_id, spec).executions
            done = [_run(client, app, order) for order in orders]


class _ToServer:
    def __init__(self, client: Client, order: OrderView) -> None:
        self._client = client
        self._order = order
        self._offset = 0

    def report_progress(self, fraction: float, message: str) -> None:
        """Nobody asks for it here."""

    def write_log(self, text: str) -> None:
        data = text.encode()
        self._client.append_log(self._order.execution_id, data, offset=self._offset)
        self._offset += len(data)


def _run(client: Client, app: App, order: OrderView) -> CompletedReport:
    info = ContextInfo(
        job_id=order.job_id,
        execution_id=order.execution_id,
        attempt=order.attempt,
        fence=order.fence,
    )
    context = Context(info, _ToServer(client, order))
    function = app.functions[order.name]
    report = CompletedReport(execution_id=order.execution_id, status="succeeded", fence=order.fence)
    try:
        args, kwargs = function.signature.decode(bytes(order.payload), context)
        with context.active():
            returned = run_to_end(function.function, args, kwargs)
        report.result = msgspec.Raw(document("the result", returned))
    except Exception as error:  # noqa: BLE001 - a function may raise anything
        report.status = "failed"
        report.error = msgspec.Raw(msgspec.json.encode(error_record(error)))
        report.retryable = not isinstance(error, Fail)
    return report
