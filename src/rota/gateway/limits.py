"""Every limit of a gateway, named, with its reason."""

CELLS_MAX = 64
"""Cells of one gateway: each is asked for every merged list, and named in its cursor."""
SERVERS_PER_CELL_MAX = 16
"""Servers of one cell."""
CONNECT_S = 2.0
"""Time to connect: a server that does not accept within it is down."""
ANSWER_S = 60.0
"""Time to an answer's head; a cell that goes down meanwhile is not waited for."""
LONG_ANSWER_S = 900.0
"""The same where a cell works on many jobs before it answers."""
PROBE_EVERY_S = 1.0
"""How often each server is probed."""
PROBE_ANSWER_S = 2.0
"""Time to answer a probe."""
FAILURES_MAX = 2
"""Failures in a row after which a server counts as down; a refused connection is enough alone."""
RETRY_AFTER_S = 2
"""Retry-After of an answer for a cell that is down."""
IDLE_S = 30.0
"""Time after which an idle connection to a cell is closed, before the cell does so itself."""
BODY_READ_S = 60.0
"""Time to receive a request's body."""
BODIES_BYTES_MAX = 256 * 1024 * 1024
"""Bodies of all requests at once: clients are unknown before a cell has checked their token."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""One cell's part of a merged answer: several times the size of a page."""
WHOLE_BYTES_MAX = 256 * 1024
"""Answers up to this size are sent in one piece, longer ones as they come."""
STREAMS_MAX = 256
"""Streams of changes open at once: each opens one to every cell."""
STREAM_WAITING_MAX = 64
"""Events of a stream that wait for its reader; then its cells wait as well."""
STREAM_EVENT_BYTES_MAX = 1024 * 1024
"""Size of one event of a stream."""
STREAM_SEND_S = 30.0
"""A reader that takes nothing for this long is disconnected; it can resume."""
STREAM_KEEPALIVE_S = 15.0
"""Pause after which a comment is sent: proxies close connections that are silent for a minute."""
STREAM_RETRY_S = 1.0
"""Pause before a cell that left a stream is asked again."""
UNKNOWN_TOKEN_S = 30.0
"""How long a cell is not asked again for a token that it does not know."""
UNKNOWN_TOKENS_MAX = 10_000
"""Such refusals that are remembered."""
CURSOR_CHARS_MAX = 8_192
"""Length of a cursor with a position in every cell."""
