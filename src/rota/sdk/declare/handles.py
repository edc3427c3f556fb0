"""Handles of submitted jobs: status, result, logs and cancel, without passing ids to a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from rota.sdk.calls import JobLike
from rota.wire.jobs import JobView, Status

R_co = TypeVar("R_co", covariant=True)


class Port(Protocol):
    """Target of submissions and queries: a server's client, or inline runs in this process."""

    def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView: ...

    def submit_in(self, conn: Any, job: JobLike) -> str:
        """Submits a job inside the transaction of a connection; returns its id."""
        ...

    def submit_many(
        self,
        jobs: Iterable[JobLike],
        *,
        on_progress: Callable[[int], None] | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Submits many jobs; returns their ids in the order given."""
        ...

    def job(self, job_id: str) -> JobView: ...

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView: ...

    def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Waits for the result; raises JobFailed."""
        ...

    def cancel(self, job_id: str) -> JobView: ...

    def logs(self, job_id: str) -> bytes:
        """Returns the log so far."""
        ...

    def follow_logs(self, job_id: str) -> Iterator[bytes]:
        """Yields the log until the job has ended."""
        ...


class AsyncPort(Protocol):
    """Target of submissions and queries, for asyncio."""

    async def submit(self, job: JobLike, *, idempotency_key: str | None = None) -> JobView: ...

    async def submit_in(self, conn: Any, job: JobLike) -> str:
        """Submits a job inside the transaction of a connection; returns its id."""
        ...

    async def job(self, job_id: str) -> JobView: ...

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView: ...

    async def result(self, job_id: str, *, timeout_s: float | None = None) -> Any:
        """Waits for the result; raises JobFailed."""
        ...

    async def cancel(self, job_id: str) -> JobView: ...

    async def logs(self, job_id: str) -> bytes:
        """Returns the log so far."""
        ...

    def follow_logs(self, job_id: str) -> AsyncIterator[bytes]:
        """Yields the log until the job has ended."""
        ...


class Handle(Generic[R_co]):
    """Handle of a submitted job, by its id."""

    def __init__(self, job_id: str, read: Callable[[Any], R_co]) -> None:
        self._id = job_id
        self._read = read

    @property
    def id(self) -> str:
        return self._id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._id}>"


class Job(Handle[R_co]):
    """Handle of a submitted job."""

    def __init__(self, job_id: str, port: Port, read: Callable[[Any], R_co]) -> None:
        super().__init__(job_id, read)
        self._port = port

    def view(self) -> JobView:
        """Reads the whole job."""
        return self._port.job(self.id)

    def status(self) -> Status:
        return self.view().status

    def wait(self, *, timeout_s: float | None = None) -> JobView:
        """Waits until the job has ended, with or without success; raises WaitTimeoutError."""
        return self._port.wait(self.id, timeout_s=timeout_s)

    def result(self, *, timeout_s: float | None = None) -> R_co:
        """Waits for the function's result; raises JobFailed if there is none."""
        return self._read(self._port.result(self.id, timeout_s=timeout_s))

    def cancel(self) -> JobView:
        """Stops the job, or prevents its start."""
        return self._port.cancel(self.id)

    def logs(self) -> str:
        """Returns the log so far."""
        return self._port.logs(self.id).decode("utf-8", "replace")

    def follow_logs(self) -> Iterator[bytes]:
        """Yields the log, also what is still to come, until the job has ended."""
        return self._port.follow_logs(self.id)


class AsyncJob(Handle[R_co]):
    """Handle of a submitted job, for asyncio; `await job` is `await job.result()`."""

    def __init__(self, job_id: str, port: AsyncPort, read: Callable[[Any], R_co]) -> None:
        super().__init__(job_id, read)
        self._port = port

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.result().__await__()

    async def view(self) -> JobView:
        """Reads the whole job."""
        return await self._port.job(self.id)

    async def status(self) -> Status:
        return (await self.view()).status

    async def wait(self, *, timeout_s: float | None = None) -> JobView:
        """Waits until the job has ended, with or without success; raises WaitTimeoutError."""
        return await self._port.wait(self.id, timeout_s=timeout_s)

    async def result(self, *, timeout_s: float | None = None) -> R_co:
        """Waits for the function's result; raises JobFailed if there is none."""
        return self._read(await self._port.result(self.id, timeout_s=timeout_s))

    async def cancel(self) -> JobView:
        """Stops the job, or prevents its start."""
        return await self._port.cancel(self.id)

    async def logs(self) -> str:
        """Returns the log so far."""
        return (await self._port.logs(self.id)).decode("utf-8", "replace")

    def follow_logs(self) -> AsyncIterator[bytes]:
        """Yields the log, also what is still to come, until the job has ended."""
        return self._port.follow_logs(self.id)
