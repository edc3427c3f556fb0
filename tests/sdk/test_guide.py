"""Every block of the guide runs, in its order, against a real server."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rota import App
from tests.api.in_process_server import TOKEN
from tests.sdk.real_server import real_server, small_worker

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def server_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with real_server() as url:
        monkeypatch.setenv("ROTA_URL", url)
        monkeypatch.setenv("ROTA_TOKEN", TOKEN)
        yield url


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", made)
    return made


def blocks() -> list[str]:
    """The code of the guide, each block where its lines are in the page."""
    text = GUIDE.read_text(encoding="utf-8")
    return ["\n" * text[: found.start(1)].count("\n") + found[1] for found in BLOCK.finditer(text)]


def test_the_guide_does_what_it_says(server_url: str, module: ModuleType) -> None:
    space: dict[str, Any] = vars(module)
    for block in blocks():
        # A worker of the app as it is after this block's own functions are declared.
        with ExitStack() as block_only:
            declared, acted = _halves(block)
            exec(compile(declared, str(GUIDE), "exec"), space)
            if acted.strip():
                block_only.enter_context(small_worker(server_url, space["app"]))
            exec(compile(acted, str(GUIDE), "exec"), space)
    own_tests = [value for name, value in space.items() if name.startswith("test_")]
    assert len(own_tests) == 3
    for test in own_tests:
        test()
    app: App = space["app"]
    app.close()
    space["ledger"].close()


def _halves(block: str) -> tuple[str, str]:
    """What a block declares, and what it does after its last function or class."""
    lines = block.splitlines(keepends=True)
    tops = [i for i, line in enumerate(lines) if re.match(r"(async )?def |class |@", line)]
    if not tops:
        return "", block
    end = tops[-1] + 1
    while end < len(lines) and (not lines[end].strip() or lines[end][0] in " )"):
        end += 1
    return "".join(lines[:end]), "\n" * end + "".join(lines[end:])
