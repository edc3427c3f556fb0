"""What a server writes to stderr, in each form."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SAYS = """
import logging, structlog
from rota.cli.start.server_log import set_up_log
set_up_log()
structlog.get_logger("rota.engine").warning("ours", job_id="j", trace_id="t")
logging.getLogger("some.library").warning("theirs %s", "too")
try:
    1 / 0
except ZeroDivisionError:
    structlog.get_logger().exception("broken")
"""


def said(log_format: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", SAYS],
        env={**os.environ, "ROTA_LOG_FORMAT": log_format},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == ""
    return run.stderr.splitlines()


@pytest.mark.parametrize("log_format", ["json", "auto"])
def test_every_line_is_one_json_object_whoever_wrote_it(log_format: str) -> None:
    ours, theirs, broken = (json.loads(line) for line in said(log_format))
    assert (ours["event"], ours["job_id"], ours["trace_id"]) == ("ours", "j", "t")
    assert (theirs["event"], theirs["logger"], theirs["level"]) == (
        "theirs too",
        "some.library",
        "warning",
    )
    assert "ZeroDivisionError" in broken["exception"]
    assert all(one["timestamp"].endswith("Z") for one in (ours, theirs, broken))


def test_text_is_for_people_and_has_no_colours_in_a_file() -> None:
    lines = said("text")
    assert "[warning  ] ours" in lines[0]
    assert "job_id=j" in lines[0]
    assert "\x1b" not in "".join(lines)
