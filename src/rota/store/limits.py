"""Every limit of the store, named, with its reason; `StoreLimits` hands in those that vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PROJECTION_WINDOW_WRITES = 4_000
"""Writes folded in one transaction: enough that most short jobs become one row, and few enough
that an append which arrives meanwhile waits some tens of milliseconds."""
PROJECTION_IDLE_S = 0.02
"""With no reader waiting, how long the writer hopes for more appends before it folds few."""
PROJECTION_BACKLOG_WRITES = 100_000
"""Unfolded writes beyond which appends wait for the fold: bounds what a reader waits and what a
restart replays."""
PROJECTION_RETRY_S = 0.5
"""Pause after a fold that failed, for example on a full disk."""
ROWS_PER_STATEMENT = 256
"""Rows given to SQLite in one call. It gives up the interpreter lock once a call, and getting it
back from a busy event loop takes milliseconds: with a row a call the fold crawls."""
READERS = 4
"""Threads that read, each with its own connection; more only fight over the interpreter lock."""
JOBS_PER_LOOKUP = 100
"""Jobs read for callers that ask for one each, and come while others are read."""
KEYS_PER_LOOKUP = 1_000
"""Idempotency keys looked up by one read."""
READER_BUSY_MS = 5_000
"""A reader in WAL mode meets a lock only in moments such as recovery; this outlasts them."""
WRITER_CACHE_KIB = 64 * 1024
"""Page cache of the writer: the right edges of all indexes stay in memory."""
READER_CACHE_KIB = 8 * 1024
"""Page cache of each reader; the system's file cache is behind it."""
CHECKPOINT_PAGES = 4_000
"""Pages (of 4 KiB) in the write-ahead log that make the writer move them to the database."""
WAL_BYTES_KEPT = 64 * 1024 * 1024
"""The write-ahead log is cut back to this after a burst."""
SCAN_IDS_MAX = 4_000
"""Candidates looked at in one statement of a filtered list."""
PROBE_IDS = 2_000
"""How far the matches of each filter are counted to see which of them is the rarest."""
LOOKUP_COST = 16
"""Work of one look-up by id, in entries of an index that is walked: what a search counts in, as
measured in PostgreSQL with all of it in memory."""
ROW_COST = 4
"""The same for a look at the row of an index's entry."""
SEARCH_SAMPLE = 200
"""Newest entries of each filter by which PostgreSQL's search sees which one is rare."""
SEARCH_FIRST_UNITS = 2_000
"""Work of the first step of a search: most pages are full by then."""
SEARCH_STEP_UNITS = 16_000
"""Work of any one step: some ten or twenty milliseconds of a processor."""
JOURNAL_AGE_MS = 24 * 3600 * 1000
"""Journal kept after it was folded: a stream that was away for a day can still go on."""
JOURNAL_RECORDS_MAX = 200_000
"""Journal records kept at most, whatever their age: on a busy day the disk comes first."""
KEY_AGE_MS = 24 * 3600 * 1000
"""How long an idempotency key is honoured."""
OCCURRENCE_AGE_MS = 400 * 24 * 3600 * 1000
"""How long SQLite keeps what became of a schedule's instants: more than a year, for yearly ones."""
EVENT_AGE_MS = 7 * 24 * 3600 * 1000
"""How long an event is known, so that the same again has no effect."""
TRIGGER_DECISION_AGE_MS = 30 * 24 * 3600 * 1000
"""How long SQLite keeps what triggers made of events."""
PRUNE_PER_RECORD = 2
"""Old records (and keys) deleted for each one folded: above one, so that a backlog shrinks, and
small, so that no fold is held up."""
PRUNE_MIN = 16
"""The least that a fold prunes, so that a quiet server catches up too."""
LOG_BYTES_PER_EXECUTION = 64 * 1024 * 1024
"""Log kept of one execution unless the opener says otherwise."""
LOG_PIECE_BYTES = 64 * 1024
"""Longest piece of log in one row: a read that starts in the middle fetches little in vain."""
LOG_READERS = 2
"""Threads that read logs."""
ARTIFACT_NAME_BYTES = 255
"""The longest file name that common file systems take; folders are a part of it."""
ARTIFACT_DEPTH = 16
"""Folders within each other that a file may be in, and itself."""
ARTIFACT_PIECE_BYTES = 256 * 1024
"""One read of a stored file."""
ARTIFACT_THREADS = 2
"""Threads that wait for the disk with files."""
POSTGRES_PROJECTION_WINDOW_WRITES = 50_000
"""The same as FOLD_WINDOW_WRITES where a fold holds up no append: wider, so that under load most
jobs have ended within it. A job that has not is written two or three times, into all indexes."""
PROJECTION_BEGIN_WRITES = 20_000
"""Writes that wait for PostgreSQL's fold when it begins, with no reader waiting: few enough that it
works beside the loop all the time, and that little is left to do when the last job has ended."""
FOLD_SLICE_WRITES = 500
"""Writes that it takes before it looks whether the loop is at something: a third of a
millisecond."""
FOLD_SLICE_ROWS = 100
"""Rows that it makes and sends before it does: as long."""
FOLD_GIVES_WAY_S = 0.01
"""How long it waits for the loop at most before each slice: a turn is seldom longer, and the next
wait for a commit not far."""
PRECEDENCE_ROUNDS = 8
"""Rounds of the loop from a turn's end, or its commit, until what follows from it is sent."""
PROJECTION_LAG_S = 0.5
"""With no reader waiting, how long PostgreSQL's fold lets many writes gather. What a reader then
waits for is the folding of what came in this time."""
FOLD_TAIL_S = 5.0
"""How long, under load and with no reader waiting, PostgreSQL's tables may lack what has not ended
yet: a job that lives shorter is mostly written once."""
FOLD_TAIL_JOBS = 40_000
"""Jobs that they may lack: what a reader waits for is that these are written."""
FOLD_TAIL_WRITES = 200_000
"""Writes since the tables had all: bounds what a server that takes over folds again."""
FOLD_COMPANY_S = 60.0
"""How long PostgreSQL's tables are kept near the journal after another server had to fold for its
own readers: there may be more of them, and only the leader's own can tell it that they wait."""
FOLD_JOBS_KNOWN = 200_000
"""Live jobs that PostgreSQL's fold remembers having written, as many as the scheduler's window: a
hundred bytes each beside what is kept of them anyway."""
FOLD_SHELF_BYTES = 64 * 1024 * 1024
"""Rows of the shelf, as they were read, that it remembers until they move: with short specs enough
for what half of the scheduler's window brings back."""
PLAN_CACHE_FIRST_WRITES = 1_000
"""Writes after which PostgreSQL plans the fold's statements anew: the first plans may be those of
empty tables."""
PLAN_CACHE_GROWTH = 4
"""So many times as many until the next time, up to FOLD_PLANS_WRITES_MAX."""
PLAN_CACHE_WRITES_MAX = 200_000
"""And then always after so many: a table may have been emptied, cleaned and planned for since."""
PROJECTION_FEW_WRITES = 1_000
"""Fewer than these are folded after POSTGRES_FOLD_IDLE_S without another: there is little to gain,
and a follower that is read from sees the tables change sooner."""
POSTGRES_PROJECTION_IDLE_S = 0.1
"""The same as FOLD_IDLE_S where a fold is half a dozen round trips: a short job's start and end
are in one of them, and it does not begin while the job is on its way. Nor is the folding thread
told of an append before: it would take the interpreter's lock for nothing."""
POSTGRES_READERS = 4
"""Connections of one server for its readers; a cell's servers share the database's few hundred."""
CONNECT_S = 5.0
"""How long a new connection to the database may take."""
APPEND_DEADLINE_S = 10.0
"""After this the append's connection is closed and its fate is unknown. Longer than any leader may
wait before it stops trusting itself, so that it never ends an append that could still count."""
APPEND_IDLE_S = 30.0
"""After this without an append something small is asked on its connection: what stands between may
drop one that is silent for minutes, without a word, and the next append would wait in vain. And a
follower has one before it leads."""
LEADER_DEADLINE_S = 1.5
"""The same for the leader's row: half a lease, so that a renewal on a dead connection leaves time
for another one on a fresh connection. Servers set it by their own `--leader-ttl`."""
LEADER_LOCK_RETRY_S = 0.1
"""Between two tries of a leader to show that it is still there, after it lost its connection."""
READ_DEADLINE_S = 30.0
"""A read that takes longer is given up: somebody asked for more than a page."""
SIDE_DEADLINE_S = 10.0
"""The same for what is written beside the journal: logs, files, tokens, the audit trail."""
FOLLOW_DEADLINE_S = 5.0
"""The same for the reads that a follower lives by: it soon tries another connection."""
PROJECTION_DEADLINE_S = 120.0
"""One transaction of the fold, or of reading all that is live."""
PROJECTION_STATEMENT_S = 30.0
"""One statement of it: a database that vanished without a word is noticed by then."""
CLOSE_S = 2.0
"""How long a goodbye to the database may take when a server stops."""
PROJECTION_STALLED_LOOK_S = 0.3
"""A fold that takes longer looks, as often as this, whether it waits for somebody frozen."""
PROJECTION_STALLED_S = 1.5
"""A server that has said nothing to the database for so long, in the middle of a transaction that
others wait for, stands still: its transaction is ended."""
PROJECTION_CLOSE_S = 10.0
"""How long a server that stops goes on folding; the next one folds the rest."""
MIGRATE_WAIT_MS = 300_000
"""How long a server waits at its start while another one migrates."""
MIGRATE_TRIES = 30
"""How often a step that cannot have a table for itself is tried again, a few seconds apart."""
ONLINE_INDEX_BYTES_MIN = 8 * 1024 * 1024
"""Partitions that are larger get a step's indexes before the step; smaller ones take a moment."""
ONLINE_INDEX_S = 3600.0
"""One index of one partition, built while others write; it waits for transactions before it."""
NEXT_HOST_S = 0.25
"""Where an address names several hosts, how long each has before the next one is asked too."""
LOCK_WAIT_MS = 2_000
"""Nobody of ours holds a lock for long; an administrator's is worth saying so and trying again."""
LOOK_LOCK_MS = 150
"""The same for what every server looks at twice a second: whoever is not locked out goes on."""
IDLE_IN_TRANSACTION_MS = 60_000
"""The database ends a transaction whose server stopped in the middle of it: it holds locks."""
FOLLOWER_PATIENCE_S = 0.25
"""How long a follower's reader waits for the leader to fold before its own server does it."""
FOLLOWER_LOOK_S = 0.005
"""How often it looks meanwhile: at one row."""
JOURNAL_PARTITION_RECORDS = 50_000
"""Journal records in one partition: some of them together are JOURNAL_RECORDS_MAX."""
JOURNAL_PARTITIONS_AHEAD = 2
"""Partitions that wait for their first record: the fold would have to be away for this many before
an append found no place."""
LOAD_ROWS_PER_FETCH = 20_000
"""Rows taken at once while all that is live is read: bounds what is held twice."""
SPILLED_ROWS_PER_FETCH = 2_000
"""The same for the next jobs of a shelf, while everybody goes on: some milliseconds of the loop."""
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
SWEEP_EXECUTIONS = 200
"""Executions of deleted jobs whose logs and files are removed at once."""
UPKEEP_EVERY_MS = 5 * 60 * 1000
"""How often, in the journal's own time, the fold makes partitions and drops old ones."""
TOKENS_MAX = 10_000
"""Tokens alive at once: every server has all of them in memory."""
TOKEN_KEPT_MS = 90 * 24 * 3600 * 1000
"""How long a token that ended stays listed, so that what it did can be understood."""
AUDIT_DROPS_MIN = 1_000
"""Old audit entries that one write of new ones removes at least; else twice as many as came, so
that the trail shrinks to its age and no transaction is long."""
COUNT_ROWS_MAX = 100_000
"""Jobs looked at to count those of one tenant."""
NODE_KEPT_MS = 24 * 3600 * 1000
"""How long a server that says nothing stays listed: an operator should see that one is missing."""
INBOX_PUT_TRIES = 5
"""How often a submission with a key is put again because the one before it just left the inbox."""
CHECKUP_S = 10.0
"""How long `rota doctor` and `rota migrate --check` wait for one answer of the database."""
OBJECT_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""One file in object storage: what a training run leaves behind fits."""
DATABASE_FILE_BYTES_MAX = 1024 * 1024 * 1024
"""One file that is kept in the database, for want of a storage."""
OBJECT_BYTES_MIN = 1024 * 1024
"""Output files larger than this go to object storage; smaller ones are not worth the journey."""
SPOOL_PIECE_BYTES = 1024 * 1024
"""One read of an upload that is hashed again."""
SPOOL_UPLOADS_MAX = 512
"""Uploads on one server's disk, under way or left behind: each may be large."""
CLOUD_PART_BYTES = 8 * 1024 * 1024
"""One part of an upload to a cloud: 10,000 of them, the most that S3 takes, are 80 GiB."""
CLOUD_PARTS_AT_ONCE = 4
"""Parts of one upload that are in memory and on their way."""
CLOUD_REQUEST_S = 60
"""One request to object storage: a part over a slow line."""
CLOUD_RETRY_S = 60
"""How long a request to object storage is tried again before its caller hears of it."""
OBJECT_DELETIONS_AT_ONCE = 200
"""Objects removed from storage at a time."""
BLOB_PIECE_BYTES = 1024 * 1024
"""One row of an object that is kept in the database."""
INTENT_MS = 24 * 3600 * 1000
"""How long an object that was put and never taken up stays: longer than any upload takes."""
UPLOAD_KEPT_S = 24 * 3600.0
"""How long a broken upload can be gone on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Limits that a store is given, so that a test can open one with others."""

    journal_records_max: int = JOURNAL_RECORDS_MAX
    old_rows_per_drop: int = OLD_ROWS_PER_DROP
    free_pages_kept: int = FREE_PAGES_KEPT
    free_pages_per_drop: int = FREE_PAGES_PER_DROP
    tokens_max: int = TOKENS_MAX
    audit_drops_min: int = AUDIT_DROPS_MIN
    spool_uploads_max: int = SPOOL_UPLOADS_MAX
    journal_partition_records: int = JOURNAL_PARTITION_RECORDS
    spilled_rows_per_fetch: int = SPILLED_ROWS_PER_FETCH
    connect_s: float = CONNECT_S
    close_s: float = CLOSE_S
    append_deadline_s: float = APPEND_DEADLINE_S
    append_idle_s: float = APPEND_IDLE_S
    follow_deadline_s: float = FOLLOW_DEADLINE_S
    projection_begin_writes: int = PROJECTION_BEGIN_WRITES
    projection_lag_s: float = PROJECTION_LAG_S
    fold_company_s: float = FOLD_COMPANY_S
    postgres_projection_idle_s: float = POSTGRES_PROJECTION_IDLE_S
    fold_gives_way_s: float = FOLD_GIVES_WAY_S
    projection_statement_s: float = PROJECTION_STATEMENT_S
    projection_close_s: float = PROJECTION_CLOSE_S
    projection_stalled_s: float = PROJECTION_STALLED_S
    migrate_tries: int = MIGRATE_TRIES
    online_index_bytes_min: int = ONLINE_INDEX_BYTES_MIN


STORE_LIMITS: Final = StoreLimits()
"""The limits of a store that nobody gave others: the constants above."""
