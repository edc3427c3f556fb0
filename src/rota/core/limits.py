"""Every bound inside the scheduler, named, with its reason."""

LOSSES_MAX = 5
"""Workers a job may lose before it is taken for the cause and becomes a dead letter."""
STOP_WINDOW_MS = 30_000
"""How long a worker may take to stop what it was told to stop; then its lease is not renewed."""
TIMEOUT_MARGIN_MS = 10_000
"""Workers end what runs too long themselves; the scheduler steps in only this much later."""
PROGRESS_EVERY_MS = 1_000
"""A changed progress is written at most this often for one execution."""
RECALL_WINDOW_MS = 10_000
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
FIT_CACHE_MAX = 50_000
"""Remembered answers to "which classes fit this much room"; past it they are computed again."""
EXPLAINED_MAX = 20
"""Upstream jobs, key holders and the like that one explanation names."""
WINDOW_JOBS = 200_000
"""Jobs in memory beyond which those that only wait for a worker are left to the store: some 100 MB,
and many times what starts while the store is asked for the next ones."""
LINE_KEPT = 200
"""Jobs of one line that are in memory whatever waits before them, so that none of the lines runs
dry before the store has answered."""
REFILL_JOBS = 5_000
"""Jobs brought back from the store in one go: a turn with them takes some tens of milliseconds."""
CLASSES_KEPT = 256
"""Places for classes of alike jobs before those of empty classes are used again."""
FRESH_MAX = 8
"""Open workers whose room is looked at one by one for every decision."""
TENANTS_KEPT = 10_000
"""Tenants remembered while they have neither jobs nor settings."""
TENANTS_MAX = 10_000
"""Tenants with settings of their own."""
RUNTIMES_KEPT = 20_000
"""Names whose run times are remembered; those not heard of for longest go first."""
RUNTIME_GUESS_MS = 300_000
"""How long a job is taken to run of which nothing at all is known."""
RUNTIME_NEWS = 1.0
"""By how much of it what is known of a name must have changed to be written again."""
USAGE_NOTE_MS = 60_000
"""What a tenant has used is written at most this often, along with a start."""
RESERVE_LOOK = 16
"""Workers looked at for the earliest place for a job that does not fit, those that wait for work
first. In a larger fleet most jobs start where room happens to come free; the place is kept so that
none waits for ever."""
RESERVED_MAX = 16
"""Places reserved at once, over all kinds of workers."""
BACKFILL_LOOK = 1_000
"""Jobs of one line that are looked at for one that may pass, where they are tried in order."""
PLANNED_MAX = 1_000
"""Jobs with a place in the plan of the `conservative` policy; those behind them wait."""
