"""Exceptions of calls, one tree: catch `RotaError` for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.wire.jobs import JobView
from rota.wire.limits import KEY_CHARS_MAX
from rota.wire.problems import FieldError, Problem


class RotaError(Exception):
    """The root of the tree."""


class AddressError(RotaError):
    """What was given as the address of a server is none."""

    def __init__(self, url: str) -> None:
        super().__init__(f"{url!r} is no address of a server: write http://host:port")
        self.url = url


class TokenError(RotaError):
    """What was given as a token is none; it is not shown, for it may be a part of one."""

    def __init__(self, source: str) -> None:
        super().__init__(
            f"the token from {source} is none: it has spaces or characters beyond ASCII in it"
        )


class KeyFormatError(RotaError):
    """What was given as an idempotency key is none."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key[:40]!r} is no idempotency key: it has 1 to {KEY_CHARS_MAX} printable ASCII"
            " characters"
        )
        self.key = key


class UnreachableError(RotaError):
    """No answer came: nothing listens there, or the connection broke again and again."""

    def __init__(self, url: str, cause: str, *, refused: bool = False) -> None:
        super().__init__(f"no answer from {url} ({cause})")
        self.url = url
        self.cause = cause
        self.refused = refused


class SilenceError(UnreachableError):
    """The connection stood, but nothing came over it in time."""


class AnswerError(RotaError):
    """The answer makes no sense: perhaps it is not a Rota server, or a very different version."""


class WaitTimeoutError(RotaError):
    """The jobs waited for did not end in time."""

    def __init__(self, job_ids: Sequence[str]) -> None:
        super().__init__(f"{len(job_ids)} of the jobs had not ended in time")
        self.job_ids = tuple(job_ids)


class JobFailed(RotaError):  # noqa: N818 - what happened, not what this program did wrong
    """A job whose result was waited for ended without one."""

    def __init__(self, job: JobView, log_tail: str = "") -> None:
        said = f": {words}" if (words := _error_text(job.error)) else ""
        super().__init__(f"job {job.name} {job.job_id} {job.status}{said}")
        self.job = job
        self.log_tail = log_tail
        """The last that it printed."""

    @property
    def error(self) -> Any:
        """What the job's record says of it, such as `{"type": …, "message": …}`."""
        return self.job.error

    @property
    def traceback(self) -> str:
        """Where a Python function raised; empty for other jobs."""
        told = self.job.error
        return str(told.get("traceback", "")) if isinstance(told, Mapping) else ""


def _error_text(error: Any) -> str:
    if isinstance(error, Mapping):
        kind, message = error.get("type"), error.get("message")
        return ": ".join(str(part) for part in (kind, message) if part)
    return "" if error is None else str(error)


class ApiError(RotaError):
    """The server said no, with a problem document; the subclass says which kind of no."""

    def __init__(self, problem: Problem, retry_after_s: float | None = None) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status

    @property
    def detail(self) -> str:
        """What went wrong, in words."""
        return self.problem.detail or self.problem.title

    @property
    def errors(self) -> Sequence[FieldError]:
        """What is wrong with which field."""
        return self.problem.errors


class InvalidError(ApiError):
    """The request is malformed, too large or makes no sense (400, 413, 422)."""


class UnauthenticatedError(ApiError):
    """No token, or one the server does not know (401)."""


class ForbiddenError(ApiError):
    """The token may not do this, or the call came by a way that is not allowed (403)."""


class NotFoundError(ApiError):
    """There is no such thing (404)."""


class ConflictError(ApiError):
    """Not as things stand: an illegal move, a stale execution, a reused key (409)."""


class LimitError(ApiError):
    """Too much at once, and waiting did not help (429)."""


class UnavailableError(ApiError):
    """It could not answer and waiting did not help (502, 503, 504), or its disk is full (507)."""


class ServerError(ApiError):
    """The server failed (any other 5xx): a bug worth a report."""
