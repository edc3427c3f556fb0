"""Exceptions of calls, one tree: catch `RotaError` for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.wire.jobs import JobView
from rota.wire.limits import KEY_CHARS_MAX
from rota.wire.problems import FieldError, Problem


class RotaError(Exception):
    """Root of all exceptions of calls."""


class AddressError(RotaError):
    """The given server address is not a valid URL."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url!r} is not the address of a server: write http://host:port")
        self.url = url


class TokenError(RotaError):
    """The given token is not valid. It is not shown, because it may be part of a real one."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"the token from {source} is not valid: it has spaces or characters other than ASCII"
        )


class KeyFormatError(RotaError):
    """The given idempotency key is not valid."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key[:40]!r} is not an idempotency key: use 1 to {KEY_CHARS_MAX} printable ASCII"
            " characters"
        )
        self.key = key


class UnreachableError(RotaError):
    """No answer came: nothing listens at the address, or the connection failed repeatedly."""

    def __init__(self, url: str, cause: str, *, refused: bool = False) -> None:
        super().__init__(f"no answer from {url} ({cause})")
        self.url = url
        self.cause = cause
        self.refused = refused


class SilenceError(UnreachableError):
    """The connection was open, but nothing arrived in time."""


class AnswerError(RotaError):
    """The answer cannot be read: perhaps it is not from a Rota server, or from a very different
    version.
    """


class WaitTimeoutError(RotaError):
    """The jobs did not end in time."""

    def __init__(self, job_ids: Sequence[str]) -> None:
        super().__init__(f"{len(job_ids)} of the jobs did not end in time")
        self.job_ids = tuple(job_ids)


class JobFailed(RotaError):  # noqa: N818 - what happened, not what this program did wrong
    """A job ended without the result that was waited for."""

    def __init__(self, job: JobView, log_tail: str = "") -> None:
        cause = f": {text}" if (text := _error_text(job.error)) else ""
        super().__init__(f"job {job.name} {job.job_id} {job.status}{cause}")
        self.job = job
        self.log_tail = log_tail
        """The end of its log."""

    @property
    def error(self) -> Any:
        """The error in the job's record, such as `{"type": …, "message": …}`."""
        return self.job.error

    @property
    def traceback(self) -> str:
        """The traceback of a Python function; empty for other jobs."""
        error = self.job.error
        return str(error.get("traceback", "")) if isinstance(error, Mapping) else ""


def _error_text(error: Any) -> str:
    if isinstance(error, Mapping):
        kind, message = error.get("type"), error.get("message")
        return ": ".join(str(part) for part in (kind, message) if part)
    return "" if error is None else str(error)


class ApiError(RotaError):
    """The server refused the call, with a problem document; the subclass says why."""

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        return self.problem.status

    @property
    def detail(self) -> str:
        """The error as a sentence."""
        return self.problem.detail or self.problem.title

    @property
    def errors(self) -> Sequence[FieldError]:
        """The errors by field."""
        return self.problem.errors


class InvalidError(ApiError):
    """The request is malformed, too large or not valid (400, 413, 422)."""


class UnauthenticatedError(ApiError):
    """The token is missing or unknown (401)."""


class ForbiddenError(ApiError):
    """The token's role does not allow the call, or the host or origin is not allowed (403)."""


class NotFoundError(ApiError):
    """The object does not exist (404)."""


class ConflictError(ApiError):
    """The current state does not allow the call: an illegal transition, a stale execution, a reused
    key (409).
    """


class LimitError(ApiError):
    """A rate limit was exceeded, and waiting did not help (429)."""


class UnavailableError(ApiError):
    """The server was unavailable and waiting did not help (502, 503, 504), or its disk is full
    (507).
    """


class ServerError(ApiError):
    """The server failed (any other 5xx): please report it as a bug."""
