"""What was set for the whole cell and what was learned: kept as small rows of kind, name, body."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from rota.core.model import RuntimeStats, Tenant
from rota.core.policy import Policy
from rota.store.fold import TableChanges

_encode = msgspec.msgpack.Encoder().encode
_decode_policy = msgspec.msgpack.Decoder(Policy).decode
_decode_tenant = msgspec.msgpack.Decoder(Tenant).decode
_decode_runtime = msgspec.msgpack.Decoder(RuntimeStats).decode

_BETWEEN = "\x1f"
"""Between a tenant and a name: it is in neither."""


class Settings(msgspec.Struct, frozen=True):
    """The policy, the tenants' weights and quotas, and how long jobs of each name ran."""

    policy: Policy | None = None
    tenants: Sequence[Tenant] = ()
    runtimes: Sequence[RuntimeStats] = ()

    def after(self, folded: TableChanges) -> Settings:
        """The same with what was set since."""
        if folded.policy is None and not folded.tenants and not folded.runtimes:
            return self
        tenants = {one.name: one for one in self.tenants} | folded.tenants
        runtimes = {(one.tenant, one.name): one for one in self.runtimes} | folded.runtimes
        return Settings(
            folded.policy or self.policy,
            [tenants[name] for name in sorted(tenants)],
            [runtimes[key] for key in sorted(runtimes)],
        )


def setting_rows(folded: TableChanges) -> list[tuple[str, str, bytes]]:
    """(kind, name, body) of all that was set."""
    found = [("tenant", name, _encode(one)) for name, one in folded.tenants.items()]
    found += [("runtime", _BETWEEN.join(key), _encode(one)) for key, one in folded.runtimes.items()]
    if folded.policy is not None:
        found.append(("policy", "", _encode(folded.policy)))
    return found


def read_settings(found: Iterable[tuple[str, bytes]]) -> Settings:
    """From (kind, body); other kinds are not the scheduler's (notes.py)."""
    policy: Policy | None = None
    tenants: list[Tenant] = []
    runtimes: list[RuntimeStats] = []
    for kind, body in found:
        if kind == "policy":
            policy = _decode_policy(body)
        elif kind == "tenant":
            tenants.append(_decode_tenant(body))
        elif kind == "runtime":
            runtimes.append(_decode_runtime(body))
    tenants.sort(key=lambda one: one.name)
    runtimes.sort(key=lambda one: (one.tenant, one.name))
    return Settings(policy, tenants, runtimes)
