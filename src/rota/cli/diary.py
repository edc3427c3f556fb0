"""Where a server's log goes: to stderr, for people on a terminal, as JSON lines otherwise."""

from __future__ import annotations

import sys

import structlog


def keep_diary() -> None:
    """Sets structlog up for this process; stdout stays free for what was asked for."""
    for_people = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if for_people else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
