"""Limits of the API server, each with its reason; `ApiLimits` passes those that a test may vary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HEAD_BYTES_MAX = 64 * 1024
"""Request line and headers: several times what a browser with many cookies sends."""
HEADERS_MAX = 256
"""Headers of one request: each costs more memory than its bytes; a browser sends thirty."""
HEAD_S_MAX = 20.0
"""Time for a request's head to arrive; before that the client is not authenticated."""
PARSE_BYTES = 8 * 1024
"""Bytes parsed at a time: 18 bytes can be a request, and each that waits takes 2 KB of memory."""
CONNECTIONS_MAX = 20_000
"""Open connections, where the system lets a process have as many files: two for each of 10,000
workers. An option changes it."""
FILES_RESERVED = 256
"""Files and sockets left for everything else: the store, logs, uploads, other servers."""
STALL_CHECK_S = 30
"""How often the server checks whether clients read their answers ..."""
STALL_BYTES_MIN = 64 * 1024
"""... and what they must have read meanwhile of a large answer: slower than any usable network."""
BODY_BUDGET_BYTES = 256 * 1024 * 1024
"""Request bodies and unread long answers of all requests together: eight of the largest size, or
thousands of the usual one."""
ANSWER_PIECE_BYTES = 256 * 1024
"""Longer answers are sent piece by piece and counted until they are read."""
STREAMS_MAX = 256
"""Open streams (changes and followed logs): each is a task and a socket."""
STREAM_SEND_S = 30.0
"""A stream whose client reads nothing for this long is closed; the client can resume."""
STREAM_END_S = 1.0
"""Time that a shutdown waits for a client to take a stream's proper end."""
STREAM_KEEPALIVE_S = 15.0
"""Proxies close connections that are silent for a minute."""
STREAM_RECORDS = 8
"""Journal records read at a time for a stream: a record may hold a whole batch of jobs."""
STREAM_READS_AT_ONCE = 4
"""Streams that read the journal at the same time: records are large, the events in them small."""
STREAM_EVENTS_PER_SEND = 256
"""Events encoded at a time, so that a slow client holds little memory."""
LOG_READ_BYTES = 256 * 1024
"""Log text read from the store at a time."""
LOG_WAIT_S = 0.1
"""Time after which a follower that was not notified checks for more text, or for the end."""
LOG_WAIT_S_MAX = 0.5
"""The longest such time, once a log has been quiet for a while."""
LOG_TAIL_LINES_MAX = 1_000_000
"""Lines of a log's end in one request."""
LOG_TAIL_BYTES_MAX = 4 * 1024 * 1024
"""How far back those lines are searched: some logs are one endless line."""
LOG_GRACE_MS = 10 * 60 * 1000
"""Time after its end in which an execution may still send what it printed."""
GRAPH_NODES_MAX = 10_000
"""Jobs in one dependency graph: more cannot be drawn, and must not be read at once."""
GRAPH_AT_ONCE = 1_000
"""Jobs of a graph read at once, if they are small."""
RECALL_JOBS_MAX = 200_000
"""Jobs read from the store for one request: a fan-out of 100,000 and what depends on it."""
RECALL_TRIES = 5
"""How often a command is posted again when the jobs read for it had changed."""
RECALL_PAUSE_S = 0.003
"""Pause between those: longer than the clock's millisecond, so that before and after differ."""
PAGE_BYTES_MAX = 16 * 1024 * 1024
"""Payloads, results and errors in one page of jobs; a page that would hold more ends early."""
PAGE_FIRST_ITEMS = 51
"""Jobs read before their size is known: a page of the usual length takes one query."""
PAGE_LOOK = 24_000
"""Work of one page of a filtered list, in index entries of the store: some 20 ms of a processor. A
page that found little by then ends early, and its cursor continues."""
PREVIEW_LOOK = 48_000
"""Work of a count that a person waits for before an action on many jobs, in index entries."""
LONG_PAGES_AT_ONCE = 2
"""Pages longer than `PAGE_FIRST_ITEMS` made at the same time; others wait, so that short requests
do not wait for many of them."""
READ_AT_ONCE = 100
"""Jobs in one query of the store: each may carry megabytes."""
OUTLINES_AT_ONCE = 2_000
"""Outlines in one query: a name and a few words each."""
BULK_PAGE = 100
"""Jobs read at a time by a bulk action, for the same reason."""
PURGE_PAGE = 500
"""Spilled jobs that a purge reads and cancels at a time."""
PURGE_PIECE = 2000
"""Jobs in memory that a purge cancels at a time: one journal record for all would take longer than
a leader may be silent."""
BODY_READ_S = 60.0
"""Time for a body, or the next piece of a long one, to arrive."""
BULK_COUNTED_AT_ONCE = 10_000
"""Ids in one query of a preview that counts to the end."""
BULK_EXAMINED_MAX = 1_000
"""Dead letters that a preview of an action on one error reads, to match their errors."""
BULK_AT_ONCE = 100
"""Inputs of one bulk action under way at once: they share commits and leave capacity for others."""
BULK_REASONS_MAX = 10
"""Different reasons in the answer to a bulk action; the rest is counted together."""
BULK_REFUSED_MAX = 10_000
"""Refused jobs after which a bulk action with a limit stops; then it answers that there are
more."""
BULK_REMEMBERED_MAX = 1000
"""Answers of bulk actions kept for repeats of the same key."""
USAGE_WORKERS_MAX = 20_000
"""Workers whose last reported usage is kept in memory."""
USAGE_KINDS_MAX = 16
"""Figures of one usage report that are kept."""
QUERY_FIELDS_MAX = 64
"""Parameters in one query string."""
JSON_DEPTH_MAX = 64
"""Nesting of a payload or result: deeper than any intended, far below the limit of any parser."""
NAMED_BODY_BYTES = 64 * 1024
"""A refused body up to this size is read again to find the wrong entry of an object …"""
NAMED_ENTRIES = 64
"""… half a dozen times: as many entries as a job has labels."""
LINK_S = 900
"""How long a signed link to a file is valid: enough to start a download, too short to share."""
BUNDLE_USE_MS = 3600 * 1000
"""A bundle's last use is written this often: it only has to distinguish months."""
SESSION_MS = 30 * 24 * 3600 * 1000
"""How long a browser stays signed in."""
SIGN_IN_CODES_MAX = 16
"""Unused sign-in links."""
INSTANT_MAX = 7_258_118_400_000
"""The year 2200: later times are taken for mistakes."""
FUNCTIONS_REMEMBERED_MAX = 4_096
"""Functions whose default needs are shared by their jobs: a few apps with many functions."""
TOKEN_REFRESH_S = 0.5
"""How often a server checks whether tokens changed: all know a change within a second."""
TOKEN_REFRESH_SOON_S = 0.05
"""Delay of the check that an unknown token causes, as it may be new from another server; no more
checks than this, whoever sends such tokens."""
UNKNOWN_TOKEN_WAIT_S = 1.0
"""How long an unknown token waits for that check."""
TOKEN_REQUESTS_PER_S = 5_000
"""Requests of one token on one server: about what one process can answer, so that one client in a
loop does not take it alone. An option changes it."""
ADDRESS_REQUESTS_PER_S = 10_000
"""Requests of one address, before authentication; this machine itself is not limited."""
RATE_KEYS_MAX = 50_000
"""Tokens or addresses whose rate is kept; the one idle for longest is forgotten first."""
WRONG_TOKENS_FREE = 100
"""Wrong tokens an address may send before it has to wait: a mistyped variable in many places, or
somebody who explores what is forbidden."""
WRONG_TOKENS_WAIT_MS = 1_000
"""The first wait; each wrong token after it doubles the next."""
WRONG_TOKENS_WAIT_MS_MAX = 60_000
"""The longest wait: somebody who has found the right token should not wait for long."""
WRONG_TOKENS_QUIET_MS = 15 * 60 * 1000
"""After this long without a wrong token an address starts again from zero."""
WRONG_TOKENS_ADDRESSES_MAX = 20_000
"""Addresses whose wrong tokens are counted."""
AUDIT_AGE_MS = 90 * 24 * 3600 * 1000
"""How long audit entries are kept unless an option says otherwise."""
AUDIT_GATHER_S = 0.5
"""How long entries are gathered before they are written together."""
AUDIT_BATCH = 1_000
"""Entries written at a time."""
AUDIT_PENDING_MAX = 100_000
"""Entries that wait while the store is unavailable; the oldest beyond are lost and logged."""
AUDIT_PRUNE_S = 60.0
"""How often a server without changes removes old entries."""
AUDIT_RETRY_S = 2.0
"""Pause after a write that failed."""
AUDIT_STOP_S = 5.0
"""How long a stop waits for the last entries to be written."""
AUDIT_TEXT_MAX = 255
"""Characters of a target or address that an entry keeps."""
TENANTS_REMEMBERED_MAX = 200_000
"""Jobs whose tenant is remembered for the streams of tenants."""
EXECUTIONS_AT_ONCE = 500
"""Executions in one query, once they are known to be small."""
EXECUTIONS_SCANNED_MAX = 2_000
"""Executions read for one page of a tenant; the page ends early, and its cursor continues."""
FORWARD_CONNECT_S = 2.0
"""Time to connect to the leader: it is in the same cell, and a client waits."""
FORWARD_IDLE_S = 30.0
"""How long an unused connection to the leader is kept: less than it keeps its end."""
FORWARD_LOOK_S = 0.1
"""How often a server that forwards checks who leads."""
FORWARD_PATIENCE_MS = 6_000
"""How long a call that may be repeated waits for a new leader: one leads within five seconds."""
FORWARD_SILENT_S = 0.3
"""A leader that answers no submission for this long is not waited for: the server that was asked
accepts them itself."""
FORWARD_SILENT_BYTES_S = 1_000_000
"""Bytes of a submission that allow one second more."""
FORWARD_SHUN_MS = 1_000
"""For this long after, no submission is forwarded, so that few have to wait in vain."""
KEY_TIME_MS = 15_000
"""Age of a key up to which its request's ids carry its time: longer than any append that a client
gave up on can still be under way."""
REACH_EVERY_S = 0.3
"""How often a follower asks the leader whether it is reachable."""
REACH_LEADING_S = 0.5
"""How often a leader checks whether others reach it: together with other checks."""
REACH_ANSWER_S = 0.5
"""Time for that answer."""
REACH_LOST_MS = 700
"""A leader that answered before and has not for this long counts as unreachable."""
FORWARD_LAST_S = 1.0
"""How long a server that stops still waits for the leader's answers."""
NODE_SILENT_MS = 5_000
"""A server that has not announced itself for this long is shown as silent."""
RUNS_SHOWN = 100
"""Live jobs in the answer about one schedule."""
OCCURRENCES_READ_AT_ONCE = 1_000
"""Occurrences of a schedule read at a time for a backfill."""
BACKFILL_SHOWN = 100
"""Occurrences in the answer to a backfill."""
HISTORY_EXECUTIONS_MAX = 10
"""Executions of a job in its history: the newest."""
HISTORY_STEP_S = 5
"""How often the overview's metrics are sampled: what an eye can follow."""
HISTORY_STEPS = 720
"""Samples kept: an hour."""
HISTORY_LONG_S = 120
"""Step of the longer history ..."""
HISTORY_LONG_STEPS = 720
"""... for a day."""
HISTORY_KINDS_MAX = 12
"""Kinds of resources in one sample."""
HISTORY_QUEUES_MAX = 500
"""Queues whose depth is watched for growth."""
GROWTH_STEPS = 120
"""Samples over which a queue's growth is measured: ten minutes."""
RATE_STEPS = 12
"""Samples over which a queue's rate is measured: a minute."""
GROWTH_JOBS_MIN = 100
"""Growth of fewer waiting jobs does not need attention."""
DIGEST_S = 1.0
"""Shortest time between two digests, which all readers share."""
ATTENTION_S = 5.0
"""How long an answer about what needs attention is reused."""
ATTENTION_JOBS = 200
"""Dead letters read for it."""
ATTENTION_ITEMS = 50
"""Most items in the answer: nobody reads more."""
ATTENTION_FAILED_MS = 24 * 3600 * 1000
"""Dead letters older than a day are not shown."""
ATTENTION_LOSS_MS = 3600 * 1000
"""Workers lost longer ago are not shown."""
SCHEDULE_LATE_MS = 10_000
"""A schedule overdue by more than this needs attention."""
ERROR_GROUP_JOBS = 1_000
"""Dead letters read for one question about error groups, 100 at a time."""
ERROR_GROUP_SAMPLES = 20
"""Job ids in a group."""
ERROR_TEXT_CHARS = 400
"""Start of an error that distinguishes it from others."""
TIMELINE_BARS_MAX = 1_000
"""Executions on one timeline: more bars than pixels tell nothing."""
TIMELINE_BUCKETS = 60
"""Buckets of a timeline with more executions than bars can show."""
TIMELINE_BUCKET_PARTS = 8
"""Parts of a bucket that are sampled, so that a burst in one does not count for all."""
TIMELINE_SAMPLE = 50
"""Executions read in each part; the count is estimated from them."""
TIMELINE_SAMPLE_OWN = 20
"""Executions read in each part for a tenant's token: the tenant of each has to be looked up."""
SIMULATION_JOBS_MAX = 20_000
"""Past jobs in one simulation: some seconds of a processor for each policy."""
SIMULATIONS_MAX = 1
"""Simulations of one server at a time: each takes a processor for itself."""
TIMELINE_WINDOW_MS_MAX = 31 * 24 * 3600 * 1000
"""The longest window of a timeline."""
LOG_PIECE_BYTES_MAX = 4 * 1024 * 1024
"""Log text in the answer to a request with a limit."""
LOSS_WARNING_MS = 7 * 24 * 3600 * 1000
"""A loss of records is a warning of the cluster for a week."""
QUARANTINE_TEXT_CHARS = 2_000
"""A longer text in a write that is shown is cut: somebody reads it."""
METRIC_QUEUES_MAX = 100
"""Queues with series of their own in `/metrics`: submitters can invent queues."""
METRIC_KINDS_MAX = 40
"""Kinds of resources with series of their own: workers can invent kinds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLimits:
    """Limits handed in as values, so that a test can run a server with smaller ones."""

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
"""Default limits: the constants above."""
