"""Plays the same stories against the core of another commit, and names the first difference.

The other tree is taken from git into a temporary folder and plays with a player of its own names:
that commit's, or, for one older than the oracles, the player of the commit that brought them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.oracles.stories import Story

ROOT = Path(__file__).parents[2]
PLAYER = "tests/oracles/play.py"


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


def extract(commit: str, paths: Iterable[str], into: Path) -> None:
    """Puts files of a commit into a folder."""
    packed = _git("archive", "--format=tar", commit, *paths)
    subprocess.run(["tar", "-x", "-C", str(into)], input=packed, check=True)


def _has_player(commit: str) -> bool:
    return bool(_git("ls-tree", commit, PLAYER))


def _first_player() -> str:
    return _git("log", "--diff-filter=A", "--format=%H", "--", PLAYER).decode().split()[-1]


def take_tree(commit: str, into: Path) -> None:
    """Extracts the sources of a commit, with a player that knows their names."""
    extract(commit, ["src"], into)
    extract(commit if _has_player(commit) else _first_player(), ["tests/oracles"], into)


def start(tree: Path, scripts: Path, out: Path) -> subprocess.Popen[bytes]:
    """Starts to play scripts in a tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree}:{tree / 'src'}"}
    words = [sys.executable, "-m", "tests.oracles.play", str(scripts), str(out)]
    return subprocess.Popen(words, cwd=tree, env=environment)


def against(commit: str, seeds: Iterable[int]) -> list[str]:
    """Compares this tree with a commit; returns the difference, nothing if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tree"
        there.mkdir()
        take_tree(commit, there)
        scripts = Path(folder) / "scripts"
        scripts.write_bytes(msgspec.msgpack.encode({seed: Story(seed).write() for seed in seeds}))
        outs = [Path(folder) / name for name in ("then", "now")]
        runs = [start(tree, scripts, out) for tree, out in zip((there, ROOT), outs, strict=True)]
        codes = [run.wait() for run in runs]
        if any(codes):
            return ["A story could not be played: see above."]
        return compare(*(msgspec.msgpack.decode(out.read_bytes()) for out in outs))


def compare(then: dict[int, list[bytes]], now: dict[int, list[bytes]]) -> list[str]:
    """Returns the first story, turn and value that differ, and the number of such stories."""
    wrong = [seed for seed in then if then[seed] != now[seed]]
    if not wrong:
        return []
    seed = wrong[0]
    turns = zip(then[seed], now[seed], strict=True)
    turn, (before, after) = next((n, pair) for n, pair in enumerate(turns) if pair[0] != pair[1])
    place, was, is_now = first_difference(*map(msgspec.msgpack.decode, (before, after)))
    return [
        f"{len(wrong)} stories differ: {', '.join(map(str, wrong))}.",
        f"First in story {seed}, turn {turn}, at {place}:",
        f"  then {was!r}",
        f"  now  {is_now!r}",
    ]


def first_difference(then: Any, now: Any, place: str = "$") -> tuple[str, Any, Any]:
    """Finds where two plain values first differ."""
    if isinstance(then, list) and isinstance(now, list):
        for number, (one, other) in enumerate(zip(then, now, strict=False)):
            if one != other:
                return first_difference(one, other, f"{place}[{number}]")
    return place, then, now
