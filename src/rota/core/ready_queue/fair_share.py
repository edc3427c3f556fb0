"""Fair share: tenants by the part of the fleet they used, then their queues; or round robin.

The tenant that has used the least for its weight goes first; inside a tenant the same holds between
its queues. A start is charged with its dominant share times its expected length, and its end
corrects that. Usage decays (forward decay): new charges grow by 2 for each half-life. An account
that begins to wait starts no lower than the first one, without what that one was charged and has
not used yet. Accounts are in a sorted list of blocks with masks of classes, so the first with a job
of some classes is found fast.

Why: docs/decisions/0015-fair-share-by-accounts.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from rota.core.deadlines import urgent_since
from rota.core.entries import InternPool, QueueEntry
from rota.core.limits import QUEUES_KEPT, RUNTIME_GUESS_MS, SORT_KEYS_POOL_MAX
from rota.core.model import Instant, Millis, Resources, Spec
from rota.core.policy import OrderKind, Policy
from rota.core.ready_queue.classes import (
    EVERY_CLASS,
    Account,
    ChargedTime,
    ClassQueue,
    FindHead,
    JobClass,
)
from rota.core.ready_queue.merge_queue import power_of_four_below, rounded_length
from rota.core.resources import amounts

RANKED_BLOCK_MAX = 64
"""Entries in a block before it is split: about the root of the largest number expected."""


class Ranked(Protocol):
    """Item of a `MaskedSortedList`."""

    level: int
    """Priority, negative: the lowest goes first."""
    weighted_usage: float
    """On the same level, the item with the least goes first."""
    rank: int
    """Number that breaks ties."""
    ready: int
    """Bits of the classes with jobs that may start."""


S = TypeVar("S", bound=Ranked)
RankedEntry: TypeAlias = tuple[int, float, int, S]


class _RankedBlock(Generic[S]):
    __slots__ = ("entries", "mask")

    def __init__(self, entries: list[RankedEntry[S]]) -> None:
        self.entries = entries
        self.mask = 0
        self.repair()

    def repair(self) -> None:
        mask = 0
        for _, _, _, item in self.entries:
            mask |= item.ready
        self.mask = mask


class MaskedSortedList(Generic[S]):
    """Sorted list of items with a mask of classes each, in blocks with the masks of their items."""

    __slots__ = ("_block_max", "_blocks", "_heads", "lone")

    def __init__(self, block_max: int = RANKED_BLOCK_MAX) -> None:
        self._block_max = block_max
        self.lone: S | None = None
        """The only item, if there is just one. Its key may be stale: it is not compared."""
        self._blocks: list[_RankedBlock[S]] = []
        self._heads: list[RankedEntry[S]] = []
        """First entry of each block."""

    def first(self, mask: int) -> S | None:
        """First item that has any of these classes ready."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, item in block.entries:
                    if item.ready & mask:
                        return item
                block.repair()
        return None

    def only(self, mask: int) -> S | None:
        """Item that alone has any of these classes ready; None: there are more, or none."""
        only: S | None = None
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, item in block.entries:
                    if item.ready & mask:
                        if only is not None:
                            return None
                        only = item
        return only

    def all_with(self, mask: int) -> Iterator[S]:
        """Items that have any of these classes ready, in order; none may move meanwhile."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, item in block.entries:
                    if item.ready & mask:
                        yield item

    def before(self, item: S) -> list[S]:
        """Items before this one."""
        found: list[S] = []
        for block in self._blocks:
            for _, _, rank, other in block.entries:
                if rank == item.rank:
                    return found
                found.append(other)
        return found

    def insert(self, item: S) -> None:
        entry = (item.level, item.weighted_usage, item.rank, item)
        if not self._blocks:
            self.lone = item
            self._blocks.append(_RankedBlock([entry]))
            self._heads.append(entry)
            return
        self._look_at_lone()
        self.lone = None
        at = self._find(entry)
        block = self._blocks[at]
        insort(block.entries, entry)
        self._heads[at] = block.entries[0]
        block.mask |= item.ready
        if len(block.entries) > 2 * self._block_max:
            rear = block.entries[self._block_max :]
            del block.entries[self._block_max :]
            block.repair()
            self._blocks.insert(at + 1, _RankedBlock(rear))
            self._heads.insert(at + 1, rear[0])

    def remove(self, item: S) -> None:
        self._look_at_lone()
        entry = (item.level, item.weighted_usage, item.rank, item)
        at = self._find(entry)
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, entry)]
        if entries:
            self._heads[at] = entries[0]
        else:
            del self._blocks[at], self._heads[at]
        is_lone = len(self._blocks) == 1 and len(self._blocks[0].entries) == 1
        self.lone = self._heads[0][3] if is_lone else None

    def move(self, item: S, usage: float) -> None:
        """Moves an item by its new `weighted_usage`."""
        if self.lone is not None:
            item.weighted_usage = usage
            return
        # Most items stay in their block, and this runs for every start and every end.
        level, rank, heads = item.level, item.rank, self._heads
        before, after = (level, item.weighted_usage, rank, item), (level, usage, rank, item)
        at = 0
        if len(heads) > 1:
            at = self._find(before)
            if at != self._find(after):
                self.remove(item)
                item.weighted_usage = usage
                self.insert(item)
                return
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, before)]
        insort(entries, after)
        item.weighted_usage = usage
        heads[at] = entries[0]

    def _look_at_lone(self) -> None:
        """Corrects the entry of the only item, before it is compared with another."""
        item = self.lone
        if item is not None:
            entry = (item.level, item.weighted_usage, item.rank, item)
            self._blocks[0].entries[0] = self._heads[0] = entry

    def widen(self, item: S) -> None:
        """Updates the masks for an item that has more classes ready than before."""
        block = self._blocks[self._find((item.level, item.weighted_usage, item.rank, item))]
        block.mask |= item.ready

    def _find(self, entry: RankedEntry[S]) -> int:
        """Index of the block that the entry is in, or would be."""
        heads = self._heads
        return 0 if len(heads) == 1 else (bisect_right(heads, entry) or 1) - 1


def dominant_share(needs: Resources, fleet: Resources) -> float:
    """Dominant share: the largest of the parts that are taken of each resource of the fleet."""
    there = dict(amounts(fleet))
    parts = (
        amount / there[kind] if there.get(kind) else 1.0
        for kind, amount in amounts(needs)
        if amount > 0
    )
    return min(1.0, max(parts, default=0.0))


def share_of(job_class: JobClass, fleet: Resources) -> float:
    """Dominant share of one job of a class, cached until the fleet changes."""
    if job_class.share_of_capacity is not fleet:
        job_class.share_of_capacity = fleet
        job_class.share = dominant_share(job_class.needs.resources, fleet)
    return job_class.share


RESET_HALF_LIVES = 500
"""Half-lives after which charges approach the largest number that a float can hold."""
HALF_LIVES_MAX = 1_000
"""Half-lives that a float can hold; only a clock that is far off gets there."""
LENGTH_ALONE = 1e6
"""Weight of the length from which only length counts in a sort key, every millisecond of it; only
spilled jobs of one FIFO group still go by arrival."""


Balance: TypeAlias = tuple[str, str, float]
"""(tenant, queue or "", usage divided by weight)."""


class FairAccount(Account):
    """Account with its usage; usage is compared after division by the account's weight."""

    __slots__ = ("level", "prepaid", "rank", "rate", "used", "weight", "weighted_usage")

    def __init__(self, rank: int, weight: float) -> None:
        super().__init__()
        self.rank = rank
        self.weight = weight
        self.level = 0
        """Minus the queue's priority, which is compared before usage."""
        self.weighted_usage = 0.0
        """Charged usage, divided by the weight."""
        self.used = 0.0
        """Charged usage, less what was never used: for users."""
        self.rate = 0.0
        """Charge of all running jobs per millisecond."""
        self.prepaid = 0.0
        """Sum of rate times charged end of all running jobs."""

    def net_usage(self, now: Instant) -> float:
        """Usage divided by weight, without what is charged for the future."""
        return self.weighted_usage - max(0.0, self.prepaid - self.rate * now) / self.weight


