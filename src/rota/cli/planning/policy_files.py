"""Reads a policy that somebody wrote into a TOML file, with the names that the API has."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from rota.api.cell.policy import policy_of
from rota.cli.problems import Failure
from rota.core.records.policy import Policy
from rota.wire.policy import PolicySpec
from rota.wire.units import dec_hook


def read_policy(path: Path) -> Policy:
    """`preset = "easy"`, `beta = 3`, `half_life = "12h"`: what is left out is as in the preset."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        return policy_of(msgspec.convert(given, PolicySpec, dec_hook=dec_hook))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError, msgspec.ValidationError) as error:  # of TOML, and of UTF-8
        raise Failure(f"{path}: no policy: {error}") from error
