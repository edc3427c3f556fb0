"""Masking of secrets in output: wherever the stream is split, and of nothing else."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.worker.masking import Secrets, StreamMasking, secrets_of

SECRETS = ("abcabd", "abcabdxyz", "bdxyzaa", "zzzzzz")


def shown(secrets: Secrets, *pieces: bytes) -> bytes:
    masking = StreamMasking(secrets)
    return b"".join([*map(masking.add, pieces), masking.end()])


@given(st.text("abcdxyz", max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_a_secret_is_masked_wherever_the_stream_is_split(text: str, cuts: list[int]) -> None:
    raw, places = text.encode(), sorted({0, *cuts, 60})
    pieces = [raw[a:b] for a, b in pairwise(places)]
    seen = shown(Secrets(SECRETS), *pieces)
    for secret in SECRETS:
        assert secret.encode() not in seen
    if not any(secret in text for secret in SECRETS) and b"***" not in seen:
        assert seen == raw


@given(st.binary(max_size=200), st.integers(0, 200))
def test_bytes_that_are_no_secret_are_unchanged(data: bytes, cut: int) -> None:
    secrets = Secrets(["a secret that is not there"])
    assert shown(secrets, data[:cut], data[cut:]) == data
    assert shown(Secrets([]), data[:cut], data[cut:]) == data


def test_text_that_only_begins_like_a_secret_comes_out_later() -> None:
    masking = StreamMasking(Secrets(["hunter2hunter2"]))
    assert masking.add(b"I am a hunt") == b"I am a "
    assert masking.add(b"ress\n") == b"huntress\n"


def test_a_secret_over_many_reads_is_one_mask() -> None:
    secret = "s3cr3t-value-of-some-length"
    pieces = [bytes([byte]) for byte in f"<{secret}><{secret}>".encode()]
    assert shown(Secrets([secret]), *pieces) == b"<***><***>"


def test_a_truncated_secret_is_masked_if_much_of_it_is_there() -> None:
    secret = Secrets(["hunter2hunter2"])
    assert shown(secret, b"x hunter2hun") == b"x ***"
    assert shown(secret, b"x hunt") == b"x hunt"


def test_of_two_secrets_that_begin_alike_the_longer_wins() -> None:
    secrets = Secrets(["token-1", "token-1-long"])
    assert shown(secrets, b"token-1", b"-long.") == b"***."
    assert shown(secrets, b"token-1", b"-la") == b"***-la"
    assert secrets.hide("token-1-long token-1") == "*** ***"


@pytest.mark.parametrize(
    "name",
    ["API_TOKEN", "client_secret", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "KEY", "PGPASSWD"],
)
def test_variables_with_secret_names_are_masked(name: str) -> None:
    assert secrets_of({name: "value-1"}, (), {}).hide("a value-1") == "a ***"


def test_other_variables_are_masked_only_if_named() -> None:
    env, own = {"CITY": "Lisboa", "TEAM": "billing"}, {"LICENCE": "L-1234-5678"}
    text = "Lisboa billing L-1234-5678"
    assert secrets_of(env, (), own).hide(text) == text
    assert secrets_of(env, ("TEAM", "LICENCE", "NONE"), own).hide(text) == "Lisboa *** ***"


def test_short_values_are_not_masked() -> None:
    assert secrets_of({"TOKEN": "12345", "KEY": ""}, (), {}).hide("12345") == "12345"


def test_a_password_inside_a_url_is_masked() -> None:
    secrets = secrets_of({"DATABASE_URL": "postgres://app:s3cr3tpw@db:5432/x?y=1"}, (), {})
    assert secrets.hide("cannot log in as app with s3cr3tpw") == "cannot log in as app with ***"


def test_each_line_of_a_secret_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nAAAAC3NzaC1lZDI1NTE5\n-----END KEY-----\n"
    secrets = secrets_of({"DEPLOY_KEY": key}, (), {})
    assert shown(secrets, b"line 2 is AAAAC3NzaC1lZDI1NTE5\r\n") == b"line 2 is ***\r\n"
    assert shown(secrets, key.encode()) == b"***\n"
