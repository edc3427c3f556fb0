"""Refusals and failures as HTTP: the only module that knows which status a refusal gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from http import HTTPStatus

from starlette.responses import Response

from rota.core.errors import (
    Conflict,
    IllegalTransition,
    Invalid,
    NotFound,
    Refusal,
    StalePreload,
    TooMuch,
)
from rota.engine.ports import BusyError, UnavailableError
from rota.store.errors import DamagedError, FileGoneError
from rota.store.files.blobs import BlobMissingError
from rota.store.files.uploads import (
    TooManyUploadsError,
    UploadError,
    UploadTooLargeError,
    WrongOffsetError,
)
from rota.store.protocol import (
    ArtifactNameError,
    ArtifactTooLargeError,
    StoreError,
    StoreFullError,
    TablesBehindError,
)
from rota.wire import problems as wire
from rota.wire.formats import encode
from rota.wire.problems import TITLES, TYPE_PREFIX, FieldError, Problem, ProblemError

RETRY_AFTER_S = 1
"""Sent to clients that met a limit or a server that is not ready."""


def invalid(field: str, message: str) -> ProblemError:
    detail = f"{field}: {message}" if field else message
    return ProblemError(422, "invalid", detail, errors=[FieldError(field, message)])


def not_found(kind: str, key: str) -> ProblemError:
    return ProblemError(404, "not_found", NotFound(kind, key).detail)


def respond(error: ProblemError) -> Response:
    """Builds the response of a problem (RFC 9457)."""
    title = TITLES.get(error.status) or HTTPStatus(error.status).phrase
    problem = Problem(
        type=TYPE_PREFIX + error.code,
        title=title,
        status=error.status,
        detail=error.detail,
        errors=error.errors,
        reasons=error.reasons,
    )
    return Response(
        encode(problem), error.status, headers=dict(error.headers), media_type=wire.MEDIA_TYPE
    )


def from_refusal(refusal: Refusal) -> ProblemError:
    """Converts a refusal of the core."""
    match refusal:
        case NotFound():
            return ProblemError(404, refusal.code, refusal.detail)
        case IllegalTransition() | Conflict():
            return ProblemError(409, refusal.code, refusal.detail)
        case Invalid():
            errors = [FieldError(refusal.field, refusal.detail)] if refusal.field else []
            return ProblemError(422, refusal.code, refusal.detail, errors=errors)
        case TooMuch():
            return ProblemError(429, refusal.code, refusal.detail, headers=_retry(RETRY_AFTER_S))
        case StalePreload():
            detail = "the job kept changing while it was read: try again"
            return ProblemError(503, refusal.code, detail, headers=_retry(RETRY_AFTER_S))
        case _:
            return ProblemError(409, refusal.code, refusal.detail)


def from_unavailable(error: UnavailableError) -> ProblemError:
    """Converts an engine that is busy (429) or not available (503)."""
    headers = _retry(error.retry_after_s)
    if isinstance(error, BusyError):
        return ProblemError(429, "busy", error.detail, headers=headers)
    return ProblemError(503, "unavailable", error.detail, headers=headers)


def not_ready(reasons: Sequence[str]) -> ProblemError:
    """Builds the answer of a server that cannot make progress."""
    detail = f"not ready: {'; '.join(reasons)}"
    problem = ProblemError(503, "unavailable", detail, headers=_retry(RETRY_AFTER_S))
    problem.reasons = list(reasons)
    return problem


def from_store(error: StoreError) -> ProblemError:
    """Converts a failure of the store; its own text stays in the log."""
    if isinstance(error, ArtifactTooLargeError):
        return ProblemError(413, "too_large", str(error), headers={"Connection": "close"})
    if isinstance(error, ArtifactNameError):
        return invalid("name", str(error))
    if isinstance(error, UploadError):
        return _from_upload(error)
    if isinstance(error, BlobMissingError):
        detail = "the storage has lost this file: upload it again"
        return ProblemError(410, "lost", detail)
    if isinstance(error, DamagedError):
        return ProblemError(500, "store_damaged", str(error))
    if isinstance(error, FileGoneError):
        return ProblemError(500, "store_gone", str(error))
    if isinstance(error, StoreFullError):
        detail = "the data disk is full: nothing was changed; free some space and try again"
        return ProblemError(507, "store_full", detail, headers=_retry(5))
    if isinstance(error, TablesBehindError):
        detail = (
            "the tables are behind the journal, and this call needs them: try again; submissions,"
            " leases and reports go on meanwhile"
        )
        return ProblemError(503, "tables_behind", detail, headers=_retry(RETRY_AFTER_S))
    detail = "the store cannot be reached: the request may or may not have taken effect"
    return ProblemError(503, "store_unavailable", detail, headers=_retry(RETRY_AFTER_S))


def _from_upload(error: UploadError) -> ProblemError:
    match error:
        case UploadTooLargeError():
            return ProblemError(413, "too_large", str(error), headers={"Connection": "close"})
        case TooManyUploadsError():
            return ProblemError(429, "too_many_uploads", str(error), headers=_retry(30))
        case WrongOffsetError():
            headers = {"Upload-Offset": str(error.offset), "Connection": "close"}
            return ProblemError(409, "wrong_offset", str(error), headers=headers)
        case _:
            return ProblemError(409, "taken_over", str(error), headers={"Connection": "close"})


def from_exception(error: Exception) -> ProblemError | None:
    """Returns the problem that an exception stands for; None if it is a bug."""
    match error:
        case ProblemError():
            return error
        case Refusal():
            return from_refusal(error)
        case UnavailableError():
            return from_unavailable(error)
        case StoreError():
            return from_store(error)
        case _:
            return None


def fault(request_id: str) -> ProblemError:
    """Builds the answer to a bug: it shows nothing but the id that finds it in the log."""
    detail = f"internal error: the server's log has the details under request {request_id}"
    return ProblemError(500, "fault", detail)


def _retry(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(max(1, seconds))}


def retry_after(wait_ms: float) -> dict[str, str]:
    """Returns a Retry-After header of whole seconds."""
    return _retry(math.ceil(wait_ms / 1000))
