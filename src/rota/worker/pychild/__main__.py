"""Entry point of a warm child: `python -P -m rota.worker.pychild KIND INBOUND OUTBOUND [APP]`.

INBOUND and OUTBOUND are numbers of inherited pipes. The user's app is loaded here and never in the
agent, so that nothing it does can hurt the agent.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import logging
import os
import sys

from rota.sdk.app import App
from rota.worker.pychild.async_calls import AsyncCalls, route_output
from rota.worker.pychild.calls import FunctionLookup, FunctionNotFoundError, error_text, load_entry
from rota.worker.pychild.protocol import ChildHello, PipeReader, PipeWriter
from rota.worker.pychild.sync_calls import SyncCalls

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


_FAULTHANDLER_OPTIONS: dict[str, bool] = {"c_stack": False} if sys.version_info >= (3, 14) else {}
"""From 3.14 on the frames of the interpreter itself come last, and push those of the function out
of the part that is kept."""


def main(kind: str, inbound: int, outbound: int, entry: str | None) -> None:
    """Sends the hello, then serves calls until the agent is gone."""
    # Programs that a function starts must not hold the agent's pipes open.
    for pipe in (inbound, outbound):
        os.set_inheritable(pipe, False)  # noqa: FBT003  (the standard library's way)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable(**_FAULTHANDLER_OPTIONS)  # a crash leaves its place in the log
    if kind == "shared":
        route_output()
    sys.path.insert(0, os.getcwd())
    writer = PipeWriter(outbound)
    try:
        app = None if entry is None else load_app(entry)
    except BaseException as error:  # noqa: BLE001  (the user's module may raise anything)
        writer.send(ChildHello([], _problem(entry, error)))
        return
    if not logging.root.handlers:
        logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    writer.send(ChildHello(_functions(app)))
    functions = FunctionLookup(app)
    if kind == "shared":
        asyncio.run(AsyncCalls(inbound, writer, functions).run())
    else:
        SyncCalls(PipeReader(inbound), writer, functions).run()


def load_app(entry: str) -> App:
    """Loads the app that `package.module:app` names."""
    found = load_entry(entry)
    if not isinstance(found, App):
        raise FunctionNotFoundError(f"{entry} is not a rota.App but a {type(found).__name__}")
    return found


def _functions(app: App | None) -> list[tuple[str, bool]]:
    if app is None:
        return []
    return [(name, one.is_async) for name, one in app.functions.items()]


def _problem(entry: str | None, error: BaseException) -> str:
    if isinstance(error, FunctionNotFoundError):
        return str(error)
    return f"{entry} cannot be imported:\n{error_text(error)}"


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] if sys.argv[4:] else None)
