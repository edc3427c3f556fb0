"""Where the files of this repository are, for the tests that read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rota"

NOT_OURS = (".git", ".rota", ".chaos", "__pycache__", "node_modules", "dist", "build")
NOT_OURS_ENDINGS = ("_cache", ".egg-info")
NOT_OURS_BEGINNINGS = (".venv", ".hypothesis")


def python_files(*folders: str) -> list[Path]:
    """All Python files in these folders, in a steady order."""
    return [path for path in all_files(*folders) if path.suffix == ".py"]


def all_files(*folders: str) -> list[Path]:
    """All files in these folders (none named: the whole repository), in a steady order."""
    starts = [ROOT / folder for folder in folders] or [ROOT]
    return sorted(path for start in starts for path in _walk(start))


def text_files() -> Iterator[tuple[Path, str]]:
    """Every file of the repository that is text."""
    for path in all_files():
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def shown(path: Path) -> str:
    """The path as a person would say it."""
    return path.relative_to(ROOT).as_posix()


def _walk(start: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(start):
        folders[:] = [name for name in folders if not _foreign(name)]
        yield from (Path(folder, name) for name in files if not _foreign(name))


def _foreign(name: str) -> bool:
    return (
        name in NOT_OURS or name.endswith(NOT_OURS_ENDINGS) or name.startswith(NOT_OURS_BEGINNINGS)
    )
