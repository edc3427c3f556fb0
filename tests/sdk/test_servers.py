"""Which server is asked next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.sdk.servers import AVOIDED_S, AVOIDED_S_MAX, Servers

A, B, C = "http://a:7070", "http://b:7070", "http://c:7070"
ELSEWHERE = "http://10.0.0.5:7070"


def three(*, follow: bool = True) -> Servers:
    return Servers([A, B, C], follow=follow)


def test_the_next_is_asked_when_one_is_silent_and_after_the_last_the_first() -> None:
    servers = three()
    asked = []
    for _ in range(4):
        asked.append(servers.current)
        servers.mark_unreachable(servers.current, 0)
    assert asked == [A, B, C, A]


def test_a_failure_that_is_heard_of_late_skips_nobody() -> None:
    servers = three()
    servers.mark_unreachable(A, 0)
    servers.mark_unreachable(A, 0)
    servers.skip(A)
    assert servers.current == B


@pytest.mark.parametrize("hint", [C, "http://C:7070/", "http://c:7070/some/path"])
def test_a_given_server_that_is_named_leader_is_asked_as_it_was_given(hint: str) -> None:
    for follow in (True, False):
        servers = three(follow=follow)
        servers.heard(A, hint, 0)
        assert servers.current == C


def test_the_usual_port_need_not_be_written() -> None:
    servers = Servers(["https://a/", "https://b/rota"])
    servers.heard("https://a", "https://b:443", 0)
    assert servers.current == "https://b/rota"


def test_a_leader_elsewhere_is_followed_only_if_that_was_not_forbidden() -> None:
    servers = three()
    servers.heard(A, ELSEWHERE + "/", 0)
    assert servers.current == ELSEWHERE
    kept = three(follow=False)
    kept.heard(A, ELSEWHERE, 0)
    assert kept.current == A


def test_a_leader_elsewhere_that_is_silent_is_left_for_the_one_that_named_it() -> None:
    servers = three()
    servers.skip(A)
    servers.heard(B, ELSEWHERE, 0)
    servers.mark_unreachable(ELSEWHERE, 0)
    assert servers.current == B
    servers.heard(B, ELSEWHERE, AVOIDED_S - 1)
    assert servers.current == B
    servers.heard(B, ELSEWHERE, AVOIDED_S)
    assert servers.current == ELSEWHERE


def test_the_longer_a_leader_is_silent_the_later_it_is_tried_and_one_answer_clears_it() -> None:
    servers = three()
    now, pauses = 0.0, []
    for _ in range(12):
        servers.mark_unreachable(ELSEWHERE, now)
        before = now
        while servers.current != ELSEWHERE:
            now += 1
            servers.heard(A, ELSEWHERE, now)
        pauses.append(now - before)
    assert pauses[:3] == [AVOIDED_S, 2 * AVOIDED_S, 4 * AVOIDED_S]
    assert max(pauses) == AVOIDED_S_MAX
    servers.heard(ELSEWHERE, None, now)
    servers.mark_unreachable(ELSEWHERE, now)
    servers.heard(A, ELSEWHERE, now + AVOIDED_S)
    assert servers.current == ELSEWHERE


def test_a_server_that_froze_is_not_returned_to_because_a_follower_still_names_it() -> None:
    servers = three()
    servers.mark_unreachable(A, 0)
    servers.heard(B, A, 1)
    assert servers.current == B


def test_a_server_that_is_not_ready_is_left_for_the_leader_it_names() -> None:
    servers = three()
    servers.heard(A, C, 0)
    servers.skip(A)
    assert servers.current == C


@pytest.mark.parametrize(
    "hint",
    ["", "c:7070", "ftp://c:7070", "http://", "http://user@c:7070", "http://c:port", "http://[c"],
)
def test_a_hint_that_is_not_an_address_is_ignored(hint: str) -> None:
    servers = three()
    servers.heard(A, hint, 0)
    assert servers.current == A


def test_a_token_that_goes_over_tls_is_not_led_to_an_open_connection() -> None:
    servers = Servers(["https://a"])
    servers.heard("https://a", "http://b", 0)
    assert servers.current == "https://a"
    servers.heard("https://a", "https://b", 0)
    assert servers.current == "https://b"


def test_a_hint_of_a_server_that_was_left_is_ignored() -> None:
    servers = three()
    servers.mark_unreachable(A, 0)
    servers.heard(A, C, 0)
    assert servers.current == B


SERVER = st.sampled_from([A, B, C, ELSEWHERE])
STEP = st.one_of(
    st.tuples(st.just("silent"), SERVER),
    st.tuples(st.just("passed"), SERVER),
    st.tuples(st.just("heard"), SERVER),
)


@given(st.lists(st.tuples(STEP, SERVER), max_size=30))
def test_after_any_history_all_given_servers_are_asked_within_one_round(
    steps: list[tuple[tuple[str, str], str]],
) -> None:
    servers = three()
    for now, ((what, server), hint) in enumerate(steps):
        if what == "silent":
            servers.mark_unreachable(server, now)
        elif what == "passed":
            servers.skip(server)
        else:
            servers.heard(server, hint, now)
    asked = []
    for _ in range(servers.given_count + 1):
        asked.append(servers.current)
        servers.mark_unreachable(servers.current, len(steps))
    assert {A, B, C} <= set(asked)
