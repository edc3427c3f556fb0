"""Limits of the scheduler, each with its reason; `CoreLimits` are given to it as values."""

from __future__ import annotations

from typing import Final

import msgspec

LOSSES_MAX = 5
"""Workers that a job may lose before it is taken for the cause and becomes a dead letter."""
STOP_WINDOW_MS = 30_000
"""Time for a worker to stop an execution as ordered; then its lease is not renewed any more."""
TIMEOUT_MARGIN_MS = 10_000
"""Workers end executions at their timeout themselves; the scheduler acts only this much later."""
PROGRESS_EVERY_MS = 1_000
"""Shortest interval between two writes of an execution's progress."""
PRELOAD_WINDOW_MS = 10_000
"""Greatest age of a preloaded record when it is used; finished jobs are remembered as long."""
OFFLINE_KEPT_MS = 24 * 3600 * 1000
"""Time for which a lost worker stays listed: a day."""
REDELIVER_LEASES = 3
"""Leases for which an order that its worker never reports is sent again, before it is taken
back."""
WORKERS_MAX = 100_000
"""Workers known at once, offline ones included."""
QUEUES_MAX = 10_000
"""Queues are created on first use: a client that invents names in a loop must not fill memory."""
TERMS_POOL_MAX = 20_000
"""Distinct terms that are interned; then the pool starts anew, which only costs memory."""
SORT_KEYS_POOL_MAX = 10_000
"""Distinct sort keys that are interned: jobs that came at once have few."""
FIT_CACHE_MAX = 50_000
"""Amounts of free capacity for which the classes that fit are cached; more are computed again."""
EXPLAINED_MAX = 20
"""Upstream jobs, key holders and the like that one explanation names."""
WINDOW_JOBS = 200_000
"""Jobs in memory (some 100 MB) above which jobs that wait for a worker alone are spilled to the
store. Many times what starts while the store is asked for the next ones."""
FIFO_GROUP_KEPT = 200
"""Jobs of each FIFO group that stay in memory whatever waits before them, so that no group is empty
before the store has answered."""
REFILL_JOBS = 20_000
"""Spilled jobs loaded in one refill: as many as a turn may handle. Where a refill waits for the
projection, a long queue is drained only as fast as this many come with each projected batch."""
REFILL_CHUNK_JOBS = 2_000
"""Of those, so many are added together: what is read more than once is still in the CPU's cache."""
TIMERS_PER_TURN = 5_000
"""Timers fired in one turn; the rest fire in the next ones. Many jobs are due at midnight, and a
turn with all of them would take longer than a leader may be silent."""
CLASSES_KEPT = 256
"""Classes before the numbers of empty ones are used again: each costs a bit in all masks."""
FREE_WORKERS_COMPARED = 64
"""Open workers with free capacity that are compared one by one; of more, each class keeps a
heap."""
OPEN_WORKERS_COMPARED = 8
"""Open workers whose free capacity is compared one by one in every decision."""
CRON_CHARS_MAX = 255
"""Length of a cron expression; the longest useful one, a list of every minute, is shorter."""
CRON_POOL_MAX = 10_000
"""Parsed cron expressions that are cached: many schedules share one, and parsing is cheap."""
CRON_YEARS_AHEAD = 40
"""How far a date is searched for: a 29 February on a given weekday may be this far away."""
INTERVAL_MS_MIN = 1_000
"""Shortest interval: a second, as of the most frequent cron expression."""
JITTER_MS_MAX = 24 * 3600 * 1000
"""Longest jitter: beyond a day nobody could say which run is which."""
SCHEDULES_MAX = 1_000_000
"""Schedules known at once: each takes a kilobyte or two of memory."""
CALENDARS_MAX = 1_000
"""Calendars known at once."""
FIRES_PER_TURN = 500
"""Instants decided in one turn: ten thousand schedules due in the same second must not delay a
heartbeat until the last of them has its job."""
FIRES_PER_SCHEDULE = 50
"""Instants of one schedule decided before the other schedules get their turn."""
ON_TIME_MS = 1_000
"""Delay of a decision after its instant up to which it counts as on time; then it is late."""
MISSED_AFTER_MS = 60_000
"""Delay up to which an instant is late (and half of the time to the next one at most); then it is
missed (a misfire), and `catch_up` decides. A restart or a change of leader takes less."""
SCHEDULE_RUNS_MAX = 10_000
"""Live runs of one schedule; then instants are skipped, because the runs are not finishing."""
BACKFILL_JOBS_MAX = 10_000
"""Runs of one schedule backfill: they are created in one turn."""
BACKFILL_PRIORITY_STEP = 100
"""How much lower the default priority of backfill runs is than that of the schedule's own runs."""
FILTER_CHARS_MAX = 4_000
"""Length of a filter or a path; people write a line."""
FILTER_NODES_MAX = 256
"""Parts of one filter."""
FILTER_DEPTH_MAX = 32
"""Nested brackets in a filter: it is parsed and evaluated by recursion."""
FILTER_STEPS_MAX = 10_000
"""Steps of one evaluation of a filter: a part is one, and so is a piece of a long text."""
FILTER_TEXT_PER_STEP = 256
"""Characters compared or searched that count as one step."""
TRIGGERS_MAX = 100_000
"""Triggers known at once."""
CHAIN_DEPTH_MAX = 16
"""Triggers that fire in a chain, each because of the one before: beyond it looks like a loop."""
BUFFERED_PER_JOB_MAX = 1_000
"""Buffered events that one job gets together."""
BUFFERED_PER_JOB_BYTES_MAX = 900_000
"""Their total size: they become one payload."""
WINDOWS_MAX = 10_000
"""Open windows of one trigger: a key with ever new values must not fill memory."""
BUFFERED_BYTES_MAX = 256 * 1024 * 1024
"""Data of all events that wait in windows: they are in memory."""
TRIGGERED_BYTES_MAX = 1_048_576
"""Task or payload of a job with an event's values filled in: the limit of a submitted one."""
JOB_EVENT_BYTES_MAX = 64 * 1024
"""A job's result or error in the event of its end; a larger one is read from the job."""
TEMPLATES_CACHED_MAX = 4_096
"""Parsed templates that are cached: parsing one again is cheap."""
TENANTS_KEPT = 10_000
"""Tenants kept in memory while they have neither jobs nor settings."""
QUEUES_KEPT = 64
"""Queues of one tenant whose accounts are kept while nothing waits in them."""
LONG_FIFO_GROUP = 8
"""Waiting jobs of a FIFO group before more get a run of their own: an empty run takes as much
memory."""
TENANTS_MAX = 10_000
"""Tenants with settings of their own."""
RUNTIMES_KEPT = 20_000
"""Names of jobs whose run times are kept; those not used for longest go first."""
RUNTIME_GUESS_MS = 300_000
"""Expected run time of a job of which nothing is known."""
RUNTIME_CHANGE_WRITTEN = 1.0
"""Relative change of a name's mean run time before it is written again."""
SHORT_MS = 100
"""Longest run that counts as short: the way to its worker and back is a good part of it."""
SHORT_RUNS = 5
"""Short runs in a row before a name counts as short."""
SHORT_MEAN_RUNS = 32
"""Runs in the mean of a short name; up to as many more are included."""
PREFETCH_MS = 100
"""Work prefetched for one place on a worker: about as long as its way to the worker may take."""
PREFETCH_CHAIN = 32
"""Orders prefetched for one place, however short they are."""
USAGE_NOTE_MS = 60_000
"""Shortest interval between two writes of a tenant's usage, along with a start."""
RESERVE_LOOK = 16
"""Workers tried for the earliest place of a job that does not fit. In a larger fleet only some are:
most jobs start where capacity happens to come free, and the reservation only keeps a job from
waiting for ever."""
RESERVE_AFTER_MS = 1_000
"""Time for which other jobs may pass a job in such a fleet before a place is reserved for it: what
fits nowhere now mostly fits a moment later, and reservations cost more than the rest of a
decision."""
RESERVED_MAX = 16
"""Reservations at once, over all classes of workers."""
WALKS_PER_PASS = 10_000
"""Walks over all accounts in one search for jobs to start; each passes at once all classes that
would be tried in vain. After so many, which no fleet needs, jobs are tried one by one."""
BACKFILL_LOOK = 1_000
"""Jobs of one class queue that backfill tries, where it tries them in order."""
PLANNED_MAX = 1_000
"""Jobs with a place in the plan of the `conservative` policy; those behind them wait."""
DEADLINE_LEAD_MS = 24 * 3600 * 1000
"""A job with a deadline is sorted as if it had waited since this long before its latest start:
others lose a day's waiting to it, and no more."""
LABELS_TRACKED = 1_024
"""Labels required by jobs that are tracked, before those that no class requires are forgotten."""
PREFERRED_WORKERS_TRIED = 256
"""Workers tried for one job with preferences, the likely ones first."""
IDEAL_WORKERS_COMPARED = 16
"""Workers that meet all preferences of a job, compared before the best fit is taken."""
PREVIOUS_WORKERS_KEPT = 20_000
"""Newest (name, worker) pairs that are kept for jobs that prefer the worker of an earlier run."""
USAGES_KEPT = 5_000
"""Names of jobs whose cpu and memory usage is kept; those not used for longest go first."""
USAGE_RUNS_SKETCHED = 512
"""Runs in a usage sketch before the older ones count half."""
USAGE_DAYS_KEPT = 14
"""Days of which the usage is summed for each name."""
USAGE_WRITTEN_MS = 600_000
"""Shortest interval between two writes of a name's usage, except for its first runs."""
FENCES_PER_LIFE = 1 << 20
"""Fences of an array's member in one life of the array: the next life starts with the number after
these, because nobody reads what the last fence was."""
GANG_LOOK = 1_024
"""Workers tried for the places of a gang that does not fit yet: as many as its largest size."""
PREEMPT_LOOK = 64
"""Class queues that no preemption could help, skipped in the search for a job that it could."""
GANG_HOLD_MS = 60_000
"""How long capacity is held unused for a gang; then other jobs may use it for as long."""
ARRIVALS_EVERY_MS = 10_000
"""Interval at which arrivals are sampled."""
ARRIVALS_MS = 300_000
"""Period over which the arrival rate is measured."""
ARRIVALS_NOTED = 32
"""Samples that are kept: a little more than one period."""
FORECAST_JOBS = 1_000
"""Waiting jobs in the input of a forecast: collecting them must not take a turn longer than a
commit."""
FORECAST_QUEUE_JOBS = 500
"""Jobs of one class queue in it: those before the job that is asked about, or at most this many."""
POSITION_LOOK = 20_000
"""Places of a class queue that are compared for a job's position; of a longer one, a sample."""


class CoreLimits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Limits that a scheduler is given as values, so that a test can set small ones."""

    classes_kept: int = CLASSES_KEPT
    fit_cache_max: int = FIT_CACHE_MAX
    open_workers_compared: int = OPEN_WORKERS_COMPARED
    buffered_bytes_max: int = BUFFERED_BYTES_MAX
    long_fifo_group: int = LONG_FIFO_GROUP
    queues_kept: int = QUEUES_KEPT
    timers_per_turn: int = TIMERS_PER_TURN
    runtimes_kept: int = RUNTIMES_KEPT
    refill_chunk_jobs: int = REFILL_CHUNK_JOBS
    tenants_kept: int = TENANTS_KEPT
    terms_pool_max: int = TERMS_POOL_MAX
    walks_per_pass: int = WALKS_PER_PASS
    windows_max: int = WINDOWS_MAX


CORE_LIMITS: Final = CoreLimits()
"""Limits of a real cell."""
