"""Limits of the scheduler, each named with its reason; some are given to it as values."""

from __future__ import annotations

from typing import Final

import msgspec

LOSSES_MAX = 5
"""Workers a job may lose before it is taken for the cause and becomes a dead letter."""
STOP_WINDOW_MS = 30_000
"""How long a worker may take to stop what it was told to stop; then its lease is not renewed."""
TIMEOUT_MARGIN_MS = 10_000
"""Workers end what runs too long themselves; the scheduler steps in only this much later."""
PROGRESS_EVERY_MS = 1_000
"""A changed progress is written at most this often for one execution."""
PRELOAD_WINDOW_MS = 10_000
"""A record read from the tables may be this old when used; so long is a departure remembered."""
OFFLINE_KEPT_MS = 24 * 3600 * 1000
"""A lost worker stays listed for a day."""
REDELIVER_LEASES = 3
"""An order its worker never names is handed out again for so many leases, then taken back."""
WORKERS_MAX = 100_000
"""Workers known at once, offline ones included."""
QUEUES_MAX = 10_000
"""Queues are made on first use; this keeps a loop that invents names from filling memory."""
TERMS_POOL_MAX = 20_000
"""Distinct terms kept for sharing; past it the pool starts anew and only memory is the worse."""
SORT_KEYS_POOL_MAX = 10_000
"""Distinct places in line kept for sharing: jobs that came at once have few."""
FIT_CACHE_MAX = 50_000
"""Remembered answers to "which classes fit this much room"; past it they are computed again."""
EXPLAINED_MAX = 20
"""Upstream jobs, key holders and the like that one explanation names."""
WINDOW_JOBS = 200_000
"""Jobs in memory beyond which those that only wait for a worker are left to the store: some 100 MB,
and many times what starts while the store is asked for the next ones."""
FIFO_GROUP_KEPT = 200
"""Jobs of one line that are in memory whatever waits before them, so that none of the lines runs
dry before the store has answered."""
REFILL_JOBS = 20_000
"""Jobs brought back from the store in one go: as many as a turn may step. Where the tables have to
be waited for, a long line is drained only as fast as so many come with each fold."""
REFILL_CHUNK_JOBS = 2_000
"""Of those, so many stand in line as one: what is gone through more than once is still at hand."""
TIMERS_PER_TURN = 5_000
"""Alarms of one turn; the rest ring in the next ones. Many jobs are due at midnight, and a turn
with all of them would take longer than a leader may be silent."""
CLASSES_KEPT = 256
"""Places for classes of alike jobs before those of empty classes are used again."""
FREE_WORKERS_COMPARED = 64
"""Open workers with room that are compared one by one; of more, each class keeps a heap."""
OPEN_WORKERS_COMPARED = 8
"""Open workers whose room is looked at one by one for every decision."""
CRON_CHARS_MAX = 255
"""A cron expression; the longest that is meant, a list of every minute, is shorter."""
CRON_POOL_MAX = 10_000
"""Cron expressions kept read: many schedules have the same, and reading one again is cheap."""
CRON_YEARS_AHEAD = 40
"""How far a day is searched for: a 29 February on a given weekday may be this far away."""
INTERVAL_MS_MIN = 1_000
"""The shortest interval: every second, as the most frequent cron expression."""
JITTER_MS_MAX = 24 * 3600 * 1000
"""The most that runs are spread: beyond a day nobody could say which run is which."""
SCHEDULES_MAX = 1_000_000
"""Schedules known at once: each is a kilobyte or two of memory."""
CALENDARS_MAX = 1_000
"""Calendars known at once."""
FIRES_PER_TURN = 500
"""Instants decided in one turn: ten thousand schedules of the same second must not hold up a
heartbeat until the last of them has its job."""
FIRES_PER_SCHEDULE = 50
"""Instants of one schedule decided before the others get their turn."""
ON_TIME_MS = 1_000
"""What is decided no later than this after its time was on time; after it, late."""
MISSED_AFTER_MS = 60_000
"""What is decided no later than this, and than half of the time to the next, was late; after it,
missed, and `catch_up` says what becomes of it. A restart or a change of leader takes less."""
SCHEDULE_RUNS_MAX = 10_000
"""Live runs of one schedule: past it instants are skipped, for nobody is working them off."""
BACKFILL_JOBS_MAX = 10_000
"""Runs of one backfill: they are made in one step."""
BACKFILL_PRIORITY_STEP = 100
"""How far below a schedule's own runs those of a backfill stand, unless said otherwise."""
FILTER_CHARS_MAX = 4_000
"""A filter's text, or a path; people write a line."""
FILTER_NODES_MAX = 256
"""Parts of one filter."""
FILTER_DEPTH_MAX = 32
"""Brackets inside brackets in a filter: it is read and walked by recursion."""
FILTER_STEPS_MAX = 10_000
"""Steps of one look at one event: a part is one, and so are so many characters of a text."""
FILTER_TEXT_PER_STEP = 256
"""Characters compared or searched that count as one step."""
TRIGGERS_MAX = 100_000
"""Triggers known at once."""
CHAIN_DEPTH_MAX = 16
"""Triggers that may set each other off, one because of the other: beyond it looks like a loop."""
BUFFERED_PER_JOB_MAX = 1_000
"""Events that one job gets together."""
BUFFERED_PER_JOB_BYTES_MAX = 900_000
"""Their size together: they become one payload."""
WINDOWS_MAX = 10_000
"""Windows of one trigger open at once: a key with ever new values must not fill memory."""
BUFFERED_BYTES_MAX = 256 * 1024 * 1024
"""Data of all events that wait in windows: they are in memory."""
TRIGGERED_BYTES_MAX = 1_048_576
"""Task or payload of a job with an event's values filled in: what a submitted one may have."""
JOB_EVENT_BYTES_MAX = 64 * 1024
"""A job's result or error in the event of its end; a larger one is read from the job."""
TEMPLATES_CACHED_MAX = 4_096
"""Slots of triggers' jobs kept read: reading one again is cheap."""
TENANTS_KEPT = 10_000
"""Tenants remembered while they have neither jobs nor settings."""
QUEUES_KEPT = 64
"""Queues of one tenant whose accounts are kept while nothing waits in them."""
LONG_FIFO_GROUP = 8
"""Jobs of a lane in line before the next ones get a run: an empty run takes as much memory."""
TENANTS_MAX = 10_000
"""Tenants with settings of their own."""
RUNTIMES_KEPT = 20_000
"""Names whose run times are remembered; those not heard of for longest go first."""
RUNTIME_GUESS_MS = 300_000
"""How long a job is taken to run of which nothing at all is known."""
RUNTIME_CHANGE_WRITTEN = 1.0
"""By how much of it what is known of a name must have changed to be written again."""
SHORT_MS = 100
"""A run no longer than this is short: the way to its worker and back is a good part of it."""
SHORT_RUNS = 5
"""So many in a row must have been short before a name counts as short."""
SHORT_MEAN_RUNS = 32
"""How long a short name runs is the mean of this many runs, and of up to as many more."""
PREFETCH_MS = 100
"""Work prefetched for one place, as far as is known: it comes to be done within about this."""
PREFETCH_CHAIN = 32
"""Orders prefetched for one place, however short they are."""
USAGE_NOTE_MS = 60_000
"""What a tenant has used is written at most this often, along with a start."""
RESERVE_LOOK = 16
"""Workers looked at for the earliest place for a job that does not fit. In a larger fleet only some
of those that wait for work are: most jobs start where room happens to come free, and the place is
kept so that none waits for ever."""
RESERVE_AFTER_MS = 1_000
"""How long a job may be passed in such a fleet before a place is kept for it: what fits nowhere
now fits somewhere a moment later, and keeping places costs more than all else in a decision."""
RESERVED_MAX = 16
"""Places reserved at once, over all kinds of workers."""
WALKS_PER_PASS = 10_000
"""Walks over all who wait, in one look at who may start: each passes at once all that would be
tried in vain. After so many, which no fleet needs, they are tried one by one."""
BACKFILL_LOOK = 1_000
"""Jobs of one line that are looked at for one that may pass, where they are tried in order."""
PLANNED_MAX = 1_000
"""Jobs with a place in the plan of the `conservative` policy; those behind them wait."""
DEADLINE_LEAD_MS = 24 * 3600 * 1000
"""A job with a deadline stands where one stands that was to start this long before its own latest
start: a day's waiting is what others may lose to it, and no more."""
LABELS_TRACKED = 1_024
"""Labels of workers that jobs require, before those that no class asks for are forgotten."""
PREFERRED_WORKERS_TRIED = 256
"""Workers looked at for one job that prefers some to others, those it is likely to prefer first."""
IDEAL_WORKERS_COMPARED = 16
"""Workers that are all a job could wish for, before the one that fits best is taken."""
PREVIOUS_WORKERS_KEPT = 20_000
"""Where the last job of a name ran, or what a job waited for: remembered for jobs that want to run
near it, the newest."""
USAGES_KEPT = 5_000
"""Names whose use of cpu and memory is remembered; those not heard of for longest go first."""
USAGE_RUNS_SKETCHED = 512
"""Runs of a name that a sketch tells of, before the older ones count half."""
USAGE_DAYS_KEPT = 14
"""Days of which the sums are kept for each name."""
USAGE_WRITTEN_MS = 600_000
"""What is known of a name's use is written at most this often, but for its first runs."""
FENCES_PER_LIFE = 1 << 20
"""Fences of an array's member in one life of the array: in the next they go on behind these, though
nobody has read what the last one was."""
GANG_LOOK = 1_024
"""Workers looked at for the places of a gang that does not fit yet: as many as one may have."""
PREEMPT_LOOK = 64
"""Lines that nobody there could serve, passed over to find the job that may clear a worker."""
GANG_HOLD_MS = 60_000
"""How long room that a gang could use is kept for it unused; then others go on for as long."""
ARRIVALS_EVERY_MS = 10_000
"""How often it is noted what has come in."""
ARRIVALS_MS = 300_000
"""Over how long it is made out how fast work comes in."""
ARRIVALS_NOTED = 32
"""Notes that are kept: a little more than so long."""
FORECAST_JOBS = 1_000
"""Waiting jobs in a picture that the next starts are played through on: taking it must not hold up
a turn for longer than a commit does."""
FORECAST_QUEUE_JOBS = 500
"""Of one line: as many as come before the job that is asked about, or no more than this."""
POSITION_LOOK = 20_000
"""Places of a line that are compared to say where a job stands; of a longer line every so many."""


class CoreLimits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Limits that a scheduler is given as values, so that a small one can be tried."""

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
"""Those of a real cell."""
