"""The catalogue of peers: each has its side, and each can be asked for by name."""

from __future__ import annotations

import pytest

from benchmarks.peers.catalogue import PEERS, Peer
from benchmarks.peers.compare import NAMES, unknown
from benchmarks.peers.processes import SIDES


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_has_a_side_in_its_language(peer: Peer) -> None:
    assert (SIDES / f"{peer.side}.{'mjs' if peer.node else 'py'}").is_file()


def test_no_two_have_one_name() -> None:
    assert len(dict.fromkeys(NAMES)) == len(NAMES)


def test_a_word_that_is_in_no_name_is_told() -> None:
    assert unknown(["graphile", "REDIS", "sidekiq"]) == ["sidekiq"]
