"""Tries policies, which people name, on a workload."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from rota.cli.planning.policy_files import read_policy
from rota.cli.problems import Failure
from rota.core.records.policy import PRESETS, Policy
from rota.simulate.study import Setting, Trial, recorded, shaken_trial, trial
from rota.simulate.world import SimulationError

F = TypeVar("F", bound=Callable[..., Any])

RECORDED = "recorded"
"""Stands for what happened in truth."""
KNOWN = (*PRESETS, RECORDED)
FILE_END = ".toml"

Names: TypeAlias = dict[str, Policy | None]
"""Policies by name, in the order given; None: what was recorded."""


def policies(value: Any) -> Names:
    """`fcfs,easy,ours.toml`."""
    names = [name.strip() for name in str(value).split(",") if name.strip()]
    for name in names:
        if name not in KNOWN and not name.endswith(FILE_END):
            raise click.BadParameter(
                f"there is no policy {name!r}: name {', '.join(KNOWN)} or a {FILE_END} file"
            )
    if not names:
        raise click.BadParameter(f"name some of {', '.join(KNOWN)}")
    return {name: _policy(name) for name in names}


def _policy(name: str) -> Policy | None:
    return read_policy(Path(name)) if name.endswith(FILE_END) else PRESETS.get(name)


def policies_option(command: F) -> F:
    """`--policy`."""
    return click.option(
        "--policy",
        "names",
        type=policies,
        default="default",
        metavar="NAMES",
        help=f"Side by side: {','.join(KNOWN)} (as it was), or FILE.toml.",
    )(command)


def tried(names: Names, setting: Setting, shake: tuple[int, int] | None = None) -> dict[str, Trial]:
    """What each comes to; `shake`: by how many milliseconds, and how many runs."""
    return {name: _one(name, policy, setting, shake) for name, policy in names.items()}


def _one(
    name: str, policy: Policy | None, setting: Setting, shake: tuple[int, int] | None
) -> Trial:
    if policy is None:
        return _as_it_was(setting)
    try:
        return trial(policy, setting) if shake is None else shaken_trial(policy, setting, *shake)
    except SimulationError as error:
        raise Failure(f"policy {name}: {error}") from error


def _as_it_was(setting: Setting) -> Trial:
    found = recorded(setting.workload, setting.fleet)
    if found is None:
        raise Failure(f"{setting.workload.title} does not say when its jobs started")
    return found
