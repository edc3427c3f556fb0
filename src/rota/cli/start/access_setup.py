"""Sets up access control: tokens, rate limits, the audit log, the local token file."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rota.api.auth.audit_log import AuditLog
from rota.api.auth.authenticator import LOOPBACK_HOSTS, Access
from rota.api.auth.token_cache import TokenCache
from rota.api.endpoints.tokens import new_token
from rota.api.ids import IdMint, mint_token
from rota.api.throttling import Rate, RateLimiter, Throttle
from rota.cli.start.up import ServerOptions, UpOptions
from rota.engine.ports import Clock
from rota.sdk.discovery import LOCAL_FILE, TOKEN_FILE, state_file
from rota.store.protocol import Store
from rota.wire.tokens import TokenSpec


def read_token(data: Path) -> str:
    """Returns the admin token in a data folder; empty: there is none."""
    try:
        return (data / TOKEN_FILE).read_text().strip()
    except FileNotFoundError:
        return ""


def write_token(data: Path, token: str) -> None:
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(data / TOKEN_FILE, token + "\n")


def announce(url: str, token: str | None, data: Path) -> None:
    """Announces the server to the command line, the SDK and workers of this user."""
    known = {"url": url, "token": token, "data": str(data.resolve()), "pid": os.getpid()}
    text = json.dumps(known) + "\n"
    for path in _announcement_files(data):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, text)


def withdraw(data: Path) -> None:
    """Removes the announcement of this server, but not another's."""
    for path in _announcement_files(data):
        try:
            known = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        if known.get("pid") == os.getpid():
            path.unlink(missing_ok=True)


def _announcement_files(data: Path) -> tuple[Path, Path]:
    return data / LOCAL_FILE, state_file(os.environ)


def write_private(path: Path, text: str) -> None:
    """Writes a file whole or not at all, never readable by others, not even for a moment."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


LOCAL = "local"
"""Name of the local token."""


@dataclass(frozen=True, slots=True)
class AccessSetup:
    """Authentication of a server, and its background tasks."""

    access: Access
    audit: AuditLog
    token: str | None
    """The one in the data folder, which this server made known."""

    async def start(self) -> None:
        """Looks for changes and writes entries from now on."""
        await self.access.tokens.start()
        await self.audit.start()

    async def stop(self) -> None:
        """Writes the last entries; the store must still be there."""
        await self.access.tokens.stop()
        await self.audit.stop()

    def sign_in_path(self) -> str | None:
        """Returns the path that signs a browser in as the local token, once."""
        known = None if self.token is None else self.access.tokens.find(self.token)
        return None if known is None else f"/?token={self.access.sign_in_codes.issue(known.id)}"


async def open_access(
    options: UpOptions | ServerOptions, store: Store, clock: Clock
) -> AccessSetup:
    """Sets up what the options ask for, and makes the first token where there is to be one."""
    tokens = TokenCache(store.tokens, clock)
    await tokens.refresh()
    token = None
    if options.auth and makes_token(options):
        token = await local_token(tokens, options.data, _token_creator(options), clock)
    access = Access(
        tokens=tokens,
        no_auth=not options.auth,
        hosts=tuple(
            dict.fromkeys((*LOOPBACK_HOSTS, options.host, *options.names, *_own_host(options)))
        ),
        secure_cookies=options.tls_cert is not None,
        throttle=Throttle(
            by_token=RateLimiter(_rate(options.rate_limit)),
            by_address=RateLimiter(_rate(options.address_limit)),
        ),
    )
    return AccessSetup(access, AuditLog(store.tokens, clock, options.audit_age_ms), token)


def makes_token(options: UpOptions | ServerOptions) -> bool:
    """Whether the start makes a token: yes for one server alone and `rota up`, not in a cell."""
    return options.store is None or isinstance(options, UpOptions)


async def local_token(tokens: TokenCache, data: Path, maker: str, clock: Clock) -> str:
    """Returns the admin token of a data folder: an ordinary one, whose text is in a file there.

    A file that is gone, or whose token ended, gets a new one, and the maker's old one is revoked.
    """
    text, now = read_token(data), clock.now()
    known = tokens.find(text) if text else None
    if known is not None and known.is_live(now):
        return text
    for old in tokens.all_tokens():
        if old.created_by == maker and old.is_live(now):
            await tokens.revoke(old.id, now)
    if known is not None or not text:
        text = mint_token()
    spec = TokenSpec(role="admin", name=LOCAL)
    await tokens.add(new_token(spec, IdMint().mint(now), text, now, maker))
    write_token(data, text)
    return text


def _own_host(options: UpOptions | ServerOptions) -> list[str]:
    """Returns the name by which the other servers forward to this one."""
    name = urlsplit(options.address).hostname if options.address else None
    return [] if name is None else [name]


def _token_creator(options: UpOptions | ServerOptions) -> str:
    """Names who makes the local token: many servers may share a store, each with its own folder."""
    if options.store is None:
        return "start"
    return f"start on {socket.gethostname()} in {options.data.resolve()}"


def _rate(given: tuple[int, int] | None) -> Rate | None:
    return None if given is None else Rate(*given)
