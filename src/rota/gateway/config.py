"""Configuration of a gateway: cells with their servers, weights and pins, and the cell of each
tenant.

Tenants are spread by weighted rendezvous hashing, equal in every gateway: each cell gets a score
for the tenant, and the highest wins. A new cell therefore moves only the tenants that it wins, and
a removed one only those that it had.

Why: docs/decisions/0023-cells-behind-stateless-gateways.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import urlsplit

from rota.gateway.limits import CELLS_MAX, SERVERS_PER_CELL_MAX
from rota.wire.formats import cell_tag, is_cell_name

_BITS = 52
"""So many bits and a half fit a float exactly: the fraction is never 0 and never 1."""


@dataclass(frozen=True, slots=True)
class TenantRouter:
    """Chooses a tenant's cell by weights; one of weight 0 gets only tenants pinned to it."""

    weights: Mapping[str, float]
    pins: Mapping[str, str] = field(default_factory=dict)
    """Tenants whose cell an operator chose."""

    def cell_of(self, tenant: str) -> str:
        pinned = self.pins.get(tenant)
        if pinned is not None:
            return pinned
        scores = {
            cell: _score(cell, tenant, weight) for cell, weight in self.weights.items() if weight
        }
        # Equal scores are decided by name, so that the order of options does not matter.
        return max(sorted(scores), key=scores.__getitem__)


def _score(cell: str, tenant: str, weight: float) -> float:
    """Returns a hash that is the highest with a chance in proportion to the weight."""
    digest = blake2b(f"{cell}/{tenant}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    fraction = ((int.from_bytes(digest, "big") >> (64 - _BITS)) + 0.5) / (1 << _BITS)
    return -weight / math.log(fraction)


class ConfigError(ValueError):
    """The options cannot be used together; the text says what to do."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Cells by name with the URLs of their servers, and the router of tenants."""

    cells: Mapping[str, Sequence[str]]
    router: TenantRouter


def make_config(
    cells: Iterable[tuple[str, str]],
    weights: Iterable[tuple[str, str]] = (),
    pins: Iterable[tuple[str, str]] = (),
) -> GatewayConfig:
    """Makes it of `name=URL`, `name=weight`, `tenant=name`; a cell named twice has two servers."""
    servers: dict[str, list[str]] = {}
    for name, url in cells:
        _check_cell(name, url)
        servers.setdefault(name, []).append(url.rstrip("/"))
    _check_cells(servers)
    pinned = dict(pins)
    for name in pinned.values():
        _check_known(name, servers, "--pin")
    return GatewayConfig(servers, TenantRouter(_weights(servers, weights), pinned))


def _check_cell(name: str, url: str) -> None:
    if not is_cell_name(name):
        raise ConfigError(f"--cell {name}=…: a cell's name has only small letters, digits and -")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"--cell {name}={url}: write the URL like https://host:7070")
    if parts.path.strip("/") or parts.query or parts.username:
        raise ConfigError(f"--cell {name}: the URL has only scheme, host and port")


def _check_cells(servers: Mapping[str, Sequence[str]]) -> None:
    if not servers:
        raise ConfigError("name at least one cell: --cell NAME=URL")
    if len(servers) > CELLS_MAX:
        raise ConfigError(f"{len(servers)} cells: a gateway has at most {CELLS_MAX}")
    tags: dict[str, str] = {}
    for name, urls in servers.items():
        if len(urls) > SERVERS_PER_CELL_MAX:
            raise ConfigError(f"cell {name} has more than {SERVERS_PER_CELL_MAX} servers")
        other = tags.setdefault(cell_tag(name), name)
        if other != name:
            raise ConfigError(
                f"the cells {other} and {name} have the same tag {cell_tag(name)} in their ids,"
                " so an id would not show its cell: give the newer one another name"
            )


def _check_known(name: str, servers: Mapping[str, Sequence[str]], option: str) -> None:
    if name not in servers:
        raise ConfigError(f"{option}: there is no cell {name!r}; there are {', '.join(servers)}")


def _weights(
    servers: Mapping[str, Sequence[str]], given: Iterable[tuple[str, str]]
) -> dict[str, float]:
    weights = dict.fromkeys(servers, 1.0)
    for name, text in given:
        _check_known(name, servers, "--weight")
        try:
            weights[name] = float(text)
        except ValueError:
            raise ConfigError(f"--weight {name}={text}: a number, such as 2 or 0.5") from None
        if not 0 <= weights[name] <= 1e6:
            raise ConfigError(f"--weight {name}={text}: from 0 (nothing new) to 1000000")
    if not any(weights.values()):
        raise ConfigError("all cells have weight 0: nothing could be submitted")
    return weights
