"""Tenants: what each has waiting and running, and what its quota leaves room for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.core.limits import TENANTS_KEPT
from rota.core.model import ExecutionId, JobState, Quota, Resources, Tenant
from rota.core.order.party import EVERY_CLASS, JobClass
from rota.core.records.depth import Depth
from rota.core.records.glance import Cause
from rota.core.resources import minus, plus, total

_WAITING = (JobState.PENDING, JobState.QUEUED)
NO_QUOTA = Quota()


class TenantEntry:
    """A tenant, and what is derived of it."""

    __slots__ = ("depth", "held", "is_forgotten", "tenant", "used", "written_at")

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.depth = Depth()
        """Its live jobs by state, those on the shelf among them."""
        self.held: dict[ExecutionId, Resources] = {}
        self.used = Resources()
        """The sum of what is held; kept up to date only where there is a quota of it."""
        self.written_at = tenant.used_at
        self.is_forgotten = False
        """Whether there is another cell for the tenant now, or none."""

    @property
    def waiting(self) -> int:
        """Jobs that have not started."""
        depth = self.depth.by_state()
        return sum(depth.get(state, 0) for state in _WAITING)

    def hold(self, execution_id: ExecutionId, amount: Resources) -> None:
        """An execution of the tenant's takes this."""
        self.held[execution_id] = amount
        if self.tenant.quota is not None:
            self.used = plus(self.used, amount)

    def release(self, execution_id: ExecutionId) -> None:
        """It comes back: once, because what is not held cannot be given back."""
        amount = self.held.pop(execution_id, None)
        if amount is not None and self.tenant.quota is not None:
            self.used = minus(self.used, amount)

    def holds(self) -> Resources:
        """All that the tenant's executions take."""
        return self.used if self.tenant.quota is not None else total(self.held.values())

    def is_idle(self) -> bool:
        """Whether nothing would be forgotten with it."""
        tenant = self.tenant
        has_jobs = bool(self.depth.by_state())
        return not has_jobs and tenant.quota is None and tenant.weight == 1.0 and not tenant.used


class Tenants:
    """All tenants that have jobs or settings."""

    def __init__(self, most: int = TENANTS_KEPT) -> None:
        self._most = most
        self.entries: dict[str, TenantEntry] = {}
        self.limited_count = 0
        """How many of them have a quota that could hold running jobs back."""
        self.capped_count = 0
        """How many of them have one of what may wait."""

    def entry(self, name: str) -> TenantEntry:
        """The tenant, made on first use."""
        cell = self.entries.get(name)
        if cell is None:
            if len(self.entries) >= self._most:
                kept = {key: one for key, one in self.entries.items() if not one.is_idle()}
                for key, one in self.entries.items():
                    one.is_forgotten = key not in kept
                # In place: others hold on to the dict.
                self.entries.clear()
                self.entries.update(kept)
            cell = self.entries[name] = TenantEntry(Tenant(name))
        return cell

    def put(self, tenant: Tenant) -> TenantEntry:
        """Its settings are these."""
        cell = self.entry(tenant.name)
        self.limited_count -= has_quota(cell)
        self.capped_count -= _is_capped(cell)
        cell.tenant = tenant
        self.limited_count += has_quota(cell)
        self.capped_count += _is_capped(cell)
        cell.used = total(cell.held.values())
        return cell

    def weight_of(self, name: str) -> float:
        """How much of the fleet is the tenant's, against others."""
        cell = self.entries.get(name)
        return 1.0 if cell is None else cell.tenant.weight

    def is_plain(self, cell: TenantEntry) -> bool:
        """Whether it has no settings of its own."""
        return cell.tenant.quota is None and cell.tenant.weight == 1.0

    def count_set(self) -> int:
        """How many tenants have settings of their own."""
        return sum(1 for cell in self.entries.values() if not self.is_plain(cell))

    def limited(self) -> Iterator[TenantEntry]:
        """Those whose quota could hold running jobs back."""
        if not self.limited_count:
            return iter(())
        return (cell for cell in self.entries.values() if has_quota(cell))


def _is_capped(cell: TenantEntry) -> bool:
    quota = cell.tenant.quota
    return quota is not None and quota.queued is not None


def has_quota(cell: TenantEntry) -> bool:
    """Whether a quota could hold the tenant's jobs back once they are accepted."""
    quota = cell.tenant.quota
    return quota is not None and any(
        limit is not None for limit in (quota.running, quota.cpu_milli, quota.memory)
    )


def over_quota(cell: TenantEntry, need: Resources, starts: int = 1) -> Iterator[Cause]:
    """Every quota that a start of this size, or so many at once, would exceed now."""
    quota, name = cell.tenant.quota or NO_QUOTA, cell.tenant.name
    running = len(cell.held)
    if quota.running is not None and running + starts > quota.running:
        figures = {"tenant": name, "running": running, "quota": quota.running}
        text = f"tenant {name} runs {running} of at most {quota.running} executions"
        yield Cause("quota_running", text, figures)
    for kind, asked, used, limit in (
        ("cpu", starts * need.cpu_milli, cell.used.cpu_milli, quota.cpu_milli),
        ("memory", starts * need.memory, cell.used.memory, quota.memory),
    ):
        if limit is not None and asked and used + asked > limit:
            unit = 1000 if kind == "cpu" else 1
            figures = {
                "tenant": name,
                "used": used / unit,
                "asked": asked / unit,
                "quota": limit / unit,
            }
            text = f"tenant {name} uses {used / unit:g} {kind} of at most {limit / unit:g}"
            yield Cause(f"quota_{kind}", f"{text}, and it asks {asked / unit:g}", figures)


def allowed_classes(cell: TenantEntry, classes: Iterable[JobClass]) -> int:
    """Bits of the classes of which the tenant's quota leaves room for one more job.

    Classes that are not among these are left in; who makes one asks again.
    """
    if not has_quota(cell):
        return EVERY_CLASS
    mask = EVERY_CLASS
    for job_class in classes:
        needs = job_class.needs
        if next(over_quota(cell, needs.resources, needs.copies), None) is not None:
            mask &= ~job_class.bit
    return mask
