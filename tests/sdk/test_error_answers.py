"""Answers as they are read."""

from __future__ import annotations

import pytest

from rota.sdk import (
    AnswerError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    LimitError,
    NotFoundError,
    ServerError,
    UnauthenticatedError,
    UnavailableError,
    calls,
)
from rota.sdk.backoff import CLIENT_CAP_S, pause_s
from rota.sdk.request_plan import error_of, is_passing, read


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidError),
        (401, UnauthenticatedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, InvalidError),
        (422, InvalidError),
        (429, LimitError),
        (500, ServerError),
        (503, UnavailableError),
        (507, UnavailableError),
    ],
)
def test_every_refusal_has_its_own_exception(status: int, kind: type[ApiError]) -> None:
    body = b'{"type": "t", "title": "T", "status": %d, "detail": "because"}' % status
    error = error_of(status, {}, body)
    assert type(error) is kind
    assert error.status == status
    assert str(error) == "because"


def test_a_problem_names_the_fields_that_are_wrong() -> None:
    body = (
        b'{"type": "t", "title": "T", "status": 422, "detail": "d",'
        b' "errors": [{"field": "retry.max_attempts", "message": "too many"}]}'
    )
    (wrong,) = error_of(422, {}, body).errors
    assert (wrong.field, wrong.message) == ("retry.max_attempts", "too many")


def test_a_proxys_page_in_place_of_a_problem_is_still_an_error() -> None:
    error = error_of(502, {"retry-after": "7"}, b"<html>Bad gateway</html>")
    assert isinstance(error, UnavailableError)
    assert "Bad gateway" in error.detail
    assert error.retry_after_s == 7


def test_only_temporary_errors_are_retried() -> None:
    passing = [s for s in (400, 404, 409, 429, 500, 502, 503, 504, 507) if _passes(s)]
    assert passing == [429, 502, 503, 504]


def _passes(status: int) -> bool:
    return is_passing(error_of(status, {}, b""))


def test_an_answer_of_another_server_is_reported_as_such() -> None:
    with pytest.raises(AnswerError, match="Rota server"):
        read(calls.get_job("x"), 200, {}, b"<html>hello</html>")


def test_unknown_fields_of_a_newer_server_are_ignored() -> None:
    health = read(calls.healthz(), 200, {}, b'{"status": "ok", "mood": "fine"}')
    assert health.status == "ok"


def test_backoff_grows_to_a_cap_and_differs_between_clients() -> None:
    waits = [pause_s(tried, "a") for tried in range(1, 30)]
    assert 0.05 <= waits[0] <= 0.1
    assert max(waits) <= CLIENT_CAP_S
    assert min(waits[10:]) >= CLIENT_CAP_S / 2
    assert pause_s(9, "a") != pause_s(9, "b")


def test_a_server_that_names_a_time_is_not_asked_sooner() -> None:
    assert pause_s(1, "a", retry_after_s=9.0) == 9.0
