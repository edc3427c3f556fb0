"""Plain sockets, for requests that no HTTP client would send."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from tests.process.cell import PATIENCE_S, Cell

HEAD_MAX = 64 * 1024


class Raw:
    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.socket = socket.create_connection(("127.0.0.1", cell.port), timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def head(self, line: str, *headers: str) -> bytes:
        token = f"Authorization: Bearer {self._cell.token}"
        host = f"Host: 127.0.0.1:{self._cell.port}"
        return "\r\n".join([f"{line} HTTP/1.1", host, token, *headers, "", ""]).encode()

    def send(self, data: bytes) -> bool:
        """False if the server has closed the connection."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def status(self) -> int | None:
        """The status of the next answer; None if the connection ended without one."""
        got = b""
        while b"\r\n\r\n" not in got and len(got) < HEAD_MAX:
            try:
                piece = self.socket.recv(4096)
            except ConnectionResetError:
                piece = b""
            if not piece:
                break
            got += piece
        return int(got.split()[1]) if got.startswith(b"HTTP/") else None
