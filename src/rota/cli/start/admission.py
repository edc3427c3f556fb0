"""Puts a server's access control together: tokens, limits, the audit trail, the first token."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rota.api.cell.tokens import new_token
from rota.api.door.auth import LOOPBACK_HOSTS, Access
from rota.api.door.roster import Roster
from rota.api.door.throttle import Buckets, Rate, Throttle
from rota.api.door.trail import AuditTrail
from rota.api.ids import IdMint, mint_token
from rota.cli.start.identity import keep_token, kept_token
from rota.cli.start.up import ServerOptions, UpOptions
from rota.engine.ports import Clock
from rota.store.protocol import Store
from rota.wire.tokens import TokenSpec

LOCAL = "local"
"""The name of the token that a start makes."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Who is let in, and the tasks behind it."""

    access: Access
    audit: AuditTrail
    token: str | None
    """The one in the data folder, which this server made known."""

    async def start(self) -> None:
        """Looks for changes and writes entries from now on."""
        await self.access.roster.start()
        await self.audit.start()

    async def stop(self) -> None:
        """Writes the last entries; the store must still be there."""
        await self.access.roster.stop()
        await self.audit.stop()

    def sign_in_path(self) -> str | None:
        """What signs a browser in as the local token, once."""
        known = None if self.token is None else self.access.roster.find(self.token)
        return None if known is None else f"/?token={self.access.codes.issue(known.id)}"


async def open_admission(
    options: UpOptions | ServerOptions, store: Store, clock: Clock
) -> Admission:
    """What the options ask for, with the first token made where there is to be one."""
    roster = Roster(store.access, clock)
    await roster.refresh()
    token = None
    if options.auth and makes_token(options):
        token = await local_token(roster, options.data, _maker(options), clock)
    access = Access(
        roster=roster,
        no_auth=not options.auth,
        hosts=tuple(dict.fromkeys((*LOOPBACK_HOSTS, options.host, *options.names, *_own(options)))),
        secure_cookies=options.tls_cert is not None,
        throttle=Throttle(
            by_token=Buckets(_rate(options.rate_limit)),
            by_address=Buckets(_rate(options.address_limit)),
        ),
    )
    return Admission(access, AuditTrail(store.access, clock, options.audit_age_ms), token)


def makes_token(options: UpOptions | ServerOptions) -> bool:
    """One server alone, or `rota up`; the servers of a cell are given theirs by a person."""
    return options.store is None or isinstance(options, UpOptions)


async def local_token(roster: Roster, data: Path, maker: str, clock: Clock) -> str:
    """The admin token of a data folder: an ordinary one, whose text lies in a file there.

    A file that is gone, or whose token ended, gets a new one, and the maker's old one is revoked.
    """
    text, now = kept_token(data), clock.now()
    known = roster.find(text) if text else None
    if known is not None and known.is_live(now):
        return text
    for old in roster.everyone():
        if old.created_by == maker and old.is_live(now):
            await roster.revoke(old.id, now)
    if known is not None or not text:
        text = mint_token()
    spec = TokenSpec(role="admin", name=LOCAL)
    await roster.add(new_token(spec, IdMint().mint(now), text, now, maker))
    keep_token(data, text)
    return text


def _own(options: UpOptions | ServerOptions) -> list[str]:
    """The name by which the other servers forward to this one."""
    name = urlsplit(options.address).hostname if options.address else None
    return [] if name is None else [name]


def _maker(options: UpOptions | ServerOptions) -> str:
    """Who made a local token: many servers may share a store, each with a folder of its own."""
    if options.store is None:
        return "start"
    return f"start on {socket.gethostname()} in {options.data.resolve()}"


def _rate(given: tuple[int, int] | None) -> Rate | None:
    return None if given is None else Rate(*given)
