"""What importing costs: next to nothing, until something is used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import rota
import rota.sdk

HEAVY = ("httpx2", "httpcore2", "starlette", "uvicorn", "aiohttp", "apsw", "click", "rich")
IMPORT_S_MAX = 0.15
"""What the product promises for `import rota`."""


def loaded_after(statement: str) -> list[str]:
    """The modules of a fresh interpreter after this statement."""
    script = f"import sys\n{statement}\nimport json\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    names: list[str] = json.loads(run.stdout)
    return names


def test_importing_rota_loads_nothing_else_of_it_and_nothing_of_others() -> None:
    ours = [name for name in loaded_after("import rota") if name.split(".")[0] == "rota"]
    assert ours == ["rota"]


DECLARING = """
from rota import App, Context
app = App()
@app.job
def work(ctx: Context) -> None: ...
"""


@pytest.mark.parametrize("statement", ["import rota", "import rota.sdk", DECLARING])
def test_declaring_jobs_loads_neither_a_server_nor_a_client(statement: str) -> None:
    loaded = loaded_after(statement)
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []


def test_a_client_that_only_makes_short_calls_loads_no_http_library() -> None:
    loaded = loaded_after("import rota\nrota.Client('http://127.0.0.1:1', 't').close()")
    assert "rota.sdk.lines.blocking_lines" in loaded
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []


def test_every_public_name_is_there_and_the_same_as_the_sdks() -> None:
    for name in rota.__all__:
        assert getattr(rota, name) is getattr(rota.sdk, name)
        assert name in dir(rota)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = rota.Nothing  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_import_keeps_its_promise_on_a_quiet_machine() -> None:
    script = "import time; s = time.perf_counter(); import rota; print(time.perf_counter() - s)"
    runs = [
        float(subprocess.check_output([sys.executable, "-c", script], cwd=Path(__file__).parent))
        for _ in range(5)
    ]
    assert min(runs) < IMPORT_S_MAX
