"""Every limit of the traces, named, with its reason."""

RECORDS_AT_ONCE = 100
"""Journal records read at a time."""
JOBS_KNOWN_MAX = 200_000
"""Live jobs whose sampling decision is remembered; others are looked up."""
UPSTREAM_LINKED_MAX = 100
"""Upstream jobs that one span links to."""
FOLLOW_EVERY_S = 0.25
"""Pause between two reads of the journal."""
SPANS_QUEUED_MAX = 65_536
"""Spans that wait for a collector; more are dropped. OTEL_BSP_MAX_QUEUE_SIZE sets another limit."""
FLUSH_MS = 5_000
"""How long a server that stops waits for spans to be sent."""
FOLLOW_PAUSE_S = 1.0
"""Pause after an error, and between two checks whether this server leads."""
