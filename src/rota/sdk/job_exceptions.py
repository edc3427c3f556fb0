"""Exceptions by which a job function tells its worker what to do next: fail, retry, cancelled."""

from __future__ import annotations


class Fail(Exception):  # noqa: N818 - reads as an instruction: `raise Fail("no such customer")`
    """The job has failed for good: it is not retried."""

    # A job's record names an exception by its module: by the one that programs import it from.
    __module__ = "rota"


class Retry(Exception):  # noqa: N818 - as above
    """The attempt has failed, and another follows after `delay`, or else after the job's own
    backoff.

    It uses up an attempt like any other failure.
    """

    __module__ = "rota"

    def __init__(self, message: str = "", *, delay: float | str | None = None) -> None:
        super().__init__(message)
        self.delay = delay
        """Seconds, or text such as "90s"; None: as the job's retry policy says."""


class Cancelled(BaseException):
    """The job must stop because it was cancelled.

    Not an `Exception`, like asyncio's own: code that catches all errors of a step and continues
    must not swallow it.
    """

    __module__ = "rota"
