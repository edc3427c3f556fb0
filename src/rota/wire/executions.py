"""Executions: one try of a job each."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.wire.jobs import Time
from rota.wire.limits import MESSAGE_CHARS_MAX
from rota.wire.units import Duration

NOTHING = msgspec.Raw(b"null")
"""What an execution leaves that says nothing: one object, which is known by itself."""


class CompletionSpec(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How an execution ended."""

    status: Literal["succeeded", "failed", "timed_out", "cancelled", "returned"]
    """`returned`: it has not begun, and will not on this worker; the try does not count."""
    fence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    result: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)
    error: msgspec.Raw = msgspec.field(default_factory=lambda: NOTHING)
    exit_code: Annotated[int, Meta(ge=-(2**31), le=2**31)] | None = None
    usage: dict[str, Any] | None = None
    retryable: bool = True
    retry_after: Duration | None = None
    """When to try again, instead of the job's own delay; of use where there is another try."""


class CompletedReport(CompletionSpec, kw_only=True, forbid_unknown_fields=True):
    """The same, carried by a `lease` call."""

    execution_id: str


class ProgressSpec(msgspec.Struct, forbid_unknown_fields=True):
    """How far an execution is."""

    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    message: Annotated[str, Meta(max_length=MESSAGE_CHARS_MAX)] | None = None
    fence: int | None = None


class ExecutionView(msgspec.Struct):
    """One try of a job."""

    execution_id: str
    job_id: str
    worker_id: str
    attempt: int
    fence: int
    status: Literal[
        "claimed",
        "running",
        "succeeded",
        "failed",
        "timed_out",
        "cancelled",
        "lost",
        "preempted",
    ]
    reason: str | None
    claimed_at: Time
    start_time: Time | None
    end_time: Time | None
    result: Any
    error: Any
    exit_code: int | None
    usage: Any
    artifacts: list[dict[str, Any]]
    memory: int = 0
    """Bytes of memory that the job asked for when this try began."""
    behind: str | None = None
    """The execution on the same worker whose place it waited for, prefetched."""


class ExecutionPage(msgspec.Struct):
    """A page of executions, newest first."""

    items: list[ExecutionView]
    next_cursor: str | None


class ArtifactView(msgspec.Struct):
    """An output file that was kept."""

    name: str
    size: int
    sha256: str | None = None
    """Null: it is small, and told when the file is fetched."""
