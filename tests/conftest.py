"""What holds for every test: patience on slow machines, and no server but the test's own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.memory_disk import memory_disk

# Here and not beside them: tests of other packages import some of these first.
pytest.register_assert_rewrite(
    "tests.store.conformance",
    "tests.store.conformance_access",
    "tests.store.conformance_bulk",
    "tests.store.conformance_events",
    "tests.store.conformance_leadership",
    "tests.store.conformance_lists",
    "tests.store.conformance_retention",
    "tests.store.conformance_schedules",
    "tests.store.conformance_shelves",
    "tests.store.naive",
)

# Shared cores stall for seconds; how long an example takes says nothing about the code.
# A change is judged by the same examples each time; the thorough runs look for new ones.
settings.register_profile(
    "rota",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize="ROTA_TEST_THOROUGH" not in os.environ,
)
settings.load_profile("rota")


@pytest.fixture(autouse=True)
def _nobody_elses_diary() -> Iterator[None]:
    """Resets the log: a command in a test before may have set it up for its own stderr."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session", autouse=True)
def _nobody_elses_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hides local servers of the user: clients find only those of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("ROTA_URL", raising=False)
        patch.delenv("ROTA_TOKEN", raising=False)
        yield


def pytest_configure() -> None:
    """Restores Ctrl-C, which background processes ignore, and lets tests write into memory.

    Pytest reads the variable for temporary folders when the first one is needed.
    """
    if (quick := memory_disk()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(quick))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Frees the memory, unless a test failed."""
    quick = memory_disk()
    if exitstatus or quick is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    used: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    if quick in used.parents:
        shutil.rmtree(used, ignore_errors=True)