class TenantQueueAccount(FairAccount):
    """Account of a tenant's jobs in one queue."""

    __slots__ = ("tenant",)

    def __init__(self, rank: int, tenant_account: TenantAccount, queue: QueueEntry) -> None:
        super().__init__(rank, queue.queue.weight)
        self.tenant = tenant_account
        self.level = -queue.queue.priority


class TenantAccount(FairAccount):
    """Account of a tenant; its class queues are those of its queue accounts."""

    __slots__ = ("floor", "queue_accounts", "waiting_queues")

    def __init__(self, rank: int, weight: float) -> None:
        super().__init__(rank, weight)
        self.waiting_queues: MaskedSortedList[TenantQueueAccount] = MaskedSortedList()
        self.queue_accounts: dict[str, TenantQueueAccount] = {}
        self.floor = 0.0


class FairOrder:
    """Fair order: tenants by their usage, then queues by theirs, then the sort key of each job."""

    def __init__(
        self,
        policy: Policy,
        now: Instant,
        weight_of: Callable[[str], float],
        used: Mapping[str, float],
        queues_kept: int = QUEUES_KEPT,
    ) -> None:
        self._queues_kept = queues_kept
        self._policy = policy
        self._since = now
        self._in_turn = policy.order is OrderKind.ROUND_ROBIN
        self._length_alone = policy.beta >= LENGTH_ALONE
        self._usual_delay = self._delay(RUNTIME_GUESS_MS)
        self._sort_keys: InternPool[int] = InternPool(SORT_KEYS_POOL_MAX)
        self._weight_of = weight_of
        self._tenants: dict[str, TenantAccount] = {}
        self._waiting: MaskedSortedList[TenantAccount] = MaskedSortedList()
        self._floor = 0.0
        self._now = now
        self._scale = 1.0
        self._scaled_at: Instant | None = None
        """When `_scale` was computed: many charges are made in one turn."""
        self._ranks = 0
        for tenant, amount in used.items():
            tenant_account = self.tenant_account(tenant)
            tenant_account.used = amount
            tenant_account.weighted_usage = amount / tenant_account.weight

    def tenant_account(self, tenant: str) -> TenantAccount:
        """Account of the tenant, created on first use."""
        account = self._tenants.get(tenant)
        if account is None:
            self._ranks += 1
            account = self._tenants[tenant] = TenantAccount(self._ranks, self._weight_of(tenant))
        return account

    def sort_key(self, spec: Spec) -> int:
        """Time since when the job waits; later for a long job, earlier for an urgent one."""
        policy, terms = self._policy, spec.terms
        since = spec.created_at if spec.run_at is None else max(spec.created_at, spec.run_at)
        # Learned run times do not count here, because a sort key must not change.
        length = spec.graph_ms or terms.expected_runtime_ms
        since += self._delay(length) if length else self._usual_delay
        if spec.finish_by is not None:
            since = min(since, urgent_since(spec))
        return self._sort_keys.same(since - policy.priority_ms * terms.priority)

    def _delay(self, length: Millis) -> Millis:
        """How much a job of this length is sorted later."""
        if not self._length_alone:
            length = rounded_length(length)
        return int(self._policy.beta * min(length, self._policy.length_cap_ms))

    def rank(self, queue: QueueEntry) -> int:
        """0: an account has one queue only."""
        return 0

    def coarse_length(self, length: Millis) -> Millis:
        """Rounds down to a power of four: for backfill, a little shorter is no advantage."""
        return length if self._length_alone else power_of_four_below(length)

    def account(self, tenant: str, queue: QueueEntry) -> TenantQueueAccount:
        """Account of the tenant's jobs in the queue."""
        tenant_account = self._tenants.get(tenant) or self.tenant_account(tenant)
        queue_account = tenant_account.queue_accounts.get(queue.queue.name)
        if queue_account is None:
            if len(tenant_account.queue_accounts) >= self._queues_kept:
                tenant_account.queue_accounts = {
                    name: one
                    for name, one in tenant_account.queue_accounts.items()
                    if one.class_queues
                }
            self._ranks += 1
            queue_account = tenant_account.queue_accounts[queue.queue.name] = TenantQueueAccount(
                self._ranks, tenant_account, queue
            )
            queue_account.allowed = tenant_account.allowed
        return queue_account

    # Accounts that wait

    def add_class(self, account: Account, bit: int, now: Instant) -> None:
        """Notes the class; an account that had no job to start is sorted in."""
        assert isinstance(account, TenantQueueAccount)
        account.waiting |= bit
        self._now = max(self._now, now)
        if account.allowed & bit:
            self._set_ready(account, account.ready | bit)

    def remove_class(self, account: Account, bit: int) -> None:
        """Forgets the class; an account without jobs to start is taken out."""
        assert isinstance(account, TenantQueueAccount)
        account.waiting &= ~bit
        if account.ready & bit:
            self._set_ready(account, account.ready & ~bit)

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Allows only these classes of the tenant."""
        self._now = now
        tenant_account = self.tenant_account(tenant)
        tenant_account.allowed = bits
        for queue_account in tenant_account.queue_accounts.values():
            queue_account.allowed = bits
            if queue_account.ready != queue_account.waiting & bits:
                self._set_ready(queue_account, queue_account.waiting & bits)

    def _set_ready(self, queue_account: TenantQueueAccount, bits: int) -> None:
        """Sets the ready classes of a queue account, and of its tenant (a class has one queue)."""
        tenant_account, now = queue_account.tenant, self._now
        others = tenant_account.ready & ~queue_account.ready
        tenant_account.floor = _set_ready_classes(
            tenant_account.waiting_queues, queue_account, bits, (now, tenant_account.floor)
        )
        self._floor = _set_ready_classes(
            self._waiting, tenant_account, others | bits, (now, self._floor)
        )

    # Choice of the next job

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """First job of the queue with the least usage, of the tenant with the least usage."""
        tenant_account = self._waiting.lone or self._waiting.first(mask)
        queue_account = (
            None
            if tenant_account is None
            else tenant_account.waiting_queues.lone or tenant_account.waiting_queues.first(mask)
        )
        return None if queue_account is None else queue_account.first(mask, head)

    def only(self, mask: int) -> Account | None:
        """Account of the queue, if one tenant waits in one queue alone."""
        tenant_account = self._waiting.only(mask)
        return None if tenant_account is None else tenant_account.waiting_queues.only(mask)

    def in_turn(self, mask: int) -> Iterator[Sequence[Account]]:
        """Each queue of each tenant by itself."""
        lone = self._waiting.lone
        queue_account = None if lone is None else lone.waiting_queues.lone
        if queue_account is not None:
            if queue_account.ready & mask:
                yield (queue_account,)
            return
        for tenant_account in self._waiting.all_with(mask):
            for queue_account in tenant_account.waiting_queues.all_with(mask):
                yield (queue_account,)

    def ahead_of(self, tenant: str) -> int:
        """Number of waiting tenants that go before this one."""
        tenant_account = self._tenants.get(tenant)
        return (
            0
            if tenant_account is None or not tenant_account.ready
            else len(self._waiting.before(tenant_account))
        )

    def rival(self, tenant: str) -> str | None:
        """Tenant that goes first now, if it is another one."""
        first = self._waiting.first(EVERY_CLASS)
        names = (name for name, tenant_account in self._tenants.items() if tenant_account is first)
        name = next(names, None)
        return None if name == tenant else name

    # Charges

    def charge(self, account: Account, share: float, span: ChargedTime, count: int = 1) -> float:
        """Charges the expected run of each job, or one turn under round robin."""
        now, ends_at = span
        self._now = now
        scale = self._scale if now == self._scaled_at else self.scale(now)
        rate = 0.0 if self._in_turn else share * scale
        amount = 1.0 if self._in_turn else rate * (ends_at - now)
        self._charge(account, rate, rate * ends_at, amount, count)
        return rate

    def charge_more(self, account: Account, rate: float, by: Millis) -> None:
        if rate:
            self._charge(account, 0.0, rate * by, rate * by)

    def settle_charge(
        self, account: Account, rate: float, span: ChargedTime, count: int = 1
    ) -> None:
        """Gives back what was not used, or charges what was used beyond it."""
        if rate:
            now, ends_at = span
            self._charge(account, -rate, -rate * ends_at, rate * (now - ends_at), count)

    def _charge(
        self, account: Account, rate: float, prepaid: float, amount: float, count: int = 1
    ) -> None:
        """Adds a charge `count` times: sums in floats are then the same as for single charges."""
        queue_account: TenantQueueAccount = account  # type: ignore[assignment]  # all are
        tenant_account = queue_account.tenant
        usage, queue_usage = tenant_account.weighted_usage, queue_account.weighted_usage
        while True:
            tenant_account.used += amount
            tenant_account.rate += rate
            tenant_account.prepaid += prepaid
            queue_account.rate += rate
            queue_account.prepaid += prepaid
            usage += amount / tenant_account.weight
            queue_usage += amount / queue_account.weight
            if count <= 1:
                break
            count -= 1
        if tenant_account.ready and self._waiting.lone is None:
            self._waiting.move(tenant_account, usage)
        else:
            tenant_account.weighted_usage = usage
        if queue_account.ready and tenant_account.waiting_queues.lone is None:
            tenant_account.waiting_queues.move(queue_account, queue_usage)
        else:
            queue_account.weighted_usage = queue_usage

    def scale(self, now: Instant) -> float:
        """Factor by which a charge grew since the beginning, for decay."""
        if now != self._scaled_at:
            half_lives = (now - self._since) / self._policy.half_life_ms
            self._scale = (
                1.0
                if self._in_turn
                else 2.0 ** max(-HALF_LIVES_MAX, min(HALF_LIVES_MAX, half_lives))
            )
            self._scaled_at = now
        return self._scale

    def usage(self, tenant: str, now: Instant) -> float:
        """Usage of the tenant, decayed to now: dominant share of the fleet times milliseconds."""
        tenant_account = self._tenants.get(tenant)
        if tenant_account is None or self._in_turn:
            return 0.0
        until_now = tenant_account.used - max(
            0.0, tenant_account.prepaid - tenant_account.rate * now
        )
        return max(0.0, until_now) / self.scale(now)

    def balances(self, now: Instant) -> tuple[Balance, ...]:
        """Balances of all accounts, decayed to now, for a copy."""
        scale = self.scale(now)
        return tuple(
            (name, queue, account.weighted_usage / scale)
            for name, tenant_account in self._tenants.items()
            for queue, account in (("", tenant_account), *tenant_account.queue_accounts.items())
        )

    def restore_balances(self, standings: Sequence[Balance], now: Instant) -> None:
        """Restores balances; accounts may have waiting jobs already."""
        scale = self.scale(now)
        for name, queue, usage in standings:
            tenant_account = self.tenant_account(name)
            if not queue:
                _move(self._waiting, tenant_account, usage * scale)
            elif queue in tenant_account.queue_accounts:
                _move(
                    tenant_account.waiting_queues,
                    tenant_account.queue_accounts[queue],
                    usage * scale,
                )

    def needs_reset(self, now: Instant) -> bool:
        """Whether charges have become too large to be exact."""
        half_lives = (now - self._since) / self._policy.half_life_ms
        return not self._in_turn and half_lives > RESET_HALF_LIVES

    def follow_clock(self, by: Millis) -> None:
        """Follows a change of the system clock: charges stay what they were."""
        self._since += by
        self._now += by
        self._scaled_at = None
        for tenant_account in self._tenants.values():
            for account in (tenant_account, *tenant_account.queue_accounts.values()):
                account.prepaid += account.rate * by

    def update_queue(self, queue: QueueEntry) -> None:
        """Moves the queue's accounts to the position of its new priority and weight."""
        for tenant_account in self._tenants.values():
            queue_account = tenant_account.queue_accounts.get(queue.queue.name)
            if queue_account is None:
                continue
            queue_account.weight = queue.queue.weight
            if queue_account.ready:
                tenant_account.waiting_queues.remove(queue_account)
            queue_account.level = -queue.queue.priority
            if queue_account.ready:
                tenant_account.waiting_queues.insert(queue_account)


def _move(accounts: MaskedSortedList, account: FairAccount, usage: float) -> None:  # type: ignore[type-arg]
    if account.ready:
        accounts.move(account, usage)
    else:
        account.weighted_usage = usage


def _set_ready_classes(
    accounts: MaskedSortedList,  # type: ignore[type-arg]
    account: FairAccount,
    bits: int,
    at: tuple[Instant, float],
) -> float:
    """Sets an account's ready classes; returns the least usage at which the next one may start."""
    now, floor = at
    before, account.ready = account.ready, bits
    if bits and not before:
        first = accounts.first(EVERY_CLASS)
        start = floor if first is None else first.net_usage(now)
        account.weighted_usage = max(account.weighted_usage, start)
        accounts.insert(account)
    elif before and not bits:
        accounts.remove(account)
        floor = max(floor, account.net_usage(now))
    elif bits & ~before:
        accounts.widen(account)
    return floor
