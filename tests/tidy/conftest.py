"""Prints how large each package is, beside its aim, after the tests that read the code."""

from __future__ import annotations

import pytest

from tests.tidy.sizes import lines


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Adds the table of sizes below the results."""
    terminalreporter.section("sizes beside their aims (never a reason to fail)")
    for line in lines():
        terminalreporter.write_line(line)
