"""`rota bundles` against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Rota

pytestmark = pytest.mark.usefixtures("at_real_server")


def test_bundles_unused_for_months_are_listed_and_removed(rota: Rota, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    pushed = rota("bundles", "push", str(script))
    assert pushed.status == 0, pushed.err
    listed = rota("bundles", "--unused-for", "90d", "--json")
    assert (listed.status, listed.json["items"]) == (0, [])
    removed = rota("bundles", "rm", "--unused-for", "90d")
    assert removed.status == 0, removed.err
    assert len(rota("bundles", "--json").json["items"]) == 1


@pytest.mark.parametrize("typed", ["", "0"])
def test_too_little_of_an_id_does_not_mean_the_only_bundle(
    rota: Rota, tmp_path: Path, typed: str
) -> None:
    script = tmp_path / "only.sh"
    script.write_text("#!/bin/sh\n")
    pushed = rota("bundles", "push", str(script)).out.strip()
    assert rota("bundles", "rm", typed).status == 1
    assert pushed in rota("bundles").out
