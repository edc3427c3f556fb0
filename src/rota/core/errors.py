"""Refusals of the core, one tree. A refusal changes nothing; its `code` is stable."""

from __future__ import annotations

from collections.abc import Sequence


class Refusal(Exception):  # noqa: N818  (a refusal is an answer, not a failure of ours)
    """Base class: refusal of a command, with the reason for the caller."""

    code = "refused"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFound(Refusal):
    code = "not_found"

    def __init__(self, kind: str, key: str, more: str = "") -> None:
        super().__init__(f"there is no {kind} {key}{more and f': {more}'}")
        self.kind = kind
        self.key = key


class IllegalTransition(Refusal):
    """Refuses a transition that the state machine does not have."""

    code = "illegal_transition"

    def __init__(self, kind: str, key: str, state: str, verb: str) -> None:
        super().__init__(f"{kind} {key} is {state}: cannot {verb} it")
        self.state = state
        self.verb = verb


class Conflict(Refusal):
    """Refuses a command that the current state does not allow."""

    code = "conflict"


class StaleFence(Conflict):
    """Refuses a report of an execution whose lease and fence are no longer its job's."""

    code = "stale_execution"


class Superseded(Conflict):
    """Refuses a worker's request because a newer registration has replaced its own."""

    code = "superseded"


class KeyReused(Conflict):
    """Refuses an idempotency key that was used for another request."""

    code = "idempotency_key_reused"


class AlreadyAccepted(KeyReused):
    """Refuses a submission that was accepted before, under other ids than it has now."""

    def __init__(self, job_ids: tuple[str, ...]) -> None:
        named = ", ".join(job_ids[:3]) + (", …" if len(job_ids) > 3 else "")
        super().__init__(f"the same request was accepted before, as {named}")


class NoFreeCapacity(Conflict):
    """Refuses to start a job on a given worker that has not enough free capacity for it."""

    code = "no_room"


class StalePreload(Refusal):
    """Refuses a command whose preloaded records have changed since: read them and send it again."""

    code = "stale_recall"


class Invalid(Refusal):
    """Refuses a request that makes no sense; `field` is the part that is wrong."""

    code = "invalid"

    def __init__(self, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.field = field


class UnknownDependency(Invalid):
    """Refuses a dependency on a job that does not exist."""

    code = "unknown_dependency"


class DependencyCycle(Invalid):
    """Refuses jobs that depend on each other in a cycle."""

    code = "dependency_cycle"

    def __init__(self, path: Sequence[str], field: str = "dependencies") -> None:
        super().__init__("dependencies form a cycle: " + " -> ".join(path), field)
        self.path = tuple(path)


class TooMuch(Refusal):
    """Refuses what exceeds a limit for now: later, or with less work, it may succeed."""

    code = "too_much"


class OverQuota(TooMuch):
    """Refuses a submission because the tenant has as many waiting jobs as its quota allows."""

    code = "over_quota"
