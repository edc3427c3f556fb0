"""Every limit of a gateway, named, with its reason."""

CELLS_MAX = 64
"""Cells of one gateway: each is asked for every merged list, and named in its cursor."""
SERVERS_PER_CELL_MAX = 16
"""Addresses of one cell's servers."""
CONNECT_S = 2.0
"""A server that does not even accept within this is away."""
ANSWER_S = 60.0
"""For the head of an answer; a cell that is found dead meanwhile is not waited for."""
LONG_ANSWER_S = 900.0
"""The same where a cell works through many jobs before it answers."""
PROBE_EVERY_S = 1.0
"""How often each server is looked at."""
PROBE_ANSWER_S = 2.0
"""A server that says nothing to a probe for this long has failed it."""
FAILURES_MAX = 2
"""Failures in a row after which a server counts as down; a refused connection is enough alone."""
RETRY_AFTER_S = 2
"""Told to those whose cell is down."""
IDLE_S = 30.0
"""An idle connection to a cell is closed after this, before the cell does so itself."""
BODY_READ_S = 60.0
"""A body that has not come by then is not waited for."""
BODIES_BYTES_MAX = 256 * 1024 * 1024
"""Bodies held at once, of all requests: nobody is known before a cell has looked at the token."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""One cell's part of a merged answer: several times what a page may hold."""
WHOLE_BYTES_MAX = 256 * 1024
"""Answers up to this size are passed on in one piece, longer ones as they come."""
STREAMS_MAX = 256
"""Streams of changes open at once: each is one to every cell."""
STREAM_WAITING_MAX = 64
"""Pieces of a stream read ahead of its reader; then its cells wait as well."""
STREAM_EVENT_BYTES_MAX = 1024 * 1024
"""One event of a stream."""
STREAM_SEND_S = 30.0
"""A reader that takes nothing for this long is dropped; it resumes where it was."""
STREAM_KEEPALIVE_S = 15.0
"""Proxies close connections that say nothing for a minute."""
STREAM_RETRY_S = 1.0
"""How soon a cell that left a stream is asked again."""
UNKNOWN_TOKEN_S = 30.0
"""How long a cell is not asked again on behalf of a token it did not know, where others are."""
UNKNOWN_TOKENS_MAX = 10_000
"""Such refusals remembered."""
CURSOR_CHARS_MAX = 8_192
"""A cursor with a place in each of all cells."""
