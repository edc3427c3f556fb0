"""The agent's own log on stderr: for people on a terminal, JSON for machines elsewhere."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import structlog
from structlog.typing import FilteringBoundLogger

INFO = 20


def open_agent_log(stream: TextIO | None = None) -> FilteringBoundLogger:
    """A logger of its own; nothing global is set up."""
    target = stream or sys.stderr
    chosen = os.environ.get("ROTA_LOG_FORMAT", "auto")
    draw = (
        structlog.dev.ConsoleRenderer(colors=target.isatty())
        if chosen == "text" or (chosen == "auto" and target.isatty())
        else structlog.processors.JSONRenderer()
    )
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(target),
        wrapper_class=structlog.make_filtering_bound_logger(INFO),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            draw,
        ],
    )
    return logger
