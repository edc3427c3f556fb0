"""Takes a renewed certificate into use without a restart: new connections get the new one."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)


class Certificate:
    """A certificate and its key in two files, looked at now and then."""

    def __init__(self, cert: Path, key: Path | None) -> None:
        self._cert = cert
        self._key = key
        self._seen = self._look()

    def refresh(self, context: ssl.SSLContext) -> None:
        """Loads the files again if they changed; what cannot be used leaves the old in place.

        Whoever renews them replaces one file after the other, so a pair that does not fit is
        tried again at the next change.
        """
        now = self._look()
        if now == self._seen or None in now:
            return
        self._seen = now
        try:
            # Tried on another context first: what does not fit would leave half of itself behind.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the new certificate cannot be used; the old one stays", cause=str(error))
            return
        log.info("took a new certificate into use", certificate=str(self._cert))

    def _look(self) -> tuple[int | None, ...]:
        files = [file for file in (self._cert, self._key) if file is not None]
        return tuple(_changed_at(file) for file in files)


def _changed_at(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None  # just being replaced
