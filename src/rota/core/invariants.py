"""Invariants of the state, checked the slow and obvious way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.core.entries import NO_CLASS, GroupEntry, JobEntry, counted_state
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Array, ExecutionState, Gang, GroupMember, JobId, JobState, copies_of
from rota.core.ready_queue.classes import Account, JobClass
from rota.core.resources import NOTHING, fits, left_of, plus, total
from rota.core.state import SchedulerState

_RUNNING_STATES = (JobState.RUNNING, JobState.CANCELLING)


def depth_counts(t: SchedulerState, entry: JobEntry) -> Iterator[tuple[JobState, int]]:
    """States and counts that a live job adds to the depth of its queue and tenant."""
    if entry.id in t.groups.entries:
        yield counted_state(entry.life.state), t.groups.entries[entry.id].waiting
    else:
        yield entry.life.state, 1


def _check_groups(t: SchedulerState) -> None:
    assert not t.groups.due, "a member's end went unnoticed"
    assert not t.groups.changed, "a group's progress was not written"
    live: dict[JobId, dict[JobId, None]] = {job_id: {} for job_id in t.groups.entries}
    for job_id, entry in t.jobs.items():
        group = entry.spec.group
        if isinstance(group, GroupMember):
            live[JobId(group.parent)][job_id] = None
        assert (job_id in t.groups.entries) == isinstance(group, Array | Gang)
    assert t.groups.waiting == sum(one.waiting for one in t.groups.entries.values())
    for job_id, mine in t.groups.entries.items():
        assert mine.live == live[job_id], f"the members of {job_id} drifted"
        _check_group(t, t.jobs[job_id], mine)


def _check_group(t: SchedulerState, entry: JobEntry, mine: GroupEntry) -> None:
    group, runs = entry.spec.group, entry.life.state in _RUNNING_STATES
    running = sum(t.jobs[job_id].life.state in _RUNNING_STATES for job_id in mine.live)
    assert mine.running == running, f"{entry.id} counts {mine.running} of {running} running"
    assert mine.size == copies_of(group)
    members = mine.ended + mine.waiting + len(mine.live)
    assert members == mine.size, f"{entry.id} has {members} members of {mine.size}"
    assert bool(mine.live) <= runs, f"{entry.id} is {entry.life.state} and has members"
    if isinstance(group, Array):
        limit = group.max_parallel
        assert limit is None or len(mine.live) <= max(limit, mine.running), "too many at once"
        wants = limit is None or len(mine.live) < limit
        if entry.life.state is JobState.RUNNING and mine.waiting and wants:
            queued = entry.class_index != NO_CLASS or t.concurrency_keys.waits(entry)
            assert queued, f"array {entry.id} has members to start and is in no queue"
    elif runs and entry.life.state is JobState.RUNNING and not mine.cause:
        started = len(mine.live) + mine.succeeded
        assert started == mine.size, f"gang {entry.id} runs with {started} of {mine.size}"


LIVE = (ExecutionState.CLAIMED, ExecutionState.RUNNING)


def check_invariants(t: SchedulerState) -> None:
    """Raises AssertionError if the state is inconsistent."""
    _check_jobs(t)
    _check_executions(t)
    _check_workers(t)
    _check_free_capacity(t)
    _check_prefetched(t)
    _check_queues(t)
    _check_keys(t)
    _check_class_queues(t)
    _check_work(t)
    _check_spill_queues(t)
    _check_depth(t)
    _check_schedules(t)
    _check_triggers(t)
    _check_tenants(t)
    _check_groups(t)


def _check_jobs(t: SchedulerState) -> None:
    for job_id, entry in t.jobs.items():
        state = entry.life.state
        assert state not in JOB_FINAL, f"ended job {job_id} is still in memory"
        held = entry.life.execution_id in t.executions if entry.life.execution_id else False
        runs = state in (JobState.RUNNING, JobState.CANCELLING) and entry.id not in t.groups.entries
        assert runs == held, f"job {job_id} is {state}, but its execution is live: {held}"
        upstream = sum(1 for d in entry.spec.dependencies if d.job_id in t.jobs)
        if state is JobState.QUEUED:
            assert not entry.unmet, f"queued job {job_id} waits for {entry.unmet} others"
        if state in (JobState.PENDING, JobState.QUEUED):
            assert entry.unmet <= upstream, f"job {job_id} counts {entry.unmet} of {upstream}"
        if runs:
            assert entry.class_index == NO_CLASS, f"running job {job_id} is in a queue"


def _check_executions(t: SchedulerState) -> None:
    jobs: dict[str, str] = {}
    for execution_id, entry in t.executions.items():
        execution = entry.execution
        assert execution.state in LIVE, f"ended execution {execution_id} is in memory"
        other = jobs.setdefault(execution.job_id, execution_id)
        assert other == execution_id, f"job {execution.job_id} has two executions"
        assert t.jobs[execution.job_id].life.fence == execution.fence, "a stale fence is live"
        held = t.fleet.workers[execution.worker_id].held
        assert execution_id in held, f"execution {execution_id} is not held by its worker"


def _check_workers(t: SchedulerState) -> None:
    for worker_id, entry in t.fleet.workers.items():
        ends = sorted((t.executions[i].ends_at, i) for i in entry.held)
        assert entry.ends == ends, f"the ends of {worker_id} drifted"
        free, later = entry.free, {}
        for at, execution_id in ends:
            free = later[at] = plus(free, entry.held[execution_id])
        assert entry.expected_free() == list(later.items()), f"free of {worker_id} drifted"
        left = left_of(entry.worker.capacity, entry.held.values())
        assert entry.free == left, f"free capacity of {worker_id} drifted"
        wanted = {i: t.jobs[t.executions[i].execution.job_id] for i in entry.held}
        for execution_id, job in wanted.items():
            is_prefetched = entry.is_prefetched(t.executions[execution_id].execution)
            needs = NOTHING if is_prefetched else job.spec.terms.needs.resources
            assert entry.held[execution_id] == needs, f"{execution_id} holds another amount"
        if entry.poll is None:
            assert worker_id not in t.fleet.open, f"{worker_id} is open without a poll"
        assert all(i in entry.held for i in entry.stops), "a stop of an execution that is not held"
        runs = [i for i in entry.held if t.executions[i].execution.state is ExecutionState.RUNNING]
        assert sorted(entry.named) == sorted(runs), f"executions named by {worker_id} drifted"


def _check_free_capacity(t: SchedulerState) -> None:
    """Placement needs every open worker with free capacity listed, with a complete mask."""
    fleet, index = t.fleet, t.fleet.free_index
    count = sum(len(workers) for workers in index.by_free_capacity.values())
    assert count == len(index.by_id), "a worker is listed twice"
    for worker_id, (rank, entry, free) in index.by_id.items():
        assert fleet.open.get(worker_id) is entry, f"{worker_id} is listed and is not open"
        assert entry.free_capacity is free, f"{worker_id} is listed with other free capacity"
        assert (rank, entry, free) in index.by_free_capacity[free], f"{worker_id} is misplaced"
        assert free.classes_made >= fleet.fitted, f"the mask of {worker_id} is not complete"


def _check_prefetched(t: SchedulerState) -> None:
    for worker_id, entry in t.fleet.workers.items():
        for before, (prefetched_id, amount) in entry.prefetched.items():
            assert before in entry.held, f"{prefetched_id} is behind {before}, which has ended"
            execution = t.executions[prefetched_id].execution
            where = (execution.worker_id, execution.behind)
            assert where == (worker_id, before), f"{prefetched_id} is misplaced"
            claimed = execution.state is ExecutionState.CLAIMED
            assert claimed, f"prefetched {prefetched_id} is {execution.state}"
            needs = t.jobs[execution.job_id].spec.terms.needs.resources
            assert amount == needs, f"{prefetched_id} is to take over another amount"
        waiting = [prefetched_id for prefetched_id, _ in entry.prefetched.values()]
        behind = [i for i in entry.held if t.executions[i].execution.behind in entry.held]
        assert sorted(waiting) == sorted(behind), f"prefetched executions of {worker_id} drifted"
    for worker_id in t.fleet.spare:
        poll = t.fleet.workers[worker_id].poll
        assert poll is not None, f"{worker_id} prefetches without a poll"
        assert poll.spare > 0, f"{worker_id} wants nothing prefetched"


def check_capacity(t: SchedulerState) -> None:
    """No worker holds more than it has; true as long as none registers again with less."""
    for worker_id, entry in t.fleet.workers.items():
        used = total(entry.held.values())
        assert fits(used, entry.worker.capacity), f"{worker_id} is over capacity"


def _check_queues(t: SchedulerState) -> None:
    running: dict[str, list[str]] = {name: [] for name in t.queues}
    for execution_id, entry in t.executions.items():
        running[t.jobs[entry.execution.job_id].spec.terms.queue].append(execution_id)
    for name, queue in t.queues.items():
        runs = running[name]
        assert queue.running == len(runs), f"running of queue {name} drifted"
        if queue.queue.max_workers is None:
            runs = []
        assert list(queue.runs) == runs, f"executions of queue {name} drifted"


def _check_keys(t: SchedulerState) -> None:
    for key, group in t.concurrency_keys.groups.items():
        assert group.holders or group.waiting, f"unused concurrency key {key}"
        for job_id in group.holders:
            job = t.jobs[job_id]
            assert job.life.state is not JobState.PENDING, f"pending job {job_id} holds a slot"
        queued = dict.fromkeys(group.queue)
        for job_id in group.waiting:
            job = t.jobs[job_id]
            assert job.order_key() in queued, f"{job_id} waits for its key and is not in its queue"
            waits = job.life.state is JobState.QUEUED or job_id in t.groups.entries
            assert waits, f"{job_id} waits for its key and is {job.life.state}"
            assert job.class_index == NO_CLASS, f"{job_id} is in two queues"


def _check_class_queues(t: SchedulerState) -> None:
    waiting: dict[int, int] = {}
    accounts: dict[int, Account] = {}
    for job_id, entry in t.jobs.items():
        if entry.class_index != NO_CLASS:
            waiting[entry.class_index] = waiting.get(entry.class_index, 0) + 1
            job_class = t.ready_queue.classes[entry.class_index]
            assert job_class.needs == entry.spec.terms.needs, f"{job_id} is in a wrong class"
            assert job_class.queue.queue.name == entry.spec.terms.queue
        elif entry.life.state is JobState.QUEUED:
            group = t.concurrency_keys.group_of(entry)
            assert group is not None, f"queued job {job_id} is in no queue"
            assert job_id in group.waiting, f"queued job {job_id} is in no queue"
    for job_class in t.ready_queue.classes:
        assert job_class.waiting == waiting.get(job_class.index, 0), "a class's length drifted"
        is_ready = bool(job_class.waiting or job_class.spilled)
        assert bool(t.ready_queue.ready & job_class.bit) == is_ready
        for account in _check_accounts(t, job_class):
            accounts[id(account)] = account
        groups = job_class.fifo_groups.values()
        assert job_class.waiting == sum(group.in_memory for group in groups), "a group drifted"
        assert job_class.spilled == sum(group.spilled for group in groups), "a group drifted"
    for account in accounts.values():
        assert account.ready == account.waiting & account.allowed, "an account's quota drifted"
        assert list(account.heads) == sorted(account.heads), "an account's heads are out of order"
        assert len(account.heads) == len(account.class_queues), "a queue has no head, or two"


def _check_work(t: SchedulerState) -> None:
    work: dict[int, int] = {}
    for entry in t.jobs.values():
        if entry.class_index != NO_CLASS:
            work[entry.queue_number] = work.get(entry.queue_number, 0) + entry.estimate
    for job_class in t.ready_queue.classes:
        for number, class_queue in job_class.class_queues.items():
            assert class_queue.work == work.get(number, 0), "the work of a class queue drifted"


def _check_accounts(t: SchedulerState, job_class: JobClass) -> Iterable[Account]:
    """Checks a class against its queues in all accounts, and returns the accounts."""
    accounts = {
        id(account): account
        for tenant in t.tenants.entries
        for account in (t.ready_queue.order.account(tenant, job_class.queue),)
    }
    queues = [
        account.class_queues[job_class.index]
        for account in accounts.values()
        if job_class.index in account.class_queues
    ]
    assert job_class.waiting == sum(queue.waiting for queue in queues), "a queue's length drifted"
    assert job_class.spilled == sum(queue.spilled for queue in queues), "a queue's length drifted"
    for account in accounts.values():
        has = job_class.index in account.class_queues
        assert bool(account.waiting & job_class.bit) == has, "an account's bits drifted"
    for queue in queues:
        assert queue.head_entry is not None, "a class queue has no head entry"
        assert queue.head_entry[1] <= t.ready_queue.head(queue), "a head entry is behind its head"
    return accounts.values()


def _check_tenants(t: SchedulerState) -> None:
    depth: dict[tuple[str, JobState], int] = {}
    for entry in t.jobs.values():
        for state, count in depth_counts(t, entry):
            key = (entry.spec.terms.tenant, state)
            depth[key] = depth.get(key, 0) + count
    for fifo_group in t.ready_queue.by_spill_queue.values():
        key = (fifo_group.key[0], JobState.QUEUED)
        depth[key] = depth.get(key, 0) + fifo_group.spilled
    for name, tenant in t.tenants.entries.items():
        counted = tenant.depth.by_state()
        for state in JobState:
            there = depth.get((name, state), 0)
            assert counted.get(state, 0) == there, f"depth of tenant {name} {state} drifted"
        mine = [
            i
            for i, x in t.executions.items()
            if t.jobs[x.execution.job_id].spec.terms.tenant == name
        ]
        assert sorted(tenant.held) == sorted(mine), f"executions of tenant {name} drifted"
        if tenant.tenant.quota is not None:
            assert tenant.used == total(tenant.held.values()), f"usage of {name} drifted"


def _check_spill_queues(t: SchedulerState) -> None:
    spilled_groups = 0
    for job_class in t.ready_queue.classes:
        for key, fifo_group in job_class.fifo_groups.items():
            assert fifo_group.in_memory or fifo_group.spilled, f"empty FIFO group {key}"
            assert (fifo_group.class_index, fifo_group.key) == (job_class.index, key)
            if fifo_group.spilled:
                spilled_groups += 1
                found = t.ready_queue.by_spill_queue.get(fifo_group.spill_queue)
                assert found is fifo_group, f"the spill queue of {key} is not found"
                keys = list(t.ready_queue.queue_of_group(fifo_group).jobs)
                assert fifo_group.spill_marker in keys, f"{key} has no spill marker"
    assert t.ready_queue.spilled_groups == spilled_groups, "the number of spill queues drifted"
    for entry in t.jobs.values():
        if entry.life.line:
            assert entry.life.state is JobState.QUEUED, f"{entry.id} is spilled and not queued"
            own = t.ready_queue.fifo_group(entry.spec.terms)
            assert own is not None, f"{entry.id} is spilled and in no FIFO group"
            # A spill queue written by an older version is split into several, and not known once
            # all its jobs are back.
            if entry.life.line == t.ready_queue.spill_queue_of(own):
                assert entry.life.line in t.ready_queue.by_spill_queue, f"{entry.id} is not spilled"


def _check_depth(t: SchedulerState) -> None:
    depth: dict[tuple[str, JobState], int] = {}
    for entry in t.jobs.values():
        for state, count in depth_counts(t, entry):
            key = (entry.spec.terms.queue, state)
            depth[key] = depth.get(key, 0) + count
    for job_class in t.ready_queue.classes:
        key = (job_class.queue.queue.name, JobState.QUEUED)
        depth[key] = depth.get(key, 0) + job_class.spilled
    for queue, mine in t.depths.of_queue.items():
        counted = mine.by_state()
        for state in JobState:
            there = depth.get((queue, state), 0)
            assert counted.get(state, 0) == there, f"depth of {queue} {state} drifted"


def _check_schedules(t: SchedulerState) -> None:
    runs: dict[str, dict[str, None]] = {}
    for job_id, job in t.jobs.items():
        origin = job.spec.origin
        if origin is not None and origin.schedule_id in t.schedule_index.entries:
            runs.setdefault(origin.schedule_id, {})[job_id] = None
    assert runs == t.schedule_index.live_jobs, "the runs of schedules drifted"
    for schedule_id, entry in t.schedule_index.entries.items():
        schedule = entry.schedule
        name = (schedule.definition.job.terms.tenant, schedule.definition.name)
        assert t.schedule_index.by_name(*name) is entry, (
            f"schedule {schedule_id} is not found by its name"
        )
        assert (entry.next_at is None) == (entry.due_at is None)
        if entry.next_at is not None:
            assert entry.next_at > schedule.state.watermark, f"{schedule_id} would fire again"
    assert not t.schedule_index.ended_origins, "a run's end was not handled"


def _check_triggers(t: SchedulerState) -> None:
    assert not t.trigger_index.ended_jobs, "a job's end was not handled"
    windows = [
        window for entry in t.trigger_index.entries.values() for window in entry.windows.values()
    ]
    assert t.trigger_index.open_windows == len(windows), "the number of open windows drifted"
    assert t.trigger_index.buffered_bytes == sum(window.data_bytes for window in windows), (
        "the size of buffered events drifted"
    )
    for trigger_id, entry in t.trigger_index.entries.items():
        rule = entry.trigger.definition
        assert t.trigger_index.by_name(rule.job.terms.tenant, rule.name) is entry, (
            f"{trigger_id} has no name"
        )
        for key, window in entry.windows.items():
            assert window.events, f"window {key!r} of {trigger_id} is empty"
            size = sum(len(held.event.data) for held in window.events.values())
            assert window.data_bytes == size, f"the size of a window of {trigger_id} drifted"
