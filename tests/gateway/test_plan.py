"""What a gateway refuses to start with."""

from __future__ import annotations

import itertools

import pytest

from rota.gateway.plan import ConfigError, make_config
from rota.wire.cells import cell_tag

A, B = ("a", "http://127.0.0.1:1"), ("b", "https://b.example:7070/")


def two_of_one_tag() -> tuple[str, str]:
    """Names of cells that cannot be told apart by an id."""
    seen: dict[str, str] = {}
    for number in itertools.count():
        name = f"cell-{number}"
        if (other := seen.setdefault(cell_tag(name), name)) != name:
            return other, name
    raise AssertionError


def test_cells_have_servers_weights_and_pins() -> None:
    plan = make_config([A, B, ("a", "http://127.0.0.1:2")], [("b", "2.5")], [("acme", "a")])
    assert plan.cells == {
        "a": ["http://127.0.0.1:1", "http://127.0.0.1:2"],
        "b": ["https://b.example:7070"],
    }
    assert plan.router.weights == {"a": 1.0, "b": 2.5}
    assert plan.router.cell_of("acme") == "a"


def test_two_cells_that_ids_cannot_tell_apart_are_refused() -> None:
    one, other = two_of_one_tag()
    with pytest.raises(ConfigError, match=f"{one} and {other} have the same tag"):
        make_config([(one, A[1]), (other, A[1])])


@pytest.mark.parametrize(
    ("cells", "weights", "pins", "words"),
    [
        ([], [], [], "at least one cell"),
        ([("A", A[1])], [], [], "small letters"),
        ([("a", "127.0.0.1:7070")], [], [], "https://host:7070"),
        ([("a", "http://u:p@host")], [], [], "nothing but"),
        ([("a", "http://host/api")], [], [], "nothing but"),
        ([A], [("b", "1")], [], "no cell 'b'"),
        ([A], [("a", "much")], [], "a number"),
        ([A], [("a", "-1")], [], "from 0"),
        ([A], [("a", "0")], [], "nothing could be submitted"),
        ([A], [], [("acme", "b")], "no cell 'b'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    cells: list[tuple[str, str]],
    weights: list[tuple[str, str]],
    pins: list[tuple[str, str]],
    words: str,
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_config(cells, weights, pins)
