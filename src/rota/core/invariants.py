"""Invariants of the state, checked the slow and obvious way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.core.entries import NO_CLASS, GroupEntry, JobEntry, counted_state
from rota.core.group_model import Array, Gang, GroupMember, copies_of
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import ExecutionState, JobId, JobState
from rota.core.ready_queue.classes import Account, JobClass
from rota.core.resources import NOTHING, fits, left_of, plus, total
from rota.core.state import SchedulerState

_RUNNING_STATES = (JobState.RUNNING, JobState.CANCELLING)


def depth_counts(t: SchedulerState, cell: JobEntry) -> Iterator[tuple[JobState, int]]:
    """What a live job counts as in the depth of its queue and tenant."""
    if cell.id in t.groups.entries:
        yield counted_state(cell.life.state), t.groups.entries[cell.id].waiting
    else:
        yield cell.life.state, 1


def _check_groups(t: SchedulerState) -> None:
    """Raises AssertionError with what is wrong."""
    assert not t.groups.due, "a member's end went unnoticed"
    assert not t.groups.changed, "a tally was not written"
    live: dict[JobId, dict[JobId, None]] = {job_id: {} for job_id in t.groups.entries}
    for job_id, cell in t.jobs.items():
        band = cell.spec.group
        if isinstance(band, GroupMember):
            live[JobId(band.parent)][job_id] = None
        assert (job_id in t.groups.entries) == isinstance(band, Array | Gang)
    assert t.groups.waiting == sum(mine.waiting for mine in t.groups.entries.values())
    for job_id, mine in t.groups.entries.items():
        assert mine.live == live[job_id], f"the members of {job_id} drifted"
        _check_group(t, t.jobs[job_id], mine)


def _check_group(t: SchedulerState, cell: JobEntry, mine: GroupEntry) -> None:
    band, runs = cell.spec.group, cell.life.state in _RUNNING_STATES
    running = sum(t.jobs[job_id].life.state in _RUNNING_STATES for job_id in mine.live)
    assert mine.running == running, f"{cell.id} counts {mine.running} of {running} running"
    assert mine.size == copies_of(band)
    all_of_it = mine.ended + mine.waiting + len(mine.live)
    assert all_of_it == mine.size, f"{cell.id} has {all_of_it} members of {mine.size}"
    assert bool(mine.live) <= runs, f"{cell.id} is {cell.life.state} and has members"
    if isinstance(band, Array):
        limit = band.max_parallel
        assert limit is None or len(mine.live) <= max(limit, mine.running), "too many at once"
        wants = limit is None or len(mine.live) < limit
        if cell.life.state is JobState.RUNNING and mine.waiting and wants:
            stands = cell.class_index != NO_CLASS or t.concurrency_keys.waits(cell)
            assert stands, f"array {cell.id} has members to draw and is in no line"
    elif runs and cell.life.state is JobState.RUNNING and not mine.cause:
        started = len(mine.live) + mine.succeeded
        assert started == mine.size, f"gang {cell.id} runs with {started} of {mine.size}"


LIVE = (ExecutionState.CLAIMED, ExecutionState.RUNNING)


def check_invariants(t: SchedulerState) -> None:
    """Raises AssertionError with what is wrong."""
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
    for job_id, cell in t.jobs.items():
        state = cell.life.state
        assert state not in JOB_FINAL, f"ended job {job_id} is still in memory"
        held = cell.life.execution_id in t.executions if cell.life.execution_id else False
        runs = state in (JobState.RUNNING, JobState.CANCELLING) and cell.id not in t.groups.entries
        assert runs == held, f"job {job_id} is {state}, its execution is live: {held}"
        upstream = sum(1 for d in cell.spec.dependencies if d.job_id in t.jobs)
        if state is JobState.QUEUED:
            assert not cell.unmet, f"queued job {job_id} waits for {cell.unmet} others"
        if state in (JobState.PENDING, JobState.QUEUED):
            assert cell.unmet <= upstream, f"job {job_id} counts {cell.unmet} of {upstream}"
        if runs:
            assert cell.class_index == NO_CLASS, f"running job {job_id} stands in line"


def _check_executions(t: SchedulerState) -> None:
    jobs: dict[str, str] = {}
    for execution_id, cell in t.executions.items():
        execution = cell.execution
        assert execution.state in LIVE, f"ended execution {execution_id} is in memory"
        other = jobs.setdefault(execution.job_id, execution_id)
        assert other == execution_id, f"job {execution.job_id} has two executions"
        assert t.jobs[execution.job_id].life.fence == execution.fence, "a stale fence is live"
        held = t.fleet.workers[execution.worker_id].held
        assert execution_id in held, f"execution {execution_id} is not held by its worker"


def _check_workers(t: SchedulerState) -> None:
    for worker_id, cell in t.fleet.workers.items():
        ends = sorted((t.executions[i].ends_at, i) for i in cell.held)
        assert cell.ends == ends, f"the ends of {worker_id} drifted"
        free, later = cell.free, {}
        for at, execution_id in ends:
            free = later[at] = plus(free, cell.held[execution_id])
        assert cell.expected_free() == list(later.items()), f"what {worker_id} will have drifted"
        left = left_of(cell.worker.capacity, cell.held.values())
        assert cell.free == left, f"free room of {worker_id} drifted"
        wanted = {i: t.jobs[t.executions[i].execution.job_id] for i in cell.held}
        for execution_id, job in wanted.items():
            is_prefetched = cell.is_prefetched(t.executions[execution_id].execution)
            needs = NOTHING if is_prefetched else job.spec.terms.needs.resources
            assert cell.held[execution_id] == needs, f"{execution_id} holds another amount"
        if cell.poll is None:
            assert worker_id not in t.fleet.open, f"{worker_id} is open without a poll"
        assert all(i in cell.held for i in cell.stops), "a stop for what is not held"
        runs = [i for i in cell.held if t.executions[i].execution.state is ExecutionState.RUNNING]
        assert sorted(cell.named) == sorted(runs), f"what {worker_id} has named drifted"


def _check_free_capacity(t: SchedulerState) -> None:
    """Whoever seeks a place believes that these rooms were looked at, and that all are listed."""
    fleet, listed = t.fleet, t.fleet.free_index
    count = sum(len(row) for row in listed.by_free_capacity.values())
    assert count == len(listed.by_id), "a worker is listed with two rooms"
    for worker_id, (rank, cell, room) in listed.by_id.items():
        assert fleet.open.get(worker_id) is cell, f"{worker_id} has room and is not open"
        assert cell.free_capacity is room, f"{worker_id} is listed with another room"
        assert (rank, cell, room) in listed.by_free_capacity[room], (
            f"{worker_id} is in the wrong list"
        )
        assert room.classes_made >= fleet.fitted, f"the room of {worker_id} was not looked at"


def _check_prefetched(t: SchedulerState) -> None:
    for worker_id, cell in t.fleet.workers.items():
        for before, (prefetched_id, amount) in cell.prefetched.items():
            assert before in cell.held, f"{prefetched_id} is behind {before}, which has ended"
            execution = t.executions[prefetched_id].execution
            where = (execution.worker_id, execution.behind)
            assert where == (worker_id, before), f"{prefetched_id} is misplaced"
            claimed = execution.state is ExecutionState.CLAIMED
            assert claimed, f"prefetched {prefetched_id} is {execution.state}"
            needs = t.jobs[execution.job_id].spec.terms.needs.resources
            assert amount == needs, f"{prefetched_id} is to get another amount"
        waiting = [prefetched_id for prefetched_id, _ in cell.prefetched.values()]
        behind = [i for i in cell.held if t.executions[i].execution.behind in cell.held]
        assert sorted(waiting) == sorted(behind), f"what {worker_id} prefetched drifted"
    for worker_id in t.fleet.spare:
        poll = t.fleet.workers[worker_id].poll
        assert poll is not None, f"{worker_id} prefetches without a poll"
        assert poll.spare > 0, f"{worker_id} wants nothing prefetched"


def check_capacity(t: SchedulerState) -> None:
    """No worker holds more than it has; true as long as none registers again with less."""
    for worker_id, cell in t.fleet.workers.items():
        used = total(cell.held.values())
        assert fits(used, cell.worker.capacity), f"{worker_id} is over capacity"


def _check_queues(t: SchedulerState) -> None:
    running: dict[str, list[str]] = {name: [] for name in t.queues}
    for execution_id, cell in t.executions.items():
        running[t.jobs[cell.execution.job_id].spec.terms.queue].append(execution_id)
    for name, queue in t.queues.items():
        runs = running[name]
        assert queue.running == len(runs), f"running of queue {name} drifted"
        if queue.queue.max_workers is None:
            runs = []
        assert list(queue.runs) == runs, f"what runs of queue {name} drifted"


def _check_keys(t: SchedulerState) -> None:
    for key, group in t.concurrency_keys.groups.items():
        assert group.holders or group.waiting, f"empty key group {key}"
        for job_id in group.holders:
            job = t.jobs[job_id]
            assert job.life.state is not JobState.PENDING, f"pending job {job_id} holds a slot"
        line = dict.fromkeys(group.queue)
        for job_id in group.waiting:
            job = t.jobs[job_id]
            assert job.order_key() in line, f"{job_id} waits for its key and is not in its line"
            queues = job.life.state is JobState.QUEUED or job_id in t.groups.entries
            assert queues, f"{job_id} waits for its key"
            assert job.class_index == NO_CLASS, f"{job_id} stands in two lines"


def _check_class_queues(t: SchedulerState) -> None:
    waiting: dict[int, int] = {}
    parties: dict[int, Account] = {}
    for job_id, cell in t.jobs.items():
        if cell.class_index != NO_CLASS:
            waiting[cell.class_index] = waiting.get(cell.class_index, 0) + 1
            job_class = t.ready_queue.classes[cell.class_index]
            assert job_class.needs == cell.spec.terms.needs, f"{job_id} is in a wrong class"
            assert job_class.queue.queue.name == cell.spec.terms.queue
        elif cell.life.state is JobState.QUEUED:
            group = t.concurrency_keys.group_of(cell)
            assert group is not None, f"queued job {job_id} is in no line"
            assert job_id in group.waiting, f"queued job {job_id} is in no line"
    for job_class in t.ready_queue.classes:
        assert job_class.waiting == waiting.get(job_class.index, 0), "a line's length drifted"
        stands = bool(job_class.waiting or job_class.spilled)
        assert bool(t.ready_queue.ready & job_class.bit) == stands
        for party in _check_shares(t, job_class):
            parties[id(party)] = party
        lanes = job_class.fifo_groups.values()
        assert job_class.waiting == sum(lane.in_memory for lane in lanes), "a lane's length drifted"
        assert job_class.spilled == sum(lane.spilled for lane in lanes), "a shelf's length drifted"
    for party in parties.values():
        assert party.ready == party.waiting & party.allowed, "a party's quota drifted"
        assert list(party.heads) == sorted(party.heads), "a party's lines are out of order"
        assert len(party.heads) == len(party.class_queues), "a line has no seat, or two"


def _check_work(t: SchedulerState) -> None:
    work: dict[int, int] = {}
    for cell in t.jobs.values():
        if cell.class_index != NO_CLASS:
            work[cell.queue_number] = work.get(cell.queue_number, 0) + cell.estimate
    for job_class in t.ready_queue.classes:
        for number, line in job_class.class_queues.items():
            assert line.work == work.get(number, 0), "the work of a line drifted"


def _check_shares(t: SchedulerState, job_class: JobClass) -> Iterable[Account]:
    """The lines of a class, over all parties, are the class; and parties know what waits."""
    parties = {
        id(party): party
        for tenant in t.tenants.entries
        for party in (t.ready_queue.order.account(tenant, job_class.queue),)
    }
    lines = [
        party.class_queues[job_class.index]
        for party in parties.values()
        if job_class.index in party.class_queues
    ]
    assert job_class.waiting == sum(line.waiting for line in lines), "a line's length drifted"
    assert job_class.spilled == sum(line.spilled for line in lines), "a line's shelf drifted"
    for party in parties.values():
        has = job_class.index in party.class_queues
        assert bool(party.waiting & job_class.bit) == has, "a party's bits drifted"
    for line in lines:
        assert line.head_entry is not None, "a line has no seat"
        assert line.head_entry[1] <= t.ready_queue.head(line), "a line is seated behind its head"
    return parties.values()


def _check_tenants(t: SchedulerState) -> None:
    depth: dict[tuple[str, JobState], int] = {}
    for cell in t.jobs.values():
        for state, count in depth_counts(t, cell):
            key = (cell.spec.terms.tenant, state)
            depth[key] = depth.get(key, 0) + count
    for lane in t.ready_queue.by_spill_queue.values():
        key = (lane.key[0], JobState.QUEUED)
        depth[key] = depth.get(key, 0) + lane.spilled
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
        assert sorted(tenant.held) == sorted(mine), f"what tenant {name} holds drifted"
        if tenant.tenant.quota is not None:
            assert tenant.used == total(tenant.held.values()), f"use of {name} drifted"


def _check_spill_queues(t: SchedulerState) -> None:
    shelves = 0
    for job_class in t.ready_queue.classes:
        for key, lane in job_class.fifo_groups.items():
            assert lane.in_memory or lane.spilled, f"empty lane {key}"
            assert (lane.class_index, lane.key) == (job_class.index, key)
            if lane.spilled:
                shelves += 1
                assert t.ready_queue.by_spill_queue.get(lane.spill_queue) is lane, (
                    "a shelf that nobody finds"
                )
                assert lane.spill_marker in list(t.ready_queue.queue_of_group(lane).jobs), (
                    "a shelf without a mark"
                )
    assert t.ready_queue.spilled_groups == shelves, "the number of shelves drifted"
    for cell in t.jobs.values():
        if cell.life.line:
            assert cell.life.state is JobState.QUEUED, f"{cell.id} moved and is on the shelf"
            own = t.ready_queue.fifo_group(cell.spec.terms)
            assert own is not None, f"{cell.id} is on a shelf and in no lane"
            # A line of an earlier program is of several lanes, and forgotten when all are back.
            if cell.life.line == t.ready_queue.spill_queue_of(own):
                assert cell.life.line in t.ready_queue.by_spill_queue, f"{cell.id} is on no shelf"


def _check_depth(t: SchedulerState) -> None:
    depth: dict[tuple[str, JobState], int] = {}
    for cell in t.jobs.values():
        for state, count in depth_counts(t, cell):
            key = (cell.spec.terms.queue, state)
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
    for schedule_id, cell in t.schedule_index.entries.items():
        schedule = cell.schedule
        name = (schedule.definition.job.terms.tenant, schedule.definition.name)
        assert t.schedule_index.by_name(*name) is cell, (
            f"schedule {schedule_id} is not found by its name"
        )
        assert (cell.next_at is None) == (cell.due_at is None)
        if cell.next_at is not None:
            assert cell.next_at > schedule.state.watermark, f"{schedule_id} would fire again"
    assert not t.schedule_index.ended_origins, "a run's end went unnoticed"


def _check_triggers(t: SchedulerState) -> None:
    assert not t.trigger_index.ended_jobs, "a job's end was told to nobody"
    windows = [
        window for cell in t.trigger_index.entries.values() for window in cell.windows.values()
    ]
    assert t.trigger_index.open_windows == len(windows), "the number of open windows drifted"
    assert t.trigger_index.buffered_bytes == sum(window.data_bytes for window in windows), (
        "what is held drifted"
    )
    for trigger_id, cell in t.trigger_index.entries.items():
        rule = cell.trigger.definition
        assert t.trigger_index.by_name(rule.job.terms.tenant, rule.name) is cell, (
            f"{trigger_id} has no name"
        )
        for key, window in cell.windows.items():
            assert window.events, f"window {key!r} of {trigger_id} is empty"
            size = sum(len(held.event.data) for held in window.events.values())
            assert window.data_bytes == size, f"the size of a window of {trigger_id} drifted"
