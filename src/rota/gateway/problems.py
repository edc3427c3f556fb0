"""What a gateway says for itself when it cannot do what was asked."""

from __future__ import annotations

from starlette.responses import Response

from rota.gateway.limits import RETRY_AFTER_S
from rota.wire.formats import encode
from rota.wire.problems import MEDIA_TYPE, TITLES, TYPE_PREFIX, FieldError, Problem, ProblemError

CELL_HEADER = "Rota-Cell"
"""The cell that an answer came from, or that is down."""
MISSING_HEADER = "Rota-Missing-Cells"
"""The cells that a merged answer lacks."""


class CellDownError(Exception):
    """A cell gave no answer."""

    def __init__(self, cell: str, why: str, *, sent: bool = False) -> None:
        super().__init__(f"cell {cell}: {why}")
        self.cell = cell
        self.why = why
        self.sent = sent
        """The request may have been heard."""


def respond(error: ProblemError) -> Response:
    """The answer that tells a problem."""
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
    """A field that makes no sense here."""
    return ProblemError(422, "invalid", f"{field}: {message}", errors=[FieldError(field, message)])


def cell_down(error: CellDownError) -> ProblemError:
    """One cell is needed, and it is down."""
    fate = (
        "; what was asked may or may not have happened: ask again with the same Idempotency-Key"
        if error.sent
        else "; nothing was changed"
    )
    detail = f"cell {error.cell} is down ({error.why}){fate}"
    return ProblemError(503, "cell_down", detail, headers=retry_later(error.cell))


def retry_later(cells: str) -> dict[str, str]:
    """The headers of an answer that waits for these cells."""
    return {"Retry-After": str(RETRY_AFTER_S), CELL_HEADER: cells}
