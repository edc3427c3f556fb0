"""Calls about one thing: the id says whose it is."""

from __future__ import annotations

from starlette.responses import Response

from rota.gateway.desk import GatewayRequest
from rota.gateway.fanout import ask_cells
from rota.gateway.headers import request_headers
from rota.gateway.health import Cell
from rota.gateway.lines import CellRequest
from rota.gateway.problems import retry_later
from rota.gateway.relay import relay
from rota.wire.problems import ProblemError


async def by_id(visit: GatewayRequest) -> Response:
    """To the cell that the id carries; one that carries none is looked for."""
    thing = next(iter(visit.params.values()))
    cell = visit.context.directory.of_id(thing) or await _find(visit)
    return await relay(visit, cell)


async def by_tenant(visit: GatewayRequest) -> Response:
    """To the tenant's own cell."""
    return await relay(visit, visit.context.directory.of_tenant(visit.params["name"]))


async def any_cell(visit: GatewayRequest) -> Response:
    """What all cells answer alike."""
    return await relay(visit, visit.context.directory.any_cell())


async def refuse_for_cell(visit: GatewayRequest) -> Response:
    """What is a cell's own affair."""
    names = ", ".join(visit.context.directory.cells)
    raise ProblemError(
        421,
        "ask_the_cell",
        "a gateway does not take this call: send it to a server of the cell itself. Workers are"
        f" started with `rota worker --server URL` of their cell; the cells here are {names}",
    )


async def file_or_refuse_for_cell(visit: GatewayRequest) -> Response:
    """How much of an upload is there, which workers ask; or a file that is called `upload` itself:
    then the slash before it is a part of its name, and encoded."""
    return await (refuse_for_cell if visit.path.endswith("/upload") else by_id)(visit)


async def _find(visit: GatewayRequest) -> Cell:
    """Asks all cells for an id without a tag: of before its cell had a name, or chosen by a worker.

    Only looks: what was asked for is sent to the one cell that has it.
    """
    fleet = visit.context.directory
    noun = "/".join(visit.path.split("/")[:3])
    tolds = await ask_cells(
        visit.context,
        fleet.cells.values(),
        lambda cell: CellRequest(
            "HEAD", noun, request_headers(visit.scope, visit.headers, cell.name)
        ),
    )
    having = [told.cell for told in tolds if told.good]
    if len(having) > 1:
        names = ", ".join(cell.name for cell in having)
        detail = f"the cells {names} all have one of this id: ask one of them directly"
        raise ProblemError(409, "ambiguous", detail)
    if having:
        return having[0]
    if absent := ", ".join(told.cell.name for told in tolds if told.missing):
        detail = f"no cell that is up has it, and {absent} cannot be asked now"
        raise ProblemError(503, "cell_down", detail, headers=retry_later(absent))
    # Asked again with its own verb, so that the cell's words reach the client.
    return min(tolds, key=lambda told: told.status != 404).cell
