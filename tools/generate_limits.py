"""Writes docs/reference/limits.md from every package's limits.py; `--check` only compares."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rota"
TARGET = ROOT / "docs" / "reference" / "limits.md"

PACKAGES: Mapping[str, str] = {
    "wire": "API calls",
    "api": "HTTP server",
    "core": "Scheduler",
    "engine": "Engine",
    "store": "Store, logs and files",
    "alerts": "Alerts",
    "traces": "Traces",
    "gateway": "Gateway",
    "events": "Connections to other systems",
    "simulate": "Simulator",
}
"""In the order in which users meet them."""

OPENING = """\
<!-- Written by tools/generate_limits.py from src/rota/*/limits.py: change those, not this. -->
# Limits

Every resource is limited, and every limit has a name and a reason. Limits are constants; for
settings see [configuration](configuration.md). A body or file that is too large is
answered with 413, a field over its limit with 422, too much at once with 429 and `Retry-After`.
Limits for jobs can be changed for each queue: [limits for jobs](job-limits.md).
"""

SIZES = (("EiB", 1 << 60), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TIMES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


class Limit(NamedTuple):
    name: str
    value: float
    reason: str


def limits_in(source: str) -> Iterator[Limit]:
    """Every named number of a module, with its docstring."""
    body = ast.parse(source).body
    for statement, following in pairwise(body):
        if not isinstance(statement, ast.Assign) or not isinstance(following, ast.Expr):
            continue
        name, text = statement.targets[0], following.value
        if isinstance(name, ast.Name) and isinstance(text, ast.Constant):
            yield Limit(name.id, _number(statement.value), " ".join(str(text.value).split()))


def _number(node: ast.expr) -> float:
    """Evaluates an expression of numbers with products and shifts."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _number(left) * _number(right)
        case ast.BinOp(left=left, op=ast.LShift(), right=right):
            return int(_number(left)) << int(_number(right))
        case _:
            raise ValueError(f"a limit is a number, not {ast.unparse(node)}")


def shown(limit: Limit) -> str:
    """The value with its unit, which the name tells."""
    if "BYTES" in limit.name:
        return _in_units(limit.value, SIZES, "bytes")
    if limit.name.endswith("_KIB"):
        return _in_units(limit.value * 1024, SIZES, "bytes")
    if "_MS" in limit.name:
        return _in_units(limit.value, TIMES, "ms")
    if "_S" in limit.name and isinstance(limit.value, float):
        return f"{limit.value:g} s"
    return f"{limit.value:,}"


def _in_units(value: float, units: Sequence[tuple[str, int]], smallest: str) -> str:
    for unit, size in units:
        if value >= size and value % size == 0:
            return f"{value // size:,} {unit}"
    return f"{value:,} {smallest}"


def render() -> str:
    parts = [OPENING]
    for package, title in PACKAGES.items():
        path = SOURCE / package / "limits.py"
        rows = [
            f"| `{one.name}` | {shown(one)} | {one.reason} |"
            for one in limits_in(path.read_text(encoding="utf-8"))
        ]
        table = "\n".join(["| limit | value | reason |", "| --- | --- | --- |", *rows])
        parts.append(f"## {title}\n\n{table}\n")
    return "\n".join(parts)


def main(arguments: Sequence[str]) -> int:
    """Writes the file; with `--check` exits with 1 if it is stale."""
    text = render()
    fresh = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
    if "--check" in arguments:
        if not fresh:
            print(f"{TARGET.name} is stale: run tools/{Path(__file__).name}", file=sys.stderr)
        return 0 if fresh else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
