"""Every limit of the engine, named, with its reason; `EngineLimits` hands in those that vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INBOX_MAX = 20_000
"""Inputs that may wait for a turn; past it callers are asked to slow down."""
TURN_WEIGHT_MAX = 20_000
"""Jobs, reports and inputs stepped in one turn: no append may take so long that others time out."""
CLOCK_JUMP_MS = 500
"""The wall clock may drift this much against the steady one before it is taken for a jump."""
RETRY_DELAY_S_MIN = 0.1
"""The first pause after the store failed."""
RETRY_DELAY_S_MAX = 0.5
"""The longest pause between two tries to reach the store again."""
TRUST_MARGIN = 0.1
"""The part of the TTL for which a leader stops before others may begin: clocks run unevenly."""
RENEWALS_PER_TTL = 4
"""How often a leader says that it lives while others wait for it to be silent once."""
LOOKS_PER_TTL = 20
"""How often the others look at the leader and the journal in that time."""
UNREACHED_PER_TTL = 3
"""A leader that does not answer the other servers either is gone when it has been silent in the
store for this part of the TTL: longer than it pauses between two renewals."""
ABSENT_PER_TTL = 10
"""A leader whose connection to the store has ended, and that has made no other in this part of the
TTL, is gone. A live one makes another within a few round trips."""
LEADER_PAUSE_MS = 1_000
"""An append that took longer than this kept workers waiting, and is made up to them."""
BEAT_NEAR_PART = 0.125
"""A beat that is nearer than this part of its pause is taken for the one that has just been."""
BEAT_NEAR_S_MAX = 0.02
"""The same in seconds, for long ones: timers are exact to some milliseconds."""
PULSE_S = 1.0
"""How often the server notes that it is not standing still."""
KEY_MARKS = 1 << 24
"""Marks of used idempotency keys: 2 MiB for those of a day. With a million keys one new key in
sixteen finds its mark taken, and is looked up."""
USED_KEYS_READ_MAX = 200_000
"""Keys that are read back when a server begins to lead; where more were used, all are looked up
for a day."""
USED_KEYS_PER_LOOK = 1_000
"""The same at once: a millisecond or two of the loop."""
USED_KEYS_LOOK_S = 0.01
"""Between two of these reads: jobs come first."""
USED_KEYS_RETRY_S = 1.0
"""The same after one that failed."""
FOLLOW_RECORDS = 500
"""Journal records that a follower reads at once."""
DURABLE_INBOX_ENTRIES = 1_000
"""Submissions left in the store that the leader picks up at once."""
DURABLE_INBOX_LOOK_S_MIN = 0.1
"""How soon it looks for more after there were some."""
DURABLE_INBOX_LOOK_S_MAX = 0.5
"""How long it pauses at most while there are none: an idle database is left alone."""
REFILL_PATIENCE_S = 0.2
"""How long a refill that nobody waits for lets the fold take its time: one that is hurried folds
less at once, and does more work in the end."""
REFILL_LOOK_S = 0.02
"""How often it looks meanwhile: at a number."""
REFILL_RETRY_S = 0.5
"""Pause before the store is asked again for waiting jobs that it could not read."""
COLD_MS = 60_000
"""How long a follower leaves it at that when too many jobs wait to keep a copy of the first."""
DURABILITY_LOOK_S = 2.0
"""How often the database is asked what its commits are worth: a lost standby shows soon."""
ANNOUNCE_S = 1.0
"""How often a server tells the others that it is there."""
REACHABILITY_LOOK_S = 0.5
"""How often a leader looks whether the others still reach it."""
REACHABILITY_ALONE_LOOK_S = 5.0
"""The same for one that has seen no others: an idle database is left alone."""
REACHABILITY_SILENT_MS = 3_000
"""Whoever has said nothing for so long is not asked for its opinion."""
SEEN_AFTER_MS = 6_000
"""Whoever began to tell of itself so long ago has been seen by a leader that was alone before."""
LAG_SAMPLES = 3_600
"""Ends of the journal that a follower remembers to say for how long it is behind: an hour's."""
RETENTION_EVERY_S = 600.0
"""How often the leader looks for finished work that is too old to be kept."""
RETENTION_PAUSE_S = 0.05
"""Between two pieces of dropping it, for whoever else wants the store."""
CLOCK_LOOK_S = 10.0
"""The longest sleep while something is to come: setting the wall clock ends no sleep by itself."""
FORWARD_STARTS_MAX = 2_000
"""Starts that a forward run plays through before the rest is reckoned from the pace so far."""
FORWARD_TURNS_MAX = 20_000
"""Turns of a forward run, whatever they bring."""
ERRORS_KEPT = 256
"""Errors of estimated starts that the next intervals go by: enough for a tenth, and recent."""
ESTIMATES_KEPT = 10_000
"""Estimates that wait for their jobs to start; the oldest are forgotten."""
FORWARD_S = 0.25
"""How long a forward run may take, on a thread of its own."""
FORWARD_STATE_MAX = 5_000
"""Workers and executions of which a copy is made to look ahead; where there are more, those that
wait flow evenly enough to reckon."""
FORWARD_PLAN_FRESH_MS = 1_000
"""How old a forward run may be to answer one more question."""
SAMPLE_EVERY_MS = 30_000
"""How often some jobs are told a start unasked, to see how it turns out."""
SAMPLED_JOBS = 20
"""How many of them each time."""
WAIT_HISTORIES_KEPT = 5_000
"""Jobs whose causes are remembered as they were told."""
WAIT_CAUSES_EACH = 8
"""Of each so many: the newest."""
TRIED_STATE_MAX = 500
"""Workers and executions of which several copies are made to try what would help."""
SWEEP_EVERY_S = 60.0
"""How often storage and uploads are looked over: nobody waits for what goes then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits that a server is given, so that a test can run one with others."""

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
    retention_every_s: float = RETENTION_EVERY_S
    durable_inbox_entries: int = DURABLE_INBOX_ENTRIES
    durable_inbox_look_s_min: float = DURABLE_INBOX_LOOK_S_MIN
    durable_inbox_look_s_max: float = DURABLE_INBOX_LOOK_S_MAX
    seen_after_ms: int = SEEN_AFTER_MS
    reachability_alone_look_s: float = REACHABILITY_ALONE_LOOK_S


ENGINE_LIMITS: Final = EngineLimits()
"""The limits of a server that nobody gave others: the constants above."""
