from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cell import Cell


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    """A cell with nothing started yet."""
    with Cell(tmp_path) as one:
        yield one
