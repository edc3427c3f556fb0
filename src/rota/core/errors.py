"""Refusals of the core, one tree. A refusal changes nothing; its `code` is stable."""

from __future__ import annotations

from collections.abc import Sequence


class Refusal(Exception):  # noqa: N818  (a refusal is an answer, not a failure of ours)
    """The base: what was asked cannot be done, and why."""

    code = "refused"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFound(Refusal):
    """There is no such thing."""

    code = "not_found"

    def __init__(self, kind: str, key: str, more: str = "") -> None:
        super().__init__(f"there is no {kind} {key}{more and f': {more}'}")
        self.kind = kind
        self.key = key


class IllegalTransition(Refusal):
    """The state machine has no such move."""

    code = "illegal_transition"

    def __init__(self, kind: str, key: str, state: str, verb: str) -> None:
        super().__init__(f"{kind} {key} is {state}: cannot {verb} it")
        self.state = state
        self.verb = verb


class Conflict(Refusal):
    """It would break a rule as things stand."""

    code = "conflict"


class StaleFence(Conflict):
    """The execution no longer holds its job."""

    code = "stale_execution"


class Superseded(Conflict):
    """A newer registration speaks for this worker."""

    code = "superseded"


class KeyReused(Conflict):
    """The idempotency key was used for another request."""

    code = "idempotency_key_reused"


class AlreadyAccepted(KeyReused):
    """The same request was accepted under other ids than were promised for this one."""

    def __init__(self, job_ids: tuple[str, ...]) -> None:
        named = ", ".join(job_ids[:3]) + (", …" if len(job_ids) > 3 else "")
        super().__init__(f"the same request was accepted before, as {named}")


class NoFreeCapacity(Conflict):
    """The worker named cannot take the job now."""

    code = "no_room"


class StalePreload(Refusal):
    """What was read from the tables has changed since: read again, and ask again."""

    code = "stale_recall"


class Invalid(Refusal):
    """The request makes no sense; `field` says where."""

    code = "invalid"

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.field = field


class UnknownDependency(Invalid):
    """A dependency names a job that does not exist."""

    code = "unknown_dependency"


class DependencyCycle(Invalid):
    """Jobs that wait for each other in a circle."""

    code = "dependency_cycle"

    def __init__(self, path: Sequence[str], field: str = "dependencies") -> None:
        super().__init__("dependencies form a cycle: " + " -> ".join(path), field)
        self.path = tuple(path)


class TooMuch(Refusal):
    """Over a limit that time or less work will lift."""

    code = "too_much"


class OverQuota(TooMuch):
    """As many jobs wait as may."""

    code = "over_quota"
