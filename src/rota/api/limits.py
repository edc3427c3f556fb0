"""Every limit of the HTTP server, named, with its reason; `ApiLimits` hands in those that vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX = 64 * 1024
"""One request's line and headers: several times what a browser with many cookies sends."""
HEADERS_MAX = 256
"""Headers of one request: each costs more than its bytes, and a browser sends thirty."""
HEAD_S_MAX = 20.0
"""For a request's head to arrive; before that nobody knows whether the client may even ask."""
PARSE_BYTES = 8 * 1024
"""Bytes parsed at a time: as few as 18 of them are a request, and one that has to wait its turn
takes 2 KB of memory."""
CONNECTIONS_MAX = 20_000
"""Connections open at once, where the system lets a process have as many files: two for each of
10,000 workers. An option changes it."""
FILES_RESERVED = 256
"""Files and sockets that are left for all else: the store, logs, uploads, other servers."""
STALL_CHECK_S = 30
"""How often it is looked whether clients take their answers ..."""
STALL_BYTES_MIN = 64 * 1024
"""... and what they must take meanwhile where much is left: slower than any line that works."""
BODY_BUDGET_BYTES = 256 * 1024 * 1024
"""Bodies that came and long answers that nobody took yet, of all requests together: eight of the
largest size, or thousands of the usual one."""
ANSWER_PIECE_BYTES = 256 * 1024
"""Longer answers are sent piece by piece and are counted until they are taken."""
STREAMS_MAX = 256
"""Streams open at once (changes and followed logs): each is a task and a socket."""
STREAM_SEND_S = 30.0
"""A reader that takes nothing for this long is dropped; it resumes where it was."""
STREAM_END_S = 1.0
"""What a shutdown waits for a reader to take a stream's proper end."""
STREAM_KEEPALIVE_S = 15.0
"""Proxies close connections that say nothing for a minute."""
STREAM_RECORDS = 8
"""Journal records read at a time for a stream: a record may hold a whole batch of jobs."""
STREAM_READS_AT_ONCE = 4
"""Streams that read so at the same time: what they read is large, what they tell of it small."""
STREAM_EVENTS_PER_SEND = 256
"""Events encoded at a time, so that a slow reader holds little."""
LOG_READ_BYTES = 256 * 1024
"""Log text read from the store at a time."""
LOG_WAIT_S = 0.1
"""How long a follower whom nobody calls waits before it looks for more text, or for the end."""
LOG_WAIT_S_MAX = 0.5
"""The same, once a log has been quiet for a while."""
LOG_TAIL_LINES_MAX = 1_000_000
"""Lines of a log's end that may be asked for."""
LOG_TAIL_BYTES_MAX = 4 * 1024 * 1024
"""How far back those lines are looked for: some logs are one line without end."""
LOG_GRACE_MS = 10 * 60 * 1000
"""How long after its end an execution may still send what it had printed."""
GRAPH_NODES_MAX = 10_000
"""Jobs in one graph: more cannot be drawn, and must not be read in one go."""
GRAPH_AT_ONCE = 1_000
"""Of those, as many are read at once as are small enough."""
RECALL_JOBS_MAX = 200_000
"""Jobs read back from the store for one request: a fan-out of 100,000 and what hangs on it."""
RECALL_TRIES = 5
"""How often a request is asked again when what it read had changed before it was decided."""
RECALL_PAUSE_S = 0.003
"""Between those: longer than the clock's millisecond, in which before and after look the same."""
PAGE_BYTES_MAX = 16 * 1024 * 1024
"""Payloads, results and errors in one page of jobs; a page that would hold more ends early."""
PAGE_FIRST_ITEMS = 51
"""Jobs read before their size is known: a page of the usual length takes one question."""
PAGE_LOOK = 24_000
"""Work of one page of a filtered list, in entries of the store's indexes: some 20 ms of a
processor. A page that has found little by then ends early, and its cursor leads on."""
PREVIEW_LOOK = 48_000
"""The same for the count that a person waits for before an action on many."""
LONG_PAGES_AT_ONCE = 2
"""Pages longer than that which are read and made at the same time; others wait for their turn, so
that short requests do not wait for many of them."""
READ_AT_ONCE = 100
"""Jobs in one question to the catalog: each may carry megabytes."""
OUTLINES_AT_ONCE = 2_000
"""Outlines in one question: a name and a few words each."""
BULK_PAGE = 100
"""Jobs read at a time by a bulk action, for the same reason."""
PURGE_PAGE = 500
"""Jobs of a long backlog that a purge reads and cancels at a time."""
PURGE_PIECE = 2000
"""Jobs in memory that a purge cancels at a time: one record for all would take longer than a leader
may be silent."""
BODY_READ_S = 60.0
"""A body, or the next piece of a long one, that has not come by then is not waited for."""
BULK_COUNTED_AT_ONCE = 10_000
"""Ids in one question of a preview that counts to the end."""
BULK_EXAMINED_MAX = 1_000
"""Dead letters that a preview of an action on one error reads, to see which of them failed so."""
BULK_AT_ONCE = 100
"""Inputs of one bulk action under way at once: they share commits and leave room for others."""
BULK_REASONS_MAX = 10
"""Different reasons that the answer to a bulk action lists; the rest is counted together."""
BULK_REFUSED_MAX = 10_000
"""Jobs that a bulk action with a limit passes over because it cannot be done to them; then it says
that there are more."""
BULK_REMEMBERED_MAX = 1000
"""Answers of bulk actions kept for repeats of the same key."""
USAGE_WORKERS_MAX = 20_000
"""Workers whose last reported usage is kept in memory."""
USAGE_KINDS_MAX = 16
"""Figures of one usage report that are kept."""
QUERY_FIELDS_MAX = 64
"""Parameters in one query string."""
JSON_DEPTH_MAX = 64
"""Nesting of a payload or result: deeper than any that is meant, far from any parser's limit."""
NAMED_BODY_BYTES = 64 * 1024
"""A refused body up to this size is read again to find which entry of an object was at fault …"""
NAMED_ENTRIES = 64
"""… half a dozen times: as many entries as a job has labels."""
LINK_S = 900
"""How long a signed link to a file works: enough to begin with it, too short to hand around."""
BUNDLE_USE_MS = 3600 * 1000
"""A bundle's last use is noted this often: it only has to tell months apart."""
SESSION_MS = 30 * 24 * 3600 * 1000
"""How long a browser stays signed in."""
SIGN_IN_CODES_MAX = 16
"""Sign-in links waiting to be used."""
INSTANT_MAX = 7_258_118_400_000
"""The year 2200: times beyond are taken for mistakes."""
FUNCTIONS_REMEMBERED_MAX = 4_096
"""Functions whose plain needs are shared between their jobs: a few apps with many functions fit."""
TOKEN_REFRESH_S = 0.5
"""How often a server looks whether tokens changed: all honour a change within a second."""
TOKEN_REFRESH_SOON_S = 0.05
"""An unknown token makes the server look sooner, for it may have been made a moment ago elsewhere;
not more often than this, whoever sends them."""
UNKNOWN_TOKEN_WAIT_S = 1.0
"""How long an unknown token waits for that look."""
TOKEN_REQUESTS_PER_S = 5_000
"""Requests of one token on one server: about what one process can answer at all, so that a single
client gone wild leaves room for others. An option changes it."""
ADDRESS_REQUESTS_PER_S = 10_000
"""The same of one address, before anybody knows who asks; this machine itself is not counted."""
RATE_KEYS_MAX = 50_000
"""Tokens or addresses whose rate is kept; the one quiet for longest is forgotten first."""
WRONG_TOKENS_FREE = 100
"""Wrong tokens an address may send before it has to wait: a mistyped variable in many places, or
somebody who looks what is closed to them."""
WRONG_TOKENS_WAIT_MS = 1_000
"""The first wait; each wrong token after it doubles the next."""
WRONG_TOKENS_WAIT_MS_MAX = 60_000
"""The longest: somebody who has found the right token should not despair."""
WRONG_TOKENS_QUIET_MS = 15 * 60 * 1000
"""After this long without a wrong token an address begins anew."""
WRONG_TOKENS_ADDRESSES_MAX = 20_000
"""Addresses whose wrong tokens are counted."""
AUDIT_AGE_MS = 90 * 24 * 3600 * 1000
"""How long audit entries are kept unless an option says otherwise."""
AUDIT_GATHER_S = 0.5
"""How long entries are gathered before they are written together."""
AUDIT_BATCH = 1_000
"""Entries written at a time."""
AUDIT_PENDING_MAX = 100_000
"""Entries that wait for a store that is away; the oldest beyond are lost, and the log says so."""
AUDIT_PRUNE_S = 60.0
"""How often a server on which nothing changes removes old entries."""
AUDIT_RETRY_S = 2.0
"""Pause after a write that failed."""
AUDIT_STOP_S = 5.0
"""How long a stop waits for the last entries to be written."""
AUDIT_TEXT_MAX = 255
"""Characters of a target or address that an entry keeps."""
TENANTS_REMEMBERED_MAX = 200_000
"""Jobs whose tenant is remembered for the streams of tenants."""
EXECUTIONS_AT_ONCE = 500
"""Executions in one question, once they are known to be small."""
EXECUTIONS_SCANNED_MAX = 2_000
"""Executions looked at for one page of a tenant; the page ends early, and its cursor leads on."""
FORWARD_CONNECT_S = 2.0
"""For a connection to the leader: it is in the same cell, and somebody waits."""
FORWARD_IDLE_S = 30.0
"""How long an unused connection to the leader is kept: less than it keeps its end."""
FORWARD_LOOK_S = 0.1
"""How often a server that forwards looks who leads."""
FORWARD_PATIENCE_MS = 6_000
"""How long a call that may be repeated waits for a new leader: one is there within five seconds."""
FORWARD_SILENT_S = 0.3
"""A leader that answers no submission for so long is not waited for: the server that was asked
accepts them itself."""
FORWARD_SILENT_BYTES_S = 1_000_000
"""A submission may take a second longer for so many bytes."""
FORWARD_SHUN_MS = 1_000
"""Then none is passed on for so long, so that only one in a while has to wait and see."""
KEY_TIME_MS = 15_000
"""How old a key may be for the ids of its request to be of its time: longer than an append that
nobody waits for any more can be on its way."""
REACH_EVERY_S = 0.3
"""How often a follower asks the leader whether it is there."""
REACH_LEADING_S = 0.5
"""How often one that leads itself looks whether it should: with what it looks at anyway."""
REACH_ANSWER_S = 0.5
"""How long that may take."""
REACH_LOST_MS = 700
"""A leader that answered before, and has not for so long, cannot be reached."""
FORWARD_LAST_S = 1.0
"""How long a server that stops still waits for the leader's answers."""
NODE_SILENT_MS = 5_000
"""A server that has not announced itself for so long is shown as silent."""
RUNS_SHOWN = 100
"""Live jobs that the answer about one schedule names."""
OCCURRENCES_READ_AT_ONCE = 1_000
"""Records of a schedule's ledger read at a time for a backfill."""
BACKFILL_SHOWN = 100
"""Instants that the answer to a backfill names."""
HISTORY_EXECUTIONS_MAX = 10
"""Tries of a job that its history tells of: the newest."""
HISTORY_STEP_S = 5
"""How often the figures of an overview are noted: what an eye can follow."""
HISTORY_STEPS = 720
"""Of those, an hour is kept."""
HISTORY_LONG_S = 120
"""The longer history has coarser steps ..."""
HISTORY_LONG_STEPS = 720
"""... for a day."""
HISTORY_KINDS_MAX = 12
"""Kinds of resources in one sample."""
HISTORY_QUEUES_MAX = 500
"""Queues whose depth is watched for growth."""
GROWTH_STEPS = 120
"""How far back a queue's depth is compared: ten minutes."""
RATE_STEPS = 12
"""How far back the ends of a queue's jobs are counted for its rate: a minute."""
GROWTH_JOBS_MIN = 100
"""Fewer waiting jobs more than before are not worth a person's time."""
DIGEST_S = 1.0
"""At most one digest in this time, shared by all who read digests."""
ATTENTION_S = 5.0
"""How long an answer about what needs attention is good for everybody who asks."""
ATTENTION_JOBS = 200
"""Dead letters looked at for it."""
ATTENTION_ITEMS = 50
"""Concerns named at most: nobody reads more."""
ATTENTION_FAILED_MS = 24 * 3600 * 1000
"""Dead letters older than a day are no longer news."""
ATTENTION_LOSS_MS = 3600 * 1000
"""A worker that was lost longer ago is no longer news."""
SCHEDULE_LATE_MS = 10_000
"""A schedule that is overdue by more than this is late in an operator's eyes."""
ERROR_GROUP_JOBS = 1_000
"""Dead letters that one question about groups reads, 100 at a time."""
ERROR_GROUP_SAMPLES = 20
"""Job ids that a group names."""
ERROR_TEXT_CHARS = 400
"""Of an error, as much as tells it from others."""
TIMELINE_BARS_MAX = 1_000
"""Executions on one timeline: more bars than pixels tell nothing."""
TIMELINE_BUCKETS = 60
"""Into so many a timeline is cut where there is more than bars can show."""
TIMELINE_BUCKET_PARTS = 8
"""Each stretch is looked at in so many parts: a burst is over before it is taken for the rule."""
TIMELINE_SAMPLE = 50
"""Executions that are looked at in each part; what follows is estimated from them."""
TIMELINE_SAMPLE_OWN = 20
"""The same for a tenant's token. Whose an execution is its job knows, which has to be looked up."""
SIMULATION_JOBS_MAX = 20_000
"""Jobs of the past that one simulation reads: some seconds of a processor for each policy."""
SIMULATIONS_MAX = 1
"""Simulations of one server at a time: each takes a processor for itself."""
TIMELINE_WINDOW_MS_MAX = 31 * 24 * 3600 * 1000
"""The longest window of a timeline."""
LOG_PIECE_BYTES_MAX = 4 * 1024 * 1024
"""Log text that one bounded question gets."""
METRIC_QUEUES_MAX = 100
"""Queues with series of their own in `/metrics`: whoever submits can make up queues."""
METRIC_KINDS_MAX = 40
"""Kinds of resources with series of their own: whoever runs a worker can make up kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """Limits that a server is given, so that a test can run one with smaller limits."""

    purge_page: int = PURGE_PAGE
    purge_piece: int = PURGE_PIECE
    bulk_page: int = BULK_PAGE
    bulk_counted_at_once: int = BULK_COUNTED_AT_ONCE
    bulk_examined_max: int = BULK_EXAMINED_MAX
    bulk_refused_max: int = BULK_REFUSED_MAX
    preview_look: int = PREVIEW_LOOK
    page_look: int = PAGE_LOOK
    read_at_once: int = READ_AT_ONCE
    executions_at_once: int = EXECUTIONS_AT_ONCE
    executions_scanned_max: int = EXECUTIONS_SCANNED_MAX
    log_read_bytes: int = LOG_READ_BYTES
    log_tail_bytes_max: int = LOG_TAIL_BYTES_MAX
    log_wait_s: float = LOG_WAIT_S
    log_wait_s_max: float = LOG_WAIT_S_MAX
    answer_piece_bytes: int = ANSWER_PIECE_BYTES
    timeline_bars_max: int = TIMELINE_BARS_MAX
    token_refresh_s: float = TOKEN_REFRESH_S
    token_refresh_soon_s: float = TOKEN_REFRESH_SOON_S
    audit_gather_s: float = AUDIT_GATHER_S
    audit_retry_s: float = AUDIT_RETRY_S
    audit_pending_max: int = AUDIT_PENDING_MAX


API_LIMITS: Final = ApiLimits()
"""The limits of a server that nobody gave others: the constants above."""
