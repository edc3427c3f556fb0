"""The gateway's own health and figures; these need no token, as they say nothing of jobs."""

from __future__ import annotations

from starlette.responses import Response

from rota.gateway.desk import GatewayRequest
from rota.gateway.metrics import METRICS_CONTENT_TYPE
from rota.gateway.problems import retry_later
from rota.wire.problems import ProblemError
from rota.wire.service import Health
from rota.wire.units import encode


async def show_alive(visit: GatewayRequest) -> Response:
    """The process answers."""
    return _healthy()


async def show_ready(visit: GatewayRequest) -> Response:
    """Some cell can accept and schedule."""
    if visit.context.closing.is_set():
        raise ProblemError(503, "unavailable", "the gateway is stopping")
    cells = visit.context.directory.cells.values()
    if not any(cell.ready for cell in cells):
        names = ", ".join(cell.name for cell in cells)
        detail = f"no cell is ready: {names}"
        raise ProblemError(503, "cell_down", detail, headers=retry_later(names))
    return _healthy()


async def show_metrics(visit: GatewayRequest) -> Response:
    """The text that Prometheus reads."""
    desk = visit.context
    text = desk.metrics.expose(desk.directory.cells.values(), desk.streams.taken)
    return Response(text, media_type=METRICS_CONTENT_TYPE)


def _healthy() -> Response:
    return Response(encode(Health("ok")), media_type="application/json")
