"""Sets up a process's log: to stderr, for people on a terminal, as JSON lines otherwise."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import structlog

VARIABLE = "ROTA_LOG_FORMAT"
"""The environment says the format, so that the processes that a server starts write alike."""


def set_up_log() -> None:
    """Sets structlog up for this process; stdout stays free for what was asked for."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    draw = _renderer(os.environ.get(VARIABLE, "auto"))
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, draw],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    _format_library_logs(shared, draw)


def _renderer(chosen: str) -> Any:
    for_people = chosen == "text" or (chosen == "auto" and sys.stderr.isatty())
    if for_people:
        return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    return structlog.processors.JSONRenderer()


def _format_library_logs(shared: list[Any], draw: Any) -> None:
    """Formats the logs of libraries like our own, so that JSON readers meet nothing else."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                draw,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(logging.WARNING)
