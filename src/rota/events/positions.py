"""Remembers how far each source and sink has come, and what could not be delivered, in files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec


class Offsets:
    """A folder of small files; each is replaced as a whole, so that a crash leaves the old one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def load(self, name: str) -> Any:
        """What was last saved; None: nothing was."""
        try:
            return msgspec.json.decode((self._folder / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return None

    def save(self, name: str, value: Any) -> None:
        """Durable when it returns."""
        target = self._folder / f"{name}.json"
        fresh = target.with_suffix(".new")
        with fresh.open("wb") as file:
            file.write(msgspec.json.encode(value))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(target)

    def keep_undelivered(self, name: str, letter: Any) -> Path:
        """Keeps what could not be delivered, a line each."""
        grave = self._folder / f"{name}.dead.jsonl"
        with grave.open("ab") as file:
            file.write(msgspec.json.encode(letter) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return grave
