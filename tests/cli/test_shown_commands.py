"""Commands that the dashboard shows to those who have nothing yet: each must work when copied."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.shown_commands import taken

PAGE = Path(__file__).parents[2] / "dashboard" / "src"
SHOWN = re.compile(r'command=(?:"(rota [^"]*)"|\{`(rota [^`]*)`\})')
FILLED = re.compile(r"\$\{[^}]*\}")


def test_every_command_of_an_empty_page_is_one_that_rota_takes() -> None:
    found = [
        FILLED.sub("http://127.0.0.1:7070", plain or template)
        for path in sorted(PAGE.rglob("*.tsx"))
        for plain, template in SHOWN.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 8
    refused = [said for line in found if (said := taken(line)) is not None]
    assert not refused, "\n".join(["", *refused])


def test_a_command_that_rota_does_not_take_is_told() -> None:
    assert taken("rota events send kind --data 1") is not None
    assert taken("rota nonsense") is not None
