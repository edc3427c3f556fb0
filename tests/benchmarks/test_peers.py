"""Catalogue of peers: each has a side, and can be chosen by name."""

from __future__ import annotations

import pytest

from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.compare import NAMES, unknown
from benchmarks.peers.processes import SIDES


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_has_a_side_in_its_language(peer: Peer) -> None:
    assert (SIDES / f"{peer.side}.{'mjs' if peer.node else 'py'}").is_file()


def test_every_peer_has_a_name_of_its_own() -> None:
    assert len(dict.fromkeys(NAMES)) == len(NAMES)


def test_a_word_that_matches_no_peer_is_reported() -> None:
    assert unknown(["graphile", "REDIS", "sidekiq"]) == ["sidekiq"]
