from __future__ import annotations

import msgspec
import pytest

from tests.oracles import recorded
from tests.oracles.against import compare
from tests.oracles.play import flat, play
from tests.oracles.stories import Story

QUICK = range(16)


def test_random_stories_come_to_what_is_recorded() -> None:
    assert not recorded.differences(QUICK)


@pytest.mark.slow
def test_all_recorded_stories_come_to_what_is_recorded() -> None:
    assert not recorded.differences(recorded.SEEDS)


def test_a_difference_is_named_by_story_turn_and_place() -> None:
    then = {7: [msgspec.msgpack.encode([1]), msgspec.msgpack.encode([1, ["a", "b"]])]}
    now = {7: [msgspec.msgpack.encode([1]), msgspec.msgpack.encode([1, ["a", "c"]])]}
    difference = compare(then, now)
    assert difference[1:] == ["First in story 7, turn 1, at $[1][1]:", "  then 'b'", "  now  'c'"]


def test_the_wording_of_a_message_is_no_outcome() -> None:
    assert flat("one text") == flat("another text") != flat("word")


def test_a_story_holds_nothing_but_plain_data_and_plays_the_same_twice() -> None:
    script = msgspec.msgpack.decode(msgspec.msgpack.encode(Story(3).write()))
    assert play(script) == play(Story(3).write())
