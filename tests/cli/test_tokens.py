"""Tokens made where no server runs, and the first one of a data folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota.api.auth.token_cache import TokenCache, token_digest
from rota.cli.start.access_setup import local_token
from rota.engine.clock import SystemClock
from rota.store.sqlite.memory import MemoryTokenStore
from rota.store.sqlite.store import open_sqlite
from rota.store.tokens import Role
from tests.cli.conftest import Rota
from tests.postgres.cell import Cell

CLOCK = SystemClock()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The option that names an empty store."""
    return ("--data", str(tmp_path)) if request.param == "sqlite" else ("--store", Cell().dsn)


def test_the_first_token_is_made_in_an_empty_store(rota: Rota, where: tuple[str, str]) -> None:
    made = rota("tokens", "create", "--role", "admin", "--name", "alice", "--json", *where)
    assert made.status == 0, made.err
    assert made.json["token"].startswith("rota_")
    assert (made.json["role"], made.json["name"], made.json["tenant"]) == ("admin", "alice", None)
    listed = rota("tokens", "list", "--json", *where)
    assert [one["token_id"] for one in listed.json["items"]] == [made.json["token_id"]]
    assert made.json["token"] not in listed.out


def test_in_a_pipe_there_is_the_token_and_nothing_else(rota: Rota, tmp_path: Path) -> None:
    made = rota(
        *("tokens", "create", "--role", "submitter", "--tenant", "acme", "--expires", "30d"),
        *("--data", str(tmp_path)),
    )
    assert made.out.startswith("rota_")
    assert made.out.count("\n") == 1
    assert "submitter of acme, ends " in made.err
    table = rota("tokens", "list", "--data", str(tmp_path))
    assert "acme" in table.out
    assert made.out.strip() not in table.out


def test_a_token_is_revoked_by_name_or_a_part_of_its_id(rota: Rota, where: tuple[str, str]) -> None:
    for name in ("one", "two", "two"):
        rota("tokens", "create", "--role", "viewer", "--name", name, *where)
    assert rota("tokens", "revoke", "one", *where).out == "one is revoked\n"
    assert "no recent token" in rota("tokens", "revoke", "nothing", *where).err
    twins = rota("tokens", "list", "--json", *where).json["items"]
    refused = rota("tokens", "revoke", "two", *where).err
    assert "2 live tokens are called 'two'" in refused
    assert twins[0]["token_id"][-8:] in refused
    part = twins[0]["token_id"][-8:]
    assert rota("tokens", "revoke", part, "--json", *where).json["revoked"] is True
    after = rota("tokens", "list", "--json", *where).json["items"]
    assert [one["status"] for one in after] == ["revoked", "live", "revoked"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--role", "worker", "--tenant", "acme"), "goes with the roles submitter and viewer"),
        (("--role", "viewer", "--tenant", "a b"), "tenant"),
        (("--role", "viewer", "--expires", "0s"), "must be more than 0"),
        (("--role", "king"), "king"),
        ((), "--role"),
        (("--role", "admin", "--store", "postgresql://x/y"), "two stores"),
    ],
)
def test_a_wrong_token_command_is_refused_in_one_line(
    rota: Rota, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    ran = rota("tokens", "create", *options, "--data", str(tmp_path))
    assert ran.status != 0
    assert message in ran.err
    assert ran.out == ""


async def test_a_data_folder_in_use_refers_to_its_server(rota: Rota, tmp_path: Path) -> None:
    store = open_sqlite(tmp_path)
    try:
        ran = await asyncio.to_thread(rota, "tokens", "list", "--data", str(tmp_path))
    finally:
        await store.close()
    assert ran.status == 1
    assert "leave --data out" in ran.err


async def opened(book: MemoryTokenStore) -> TokenCache:
    cache = TokenCache(book, CLOCK)
    await cache.refresh()
    return cache


async def test_a_data_folders_token_is_made_once_and_is_an_ordinary_one(tmp_path: Path) -> None:
    cache = await opened(MemoryTokenStore())
    text = await local_token(cache, tmp_path, "start", CLOCK)
    assert await local_token(cache, tmp_path, "start", CLOCK) == text
    assert (tmp_path / "token").read_text().strip() == text
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    (known,) = cache.all_tokens()
    assert (known.name, known.role, known.digest) == ("local", Role.ADMIN, token_digest(text))


async def test_a_token_from_before_there_were_tables_stays_good(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("an-older-one\n")
    cache = await opened(MemoryTokenStore())
    assert await local_token(cache, tmp_path, "start", CLOCK) == "an-older-one"
    assert cache.find("an-older-one") is not None


async def test_deleting_the_file_ends_the_token_that_was_in_it(tmp_path: Path) -> None:
    book = MemoryTokenStore()
    cache = await opened(book)
    old = await local_token(cache, tmp_path, "start", CLOCK)
    (tmp_path / "token").unlink()
    new = await local_token(cache, tmp_path, "start", CLOCK)
    was, now = cache.find(old), cache.find(new)
    assert was is not None
    assert now is not None
    assert not was.is_live(CLOCK.now())
    assert now.is_live(CLOCK.now())


async def test_a_revoked_token_does_not_come_back_with_its_file(tmp_path: Path) -> None:
    cache = await opened(MemoryTokenStore())
    old = await local_token(cache, tmp_path, "start", CLOCK)
    (known,) = cache.all_tokens()
    await cache.revoke(known.id, CLOCK.now())
    new = await local_token(cache, tmp_path, "start", CLOCK)
    assert new != old
    assert (tmp_path / "token").read_text().strip() == new


async def test_servers_that_share_a_store_leave_each_others_tokens_alone(tmp_path: Path) -> None:
    cache = await opened(MemoryTokenStore())
    texts = [await local_token(cache, tmp_path / name, f"start in {name}", CLOCK) for name in "ab"]
    assert all(cache.is_live(one.id) for one in cache.all_tokens())
    assert len({*texts}) == 2
