"""Endpoints of the scheduling policy: show it, set it."""

from __future__ import annotations

from typing import Any

from msgspec import UnsetType
from msgspec.structs import replace

from rota.api.auth.roles import Permission
from rota.api.recall import expect, post
from rota.api.router import Call, NoQuery, Operation
from rota.core.commands import AnyInput, Preloaded, SetPolicy
from rota.core.outcome import PolicyAnswer
from rota.core.policy import PRESETS, BackfillKind, CandidateKind, OrderKind, Policy
from rota.wire.formats import Duration, number
from rota.wire.policy import PolicySpec, PolicyView

_FIELDS = {
    "length_cap": "length_cap_ms",
    "priority_wait": "priority_ms",
    "half_life": "half_life_ms",
    "preempt_after": "preempt_after_ms",
}
"""Durations, and their names in the core."""
_KINDS: dict[str, Any] = {"order": OrderKind, "backfill": BackfillKind, "candidates": CandidateKind}


@Operation(
    "GET",
    "/policy",
    "Show the policy",
    tag="Policy",
    permission=Permission.READ,
    answer=PolicyView,
    examples={"answer": "policy"},
)
async def show_policy(call: Call[None, NoQuery]) -> PolicyView:
    await call.deps.brain.settled()
    return policy_view(call.deps.brain.policy())


@Operation(
    "PUT",
    "/policy",
    "Set the policy",
    tag="Policy",
    permission=Permission.OPERATE,
    body=PolicySpec,
    answer=PolicyView,
    description=(
        "Settings that are left out are those of the preset. It applies from the next decision on."
    ),
    examples={"body": "put_policy_body", "answer": "policy"},
)
async def put_policy(call: Call[PolicySpec, NoQuery]) -> PolicyView:
    policy = policy_of(call.body)

    def build(preloaded: Preloaded | None) -> AnyInput:
        return SetPolicy(policy=policy, key=call.key, preloaded=preloaded)

    return policy_view(expect(await post(call, build), PolicyAnswer).policy)


def policy_of(spec: PolicySpec) -> Policy:
    """Converts a policy: its settings replace those of the preset."""
    changes: dict[str, Any] = {}
    for name in spec.__struct_fields__:
        value = getattr(spec, name)
        if name == "preset" or isinstance(value, UnsetType):
            continue
        if isinstance(value, Duration):
            value = value.ms
        changes[_FIELDS.get(name, name)] = _KINDS[name](value) if name in _KINDS else value
    return replace(PRESETS[spec.preset], **changes)


def policy_view(policy: Policy) -> PolicyView:
    return PolicyView(
        order=policy.order.value,
        backfill=policy.backfill.value,
        candidates=policy.candidates.value,
        beta=policy.beta,
        length_cap=number(policy.length_cap_ms),
        priority_wait=number(policy.priority_ms),
        half_life=number(policy.half_life_ms),
        preempt_gap=policy.preempt_gap,
        preempt_after=number(policy.preempt_after_ms),
        max_running=policy.max_running,
        max_queued=policy.max_queued,
    )
