"""Every limit of the engine, named, with its reason; `EngineLimits` hands in those that vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INBOX_MAX = 20_000
"""Inputs that may wait for a turn; past it callers are asked to slow down."""
TURN_WEIGHT_MAX = 20_000
"""Jobs, reports and inputs stepped in one turn: no append may take so long that others time out."""
CLOCK_JUMP_MS = 500
"""How much the wall clock may drift against the steady one before it counts as set."""
RETRY_DELAY_S_MIN = 0.1
"""The first pause after the store failed."""
RETRY_DELAY_S_MAX = 0.5
"""The longest pause between two attempts to reach the store again."""
TRUST_MARGIN = 0.1
"""Share of the TTL by which a leader stops before others may begin: clocks run unevenly."""
RENEWALS_PER_TTL = 4
"""Renewals of a leader in the time after which a silent one is replaced."""
LOOKS_PER_TTL = 20
"""Reads of the leader's row and the journal by the other servers in that time."""
UNREACHED_PER_TTL = 3
"""A leader that does not answer other servers either counts as gone when it has been silent in the
store for one part in so many of the TTL: longer than it pauses between two renewals."""
ABSENT_PER_TTL = 10
"""A leader without a connection to the store counts as gone after one part in so many of the TTL. A
live one connects again within a few round trips."""
LEADER_PAUSE_MS = 1_000
"""An append that took longer kept workers waiting: their leases are extended by it."""
BEAT_NEAR_PART = 0.125
"""A moment that is nearer than this share of the interval counts as the one just past."""
BEAT_NEAR_S_MAX = 0.02
"""The largest such distance, in seconds: timers are exact to some milliseconds."""
PULSE_S = 1.0
"""How often the server notes that it is not standing still."""
KEY_MARKS = 1 << 24
"""Marks of used idempotency keys: 2 MiB for those of a day. With a million keys one new key in
sixteen shares a mark, and is looked up."""
USED_KEYS_READ_MAX = 200_000
"""Keys that are read when a server begins to lead; where more were used, every key is looked up
for a day."""
USED_KEYS_PER_LOOK = 1_000
"""Keys in one of these reads: a millisecond or two of the loop."""
USED_KEYS_LOOK_S = 0.01
"""Pause between two of these reads: jobs come first."""
USED_KEYS_RETRY_S = 1.0
"""Pause after a read that failed."""
FOLLOW_RECORDS = 500
"""Journal records that a follower reads at once."""
DURABLE_INBOX_ENTRIES = 1_000
"""Submissions left in the store that the leader takes at once."""
DURABLE_INBOX_LOOK_S_MIN = 0.1
"""Pause before it reads more, after there were some."""
DURABLE_INBOX_LOOK_S_MAX = 0.5
"""Its longest pause while there are none: an idle database is left alone."""
INBOX_FAILURES_MAX = 3
"""Failed turns with such a submission after which it is refused. From the second on it is alone in
its turn among those of the inbox, so that it can be told from its neighbours."""
INBOX_PRELOADS_MAX = 20
"""How often a submission is read for again at once when what it needs has changed meanwhile."""
INBOX_REASON_CHARS = 1_000
"""The reason for which a submission is set aside: what somebody reads in a list."""
UNHEALTHY_MS = 10_000
"""How long something must be wrong until a server says that it is not ready: less is a failover."""
REFILL_RETRY_S = 0.5
"""Pause after a refill that the store could not read."""
HEADS_KEPT = 4_096
"""Ends of the journal that a server remembers, to tell how many records a failover has lost."""
COLD_MS = 60_000
"""How long a standby keeps no copy of live jobs after it found that jobs are spilled."""
DURABILITY_LOOK_S = 2.0
"""How often the database is asked for its durability: a lost standby shows soon."""
LOSSES_LOOK_EVERY = 5
"""One of so many of these looks also asks which records failovers have lost."""
ANNOUNCE_S = 1.0
"""How often a server announces itself to the others."""
REACHABILITY_LOOK_S = 0.5
"""How often a leader checks whether the other servers reach it."""
REACHABILITY_ALONE_LOOK_S = 5.0
"""How often a leader does so that has seen no others: an idle database is left alone."""
REACHABILITY_SILENT_MS = 3_000
"""A server that has not announced itself for so long does not count in that check."""
SEEN_AFTER_MS = 6_000
"""After so long even a leader that was alone has seen a new server's announcement."""
LAG_SAMPLES = 3_600
"""Ends of the journal that a follower remembers to measure its lag: an hour's."""
RETENTION_EVERY_S = 600.0
"""How often the leader looks for finished work that is too old to keep."""
RETENTION_PAUSE_S = 0.05
"""Pause between two pieces of deletion, so that other users of the store come in between."""
CLOCK_LOOK_S = 10.0
"""The longest sleep while something is due later: a wall clock that is set ends no sleep."""
FORWARD_STARTS_MAX = 2_000
"""Starts that a forward run simulates; later starts are estimated from the rate so far."""
FORWARD_TURNS_MAX = 20_000
"""Turns of a forward run."""
ERRORS_KEPT = 256
"""Errors of estimated starts that make the next intervals: enough for a tenth, and recent."""
ESTIMATES_KEPT = 10_000
"""Estimates that wait for their jobs to start; the oldest are forgotten."""
FORWARD_S = 0.25
"""How long a forward run may take, on a thread of its own."""
FORWARD_STATE_MAX = 5_000
"""Workers and executions that are copied for a forward run; where there are more, jobs start evenly
enough for an estimate by rate."""
FORWARD_PLAN_FRESH_MS = 1_000
"""How old a forward run may be to answer one more question."""
SAMPLE_EVERY_MS = 30_000
"""How often starts of some jobs are estimated unasked, for the calibration."""
SAMPLED_JOBS = 20
"""Jobs in each of these samples."""
WAIT_HISTORIES_KEPT = 5_000
"""Jobs whose answered causes are remembered."""
WAIT_CAUSES_EACH = 8
"""Causes remembered of each, the newest."""
TRIED_STATE_MAX = 500
"""Workers and executions that are copied several times to try remedies."""
SWEEP_EVERY_S = 60.0
"""How often storage and uploads are swept: nobody waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits of an engine that a test may set otherwise."""

    inbox_max: int = INBOX_MAX
    turn_weight_max: int = TURN_WEIGHT_MAX
    key_marks: int = KEY_MARKS
    used_keys_read_max: int = USED_KEYS_READ_MAX
    used_keys_per_look: int = USED_KEYS_PER_LOOK
    used_keys_look_s: float = USED_KEYS_LOOK_S
    used_keys_retry_s: float = USED_KEYS_RETRY_S
    clock_look_s: float = CLOCK_LOOK_S
    cold_ms: int = COLD_MS
    refill_retry_s: float = REFILL_RETRY_S
    unhealthy_ms: int = UNHEALTHY_MS
    retention_every_s: float = RETENTION_EVERY_S
    durable_inbox_entries: int = DURABLE_INBOX_ENTRIES
    durable_inbox_look_s_min: float = DURABLE_INBOX_LOOK_S_MIN
    durable_inbox_look_s_max: float = DURABLE_INBOX_LOOK_S_MAX
    inbox_failures_max: int = INBOX_FAILURES_MAX
    seen_after_ms: int = SEEN_AFTER_MS
    reachability_alone_look_s: float = REACHABILITY_ALONE_LOOK_S


ENGINE_LIMITS: Final = EngineLimits()
"""The limits of a real server: the constants above."""
