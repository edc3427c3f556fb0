"""What one cell answered to a question that was put to several."""

from __future__ import annotations

from dataclasses import dataclass, field

from starlette.responses import Response

from rota.gateway.headers import RawHeaders
from rota.gateway.health import Cell

_REFUSED = (401, 403)
"""This token is not for that cell: a tenant's need not be known in all of them."""


@dataclass(frozen=True, slots=True)
class CellResponse:
    """One answer; status 0: none."""

    cell: Cell
    status: int
    body: bytes = b""
    headers: RawHeaders = field(default_factory=list)
    why: str = ""

    @property
    def good(self) -> bool:
        """It did what was asked."""
        return 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """It does not know who asks."""
        return self.status in _REFUSED

    @property
    def missing(self) -> bool:
        """It could not answer now."""
        return self.status == 0 or self.status == 429 or self.status >= 500

    def as_response(self) -> Response:
        """The cell's own answer."""
        response = Response(self.body, self.status)
        response.raw_headers = self.headers
        return response
