"""Problems that a gateway itself answers, as problem documents (RFC 9457)."""

from __future__ import annotations

from starlette.responses import Response

from rota.gateway.limits import RETRY_AFTER_S
from rota.wire.formats import encode
from rota.wire.problems import MEDIA_TYPE, TITLES, TYPE_PREFIX, FieldError, Problem, ProblemError

CELL_HEADER = "Rota-Cell"
"""Header with the cell that answered, or that is down."""
MISSING_HEADER = "Rota-Missing-Cells"
"""Header with the cells that are missing in a merged answer."""


class CellDownError(Exception):
    """A cell did not answer."""

    def __init__(self, cell: str, why: str, *, sent: bool = False) -> None:
        super().__init__(f"cell {cell}: {why}")
        self.cell = cell
        self.why = why
        self.sent = sent
        """Whether the cell may have got the request."""


def respond(error: ProblemError) -> Response:
    """Makes the response for a problem."""
    problem = Problem(
        type=TYPE_PREFIX + error.code,
        title=TITLES[error.status],
        status=error.status,
        detail=error.detail,
        errors=error.errors,
    )
    return Response(
        encode(problem), error.status, headers=dict(error.headers), media_type=MEDIA_TYPE
    )


def invalid(field: str, message: str) -> ProblemError:
    """Makes the problem of an invalid field."""
    return ProblemError(422, "invalid", f"{field}: {message}", errors=[FieldError(field, message)])


def cell_down(error: CellDownError) -> ProblemError:
    """Makes the problem of a request whose cell is down."""
    fate = (
        "; the request may or may not have been done: send it again with the same Idempotency-Key"
        if error.sent
        else "; nothing was changed"
    )
    detail = f"cell {error.cell} is down ({error.why}){fate}"
    return ProblemError(503, "cell_down", detail, headers=retry_later(error.cell))


def retry_later(cells: str) -> dict[str, str]:
    """Returns headers that ask the client to retry when these cells are up."""
    return {"Retry-After": str(RETRY_AFTER_S), CELL_HEADER: cells}
