"""Limits of the store, each with its reason; `StoreLimits` hands in those that vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROJECTION_WINDOW_WRITES = 4_000
"""Writes projected in one transaction: enough that most short jobs become one row, and few enough
that an append which arrives meanwhile waits some tens of milliseconds."""
PROJECTION_IDLE_S = 0.02
"""With no reader waiting, how long the writer waits for more appends before it projects few."""
PROJECTION_BACKLOG_WRITES = 100_000
"""Writes not yet projected beyond which appends wait for the projection: bounds what a reader waits
and what a restart replays."""
PROJECTION_RETRY_S = 0.5
"""Pause after a projection that failed, for example on a full disk."""
ROWS_PER_STATEMENT = 256
"""Rows given to SQLite in one call. It gives up the interpreter lock once a call, and getting it
back from a busy event loop takes milliseconds: with one row a call the projection would crawl."""
READERS = 4
"""Threads that read, each with its own connection; more only fight over the interpreter lock."""
JOBS_PER_LOOKUP = 100
"""Jobs in one batched lookup, for callers that ask for one job each."""
KEYS_PER_LOOKUP = 1_000
"""Idempotency keys in one batched lookup."""
READER_BUSY_MS = 5_000
"""A reader in WAL mode meets a lock only in moments such as recovery; this outlasts them."""
WRITER_CACHE_KIB = 64 * 1024
"""Page cache of the writer: the right edges of all indexes stay in memory."""
READER_CACHE_KIB = 8 * 1024
"""Page cache of each reader; the system's file cache is behind it."""
CHECKPOINT_PAGES = 4_000
"""Pages (of 4 KiB) in the write-ahead log from which the writer moves them to the database."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""The write-ahead log is cut back to this after a burst."""
SCAN_IDS_MAX = 4_000
"""Candidates looked at in one statement of a filtered list."""
PROBE_IDS = 2_000
"""How far the matches of each filter are counted to see which of them is the rarest."""
LOOKUP_COST = 16
"""Work of one lookup by id, in index entries walked, which is the unit of a search's work; measured
in PostgreSQL with all data in memory."""
ROW_COST = 4
"""The same for reading the row of an index entry."""
SEARCH_SAMPLE = 200
"""Newest entries of each filter that PostgreSQL's search samples to see which one is rare."""
SEARCH_FIRST_UNITS = 2_000
"""Work of the first step of a search: most pages are full by then."""
SEARCH_STEP_UNITS = 16_000
"""Work of any one step: some ten or twenty milliseconds of a processor."""
JOURNAL_AGE_MS = 24 * 3600 * 1000
"""Journal kept after it was projected: a stream that was away for a day can still go on."""
JOURNAL_RECORDS_MAX = 200_000
"""Journal records kept at most, whatever their age: on a busy day the disk comes first."""
KEY_AGE_MS = 24 * 3600 * 1000
"""How long an idempotency key is honoured."""
OCCURRENCE_AGE_MS = 400 * 24 * 3600 * 1000
"""How long SQLite keeps occurrences of schedules: more than a year, for yearly schedules."""
EVENT_AGE_MS = 7 * 24 * 3600 * 1000
"""How long an event is remembered, so that the same event again has no effect."""
TRIGGER_DECISION_AGE_MS = 30 * 24 * 3600 * 1000
"""How long SQLite keeps the decisions of triggers."""
PRUNE_PER_RECORD = 2
"""Old records (and keys) deleted for each one projected: above one, so that a backlog shrinks, and
small, so that no projection is held up."""
PRUNE_MIN = 16
"""The least that one projection deletes, so that a quiet server catches up too."""
LOG_BYTES_PER_EXECUTION = 64 * 1024 * 1024
"""Log kept of one execution unless the opener says otherwise."""
LOG_PIECE_BYTES = 64 * 1024
"""Longest piece of log in one row: a read that starts in the middle reads little too much."""
LOG_READERS = 2
"""Threads that read logs."""
ARTIFACT_NAME_BYTES = 255
"""The longest file name that common file systems take; folders are a part of it."""
ARTIFACT_DEPTH = 16
"""Parts of an artifact's path: folders, and the file itself."""
ARTIFACT_PIECE_BYTES = 256 * 1024
"""One read of a stored file."""
ARTIFACT_THREADS = 2
"""Threads that wait for the disk with files."""
POSTGRES_PROJECTION_WINDOW_WRITES = 150_000
"""The same as PROJECTION_WINDOW_WRITES where a projection holds up no append: wider, so that under
load most jobs have ended within it. One that has not is written two or three times, into all
indexes."""
PROJECTION_BEGIN_WRITES = 150_000
"""Writes from which PostgreSQL's projection begins, with no reader waiting: few enough that it
works beside the loop all the time, and that little is left to do when the last job has ended."""
PROJECTION_LAG_S = 0.5
"""With no reader waiting, how long PostgreSQL's projection lets many writes gather. A reader that
comes then waits until these are projected."""
PLAN_CACHE_FIRST_WRITES = 1_000
"""Writes after which PostgreSQL plans the projection's statements anew: the first plans may be
those of empty tables."""
PLAN_CACHE_GROWTH = 4
"""Factor by which these writes grow each time, up to PLAN_CACHE_WRITES_MAX."""
PLAN_CACHE_WRITES_MAX = 200_000
"""From then on always after so many: a table may have been emptied and vacuumed since."""
PROJECTION_FEW_WRITES = 1_000
"""Fewer writes than these are projected after POSTGRES_PROJECTION_IDLE_S without another: waiting
longer gains little, and readers of a follower see the tables change sooner."""
POSTGRES_PROJECTION_IDLE_S = 0.1
"""The same as PROJECTION_IDLE_S where a projection is half a dozen round trips: a short job's start
and end are in one of them. Nor is the projector's thread woken before: it would take the
interpreter lock for nothing."""
POSTGRES_READERS = 4
"""Connections of one server for its readers; a cell's servers share the database's few hundred."""
CONNECT_S = 5.0
"""How long a new connection to the database may take."""
APPEND_DEADLINE_S = 10.0
"""After this the append's connection is closed and its outcome is unknown. Longer than any leader
may trust its lease, so that it never ends an append that could still count."""
APPEND_IDLE_S = 30.0
"""After this without an append something small is asked on its connection: a firewall may drop a
connection that is silent for minutes, and the next append would wait in vain. It also connects a
follower before it leads."""
LEADER_DEADLINE_S = 1.5
"""The same for the leader's row: half a lease, so that a renewal on a dead connection leaves time
for another one on a fresh connection. Servers derive it from their `--leader-ttl`."""
LEADER_LOCK_RETRY_S = 0.1
"""Pause before a leader that lost its connection takes its advisory lock again."""
READ_DEADLINE_S = 30.0
"""A read that takes longer is cancelled: somebody asked for more than a page."""
SIDE_DEADLINE_S = 10.0
"""The same for what is written beside the journal: logs, files, tokens, the audit log."""
FOLLOW_DEADLINE_S = 5.0
"""The same for the reads with which a follower follows: it soon tries another connection."""
PROJECTION_DEADLINE_S = 120.0
"""One transaction of the projection, or of loading all that is live."""
PROJECTION_STATEMENT_S = 30.0
"""One statement of it: a database that vanished silently is noticed by then."""
CLOSE_S = 2.0
"""How long closing a connection may take when a server stops."""
PROJECTION_WAIT_S = 2.0
"""How long a reader waits for the projection before it is asked to try again."""
PROJECTION_AT_HAND_BYTES = 64 * 1024 * 1024
"""Appended records that a projector keeps until they are projected, so that it need not read them:
a second of the highest load."""
PROJECTION_BEHIND_WRITES_MAX = 200_000
"""Writes behind from which a reader does not wait at all: that would take longer anyway."""
PROJECTION_TICK_S = 0.005
"""How often a projector looks at the tables while a reader waits for another process to project."""
PROJECTION_YIELD_S = 0.1
"""Pause of a projector that finds the tables locked by another one."""
PROJECTION_WATCH_S = 0.5
"""How often a projector that has nothing to do looks whether the one of the leader moves the
tables."""
PROJECTION_STAND_IN_S = 1.2
"""How long the tables may stand still, with more in the journal, before another server projects:
with PROJECTION_WATCH_S it takes over within two seconds."""
PROJECTION_IDLE_LOOK_S = 30.0
"""How often the projector of an idle leader looks at the tables: others may have repaired jobs."""
PROJECTION_STALLED_S = 1.5
"""A server that sent nothing to the database for so long, in the middle of a transaction that
others wait for, counts as frozen: its transaction is ended."""
PROJECTION_CLOSE_S = 10.0
"""How long a server that stops goes on projecting; the next one projects the rest."""
MIGRATE_WAIT_MS = 300_000
"""How long a server waits at its start while another one migrates."""
MIGRATE_TRIES = 30
"""How often a step that does not get its table lock is tried again, a few seconds apart."""
ONLINE_INDEX_BYTES_MIN = 8 * 1024 * 1024
"""Partitions that are larger get a step's indexes before the step; smaller ones take a moment."""
ONLINE_INDEX_S = 3600.0
"""One index of one partition, built while others write; it waits for transactions before it."""
NEXT_HOST_S = 0.25
"""Where an address names several hosts, how long each has before the next one is tried too."""
LOCK_WAIT_MS = 2_000
"""Rota holds no lock for long; on an administrator's lock a statement fails and is tried again."""
LOOK_LOCK_MS = 150
"""The same for what every server reads twice a second: a locked table holds up only its own
part."""
IDLE_IN_TRANSACTION_MS = 60_000
"""The database ends a transaction whose server stopped in the middle of it: it holds locks."""
JOURNAL_PARTITION_RECORDS = 50_000
"""Journal records in one partition: some of them together are JOURNAL_RECORDS_MAX."""
JOURNAL_PARTITIONS_AHEAD = 2
"""Partitions that wait for their first record: the projection would have to be away for this many
before an append found no partition."""
LOAD_ROWS_PER_FETCH = 20_000
"""Rows fetched at once while all that is live is loaded: bounds what is in memory twice."""
LOAD_RECORDS_PER_FETCH = 64
"""Journal records fetched at once while the newest are replayed: each may hold thousands of
writes."""
SPILLED_ROWS_PER_FETCH = 2_000
"""The same for the next jobs of a spill queue, beside a running loop: some milliseconds of it."""
REST_ROWS_PER_DROP = 10_000
"""Rows without a partition of their own that one call of `drop_before` deletes at most."""
OLD_JOBS_COUNTED = 100_000
"""How far the jobs of a day are counted before it goes, if the database has no figure for them."""
OLD_ROWS_PER_DROP = 500
"""Jobs that one call of `drop_before` looks at on SQLite: an append waits for it that long."""
FREE_PAGES_KEPT = 4_000
"""Free pages (of 4 KiB) that a SQLite file keeps for what comes next."""
FREE_PAGES_PER_DROP = 2_000
"""Free pages that one call of `drop_before` gives back to the disk at most."""
QUARANTINED_WRITES_SHOWN = 10
"""Writes shown of each job in quarantine: the first says what could not be written."""
QUARANTINED_WRITE_BYTES_SHOWN = 16_384
"""A larger one is not shown: somebody reads it."""
SWEEP_EXECUTIONS = 200
"""Executions of deleted jobs whose logs and files are removed at once."""
UPKEEP_EVERY_MS = 5 * 60 * 1000
"""How often, in the journal's own time, the projector makes partitions and drops old ones."""
TOKENS_MAX = 10_000
"""Live tokens: every server has all of them in memory."""
TOKEN_KEPT_MS = 90 * 24 * 3600 * 1000
"""How long a token that ended stays listed, so that the audit log can be understood."""
AUDIT_DROPS_MIN = 1_000
"""Old audit entries that one write of new ones removes at least; else twice as many as were added,
so that the audit log shrinks to its age and no transaction is long."""
COUNT_ROWS_MAX = 100_000
"""Jobs read at most to count those of one tenant."""
NODE_KEPT_MS = 24 * 3600 * 1000
"""How long a server that says nothing stays listed: an operator should see that one is missing."""
INBOX_PUT_TRIES = 5
"""How often a submission is put again because an entry with its key has just left the inbox."""
INBOX_TAKE_BYTES = 64 * 1024 * 1024
"""Bodies of inbox entries read at once, or a single larger one: a leader holds them all in
memory."""
INBOX_SPEC_BYTES_MAX = 33 * 1024 * 1024
"""The body of an entry that an application made by SQL. `rota.submit` takes as much as POST /jobs,
and adds an id; what is larger was not made by it, and is not read."""
INBOX_SET_ASIDE_MS = 7 * 24 * 3600 * 1000
"""How long the reason stays for which an inbox entry was set aside: its submitter may look after a
weekend."""
INBOX_SET_ASIDE_MAX = 10_000
"""Reasons that are kept: an application that goes wrong submits without end."""
INBOX_SET_ASIDE_BODY_BYTES = 16 * 1024
"""A body up to this size is kept beside the reason: together a full table takes 160 MiB."""
CHECKUP_S = 10.0
"""How long `rota doctor` and `rota migrate --check` wait for one answer of the database."""
OBJECT_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""One file in object storage: what a training run leaves behind fits."""
DATABASE_FILE_BYTES_MAX = 1024 * 1024 * 1024
"""One file that is kept in the database because no object storage is named."""
OBJECT_BYTES_MIN = 1024 * 1024
"""Output files larger than this go to object storage; for smaller ones it does not pay."""
SPOOL_PIECE_BYTES = 1024 * 1024
"""One read of an upload that is hashed again."""
SPOOL_UPLOADS_MAX = 512
"""Uploads on one server's disk, in progress or abandoned: each may be large."""
CLOUD_PART_BYTES = 8 * 1024 * 1024
"""One part of an upload to a cloud: 10,000 of them, the most that S3 takes, are 80 GiB."""
CLOUD_PARTS_AT_ONCE = 4
"""Parts of one upload that are in memory and sent at once."""
CLOUD_REQUEST_S = 60
"""One request to object storage: a part over a slow line."""
CLOUD_RETRY_S = 60
"""How long a request to object storage is retried before it fails."""
OBJECT_DELETIONS_AT_ONCE = 200
"""Objects removed from storage at a time."""
BLOB_PIECE_BYTES = 1024 * 1024
"""One row of an object that is kept in the database."""
INTENT_MS = 24 * 3600 * 1000
"""How long an object stays that was put and never referred to: longer than any upload takes."""
UPLOAD_KEPT_S = 24 * 3600.0
"""How long an interrupted upload can be resumed."""
DAMAGED_ROWS_NOTED = 1_000
"""Damaged rows that a server remembers to have logged: a lost disk page must not fill the log."""
DAMAGE_FOUND_MAX = 20
"""Findings of `rota doctor` in one file: with more than a few it is restored as a whole."""
DAMAGE_LOOKED_BYTES = 256 * 1024 * 1024
"""Files up to this size are checked by every `rota doctor`, in seconds; larger ones if asked."""
DAMAGE_ROWS_LOOKED = 200_000
"""Rows of each table on PostgreSQL that `rota doctor` checks: a few seconds."""
DECODED_ROWS_AT_ONCE = 500
"""Rows whose checksums are compared together: they fit into the processor's caches."""
SEALED_ROWS_AT_ONCE = 2_000
"""Rows of a store of 0.1 that get their checksums with one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits that a store is given as values, so that a test can open one with others."""

    journal_records_max: int = JOURNAL_RECORDS_MAX
    old_rows_per_drop: int = OLD_ROWS_PER_DROP
    free_pages_kept: int = FREE_PAGES_KEPT
    free_pages_per_drop: int = FREE_PAGES_PER_DROP
    tokens_max: int = TOKENS_MAX
    audit_drops_min: int = AUDIT_DROPS_MIN
    inbox_take_bytes: int = INBOX_TAKE_BYTES
    inbox_set_aside_max: int = INBOX_SET_ASIDE_MAX
    spool_uploads_max: int = SPOOL_UPLOADS_MAX
    journal_partition_records: int = JOURNAL_PARTITION_RECORDS
    spilled_rows_per_fetch: int = SPILLED_ROWS_PER_FETCH
    connect_s: float = CONNECT_S
    close_s: float = CLOSE_S
    append_deadline_s: float = APPEND_DEADLINE_S
    append_idle_s: float = APPEND_IDLE_S
    leader_deadline_s: float = LEADER_DEADLINE_S
    follow_deadline_s: float = FOLLOW_DEADLINE_S
    projection_begin_writes: int = PROJECTION_BEGIN_WRITES
    projection_lag_s: float = PROJECTION_LAG_S
    postgres_projection_idle_s: float = POSTGRES_PROJECTION_IDLE_S
    projection_wait_s: float = PROJECTION_WAIT_S
    projection_watch_s: float = PROJECTION_WATCH_S
    projection_stand_in_s: float = PROJECTION_STAND_IN_S
    projection_statement_s: float = PROJECTION_STATEMENT_S
    projection_close_s: float = PROJECTION_CLOSE_S
    projection_stalled_s: float = PROJECTION_STALLED_S
    migrate_tries: int = MIGRATE_TRIES
    online_index_bytes_min: int = ONLINE_INDEX_BYTES_MIN


STORE_LIMITS: Final = StoreLimits()
"""The limits of a store unless it is given others: the constants above."""
