"""The local server's token and where it can be found: files that only their owner can read."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rota.sdk.discovery import LOCAL_FILE, TOKEN_FILE, state_file


def kept_token(data: Path) -> str:
    """The admin token that lies in this data folder; empty: there is none."""
    try:
        return (data / TOKEN_FILE).read_text().strip()
    except FileNotFoundError:
        return ""


def keep_token(data: Path, token: str) -> None:
    """Puts it there."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(data / TOKEN_FILE, token + "\n")


def announce(url: str, token: str | None, data: Path) -> None:
    """Lets the command line, the SDK and workers of this user find the server by themselves."""
    known = {"url": url, "token": token, "data": str(data.resolve()), "pid": os.getpid()}
    text = json.dumps(known) + "\n"
    for path in _places(data):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, text)


def withdraw(data: Path) -> None:
    """The server is gone; another's announcement is left alone."""
    for path in _places(data):
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if known.get("pid") == os.getpid():
            path.unlink(missing_ok=True)


def _places(data: Path) -> tuple[Path, Path]:
    return data / LOCAL_FILE, state_file(os.environ)


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and never readable by others, not even for a moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)
