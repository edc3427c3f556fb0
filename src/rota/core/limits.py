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
RINGS_PER_TURN = 5_000
"""Alarms of one turn; the rest ring in the next ones. Many jobs are due at midnight, and a turn
with all of them would take longer than a leader may be silent."""
CLASSES_KEPT = 256
"""Places for classes of alike jobs before those of empty classes are used again."""
FRESH_MAX = 8
"""Open workers whose room is looked at one by one for every decision."""
