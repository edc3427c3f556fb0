"""Errors of a store that its lowest modules raise too; the others are in `protocol`."""

from __future__ import annotations


class StoreError(Exception):
    """Failure of the store; nothing is known to have happened unless a subclass says so."""


class DamagedError(StoreError):
    """Raised when stored bytes are not those that were written. Trying again does not help."""


class DamagedRowError(DamagedError):
    """Raised when one row is damaged; all others can be used."""

    def __init__(self, what: str, key: str) -> None:
        self.what, self.key = what, key
        super().__init__(
            f"the stored {what} {key} is damaged: its checksum does not match its bytes;"
            " `rota doctor` lists what is damaged, and a backup may have it whole"
        )


class FileGoneError(StoreError):
    """Raised when a file of the store was removed or replaced while it was open. What was written
    into it last is lost."""
