"""Where the server is and who asks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rota.sdk.discovery import Endpoint, discover, is_loopback
from rota.sdk.errors import AddressError, TokenError


def write_local(path: Path, url: str, token: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"url": url, "token": token, "data": str(path.parent), "pid": 1}))


def find(folder: Path, url: str | None = None, **environ: str) -> Endpoint:
    environ.setdefault("XDG_STATE_HOME", str(folder / "state"))
    return discover(url, environ=environ, folder=folder)


def test_a_token_loses_the_line_end_of_its_file(tmp_path: Path) -> None:
    assert find(tmp_path, ROTA_TOKEN="rota_abc\n").token == "rota_abc"
    assert find(tmp_path, ROTA_TOKEN=" ").token is None


@pytest.mark.parametrize("text", ["rota_a\nrota_b", "rota_a b", "rota_\u00fc", "rota_\x00"])
def test_what_cannot_be_a_token_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(TokenError, match="the token from ROTA_TOKEN is not valid") as refused:
        find(tmp_path, ROTA_TOKEN=text)
    assert text not in str(refused.value)


def test_without_anything_the_usual_place_is_tried(tmp_path: Path) -> None:
    found = find(tmp_path)
    assert (found.url, found.token) == ("http://127.0.0.1:7070", None)
    assert found.url_from == "the default"


def test_the_environment_wins_over_files(tmp_path: Path) -> None:
    write_local(tmp_path / ".rota/local.json", "http://127.0.0.1:7071", "file")
    found = find(tmp_path, ROTA_URL="https://rota.example/", ROTA_TOKEN="env")
    assert (found.url, found.token) == ("https://rota.example", "env")
    assert (found.url_from, found.token_from) == ("ROTA_URL", "ROTA_TOKEN")


def test_a_server_started_in_this_folder_comes_before_the_users_other_one(tmp_path: Path) -> None:
    write_local(tmp_path / "state/rota/local.json", "http://127.0.0.1:7072", "other")
    assert find(tmp_path).token == "other"
    write_local(tmp_path / ".rota/local.json", "http://127.0.0.1:7071", "here")
    found = find(tmp_path)
    assert (found.url, found.token) == ("http://127.0.0.1:7071", "here")
    assert found.data == str(tmp_path / ".rota")


def leave_token(folder: Path) -> None:
    """All that a server that was stopped leaves of where it was."""
    (folder / ".rota").mkdir()
    (folder / ".rota/token").write_text("left\n")


def test_the_token_of_a_stopped_server_is_sent_to_nobody(tmp_path: Path) -> None:
    leave_token(tmp_path)
    for named in (None, "http://127.0.0.1:7070", "http://localhost:7070"):
        found = find(tmp_path, url=named)
        assert (found.token, found.token_from) == (None, None)
        assert any("token (not sent: its server has stopped)" in one for one in found.looked_in)
    found = find(tmp_path)
    assert (found.url, found.stopped) == ("http://127.0.0.1:7070", True)
    assert found.data == str(tmp_path / ".rota")
    assert find(tmp_path, ROTA_TOKEN="mine").token == "mine"


def test_in_the_folder_of_a_stopped_server_another_one_is_asked_only_if_it_is_named(
    tmp_path: Path,
) -> None:
    leave_token(tmp_path)
    write_local(tmp_path / "state/rota/local.json", "http://127.0.0.1:7070", "other")
    assert find(tmp_path).token is None
    assert find(tmp_path, ROTA_URL="http://127.0.0.1:7070").token == "other"


def test_a_server_whose_file_cannot_be_read_is_not_said_to_have_stopped(tmp_path: Path) -> None:
    leave_token(tmp_path)
    (tmp_path / ".rota/local.json").write_text("{not json")
    found = find(tmp_path)
    assert (found.token, found.stopped) == (None, False)


def test_another_server_never_gets_the_local_ones_token(tmp_path: Path) -> None:
    write_local(tmp_path / ".rota/local.json", "http://127.0.0.1:7070", "secret")
    assert find(tmp_path, ROTA_URL="http://127.0.0.1:7071").token is None
    assert find(tmp_path, url="https://elsewhere.example").token is None
    assert find(tmp_path, url="http://localhost:7070/").token == "secret"


def test_a_token_is_found_for_the_second_local_server_too(tmp_path: Path) -> None:
    write_local(tmp_path / ".rota/local.json", "http://127.0.0.1:7071", "here")
    write_local(tmp_path / "state/rota/local.json", "http://127.0.0.1:7072", "other")
    assert find(tmp_path, url="http://127.0.0.1:7072").token == "other"


def test_the_state_folder_has_a_default_in_the_home(tmp_path: Path) -> None:
    write_local(tmp_path / ".local/state/rota/local.json", "http://127.0.0.1:7073", "home")
    found = discover(environ={"HOME": str(tmp_path)}, folder=tmp_path)
    assert found.token == "home"


def test_a_broken_file_is_passed_over_and_said(tmp_path: Path) -> None:
    (tmp_path / ".rota").mkdir()
    (tmp_path / ".rota/local.json").write_text("{not json")
    write_local(tmp_path / "state/rota/local.json", "http://127.0.0.1:7072", "other")
    found = find(tmp_path)
    assert found.token == "other"
    assert any("not readable as JSON" in place for place in found.looked_in)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_that_somebody_else_owns_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / ".rota/local.json"
    write_local(path, "http://127.0.0.1:6666", "trap")
    os.chown(path, 65534, 65534)
    found = find(tmp_path)
    assert (found.url, found.token) == ("http://127.0.0.1:7070", None)
    assert any("owned by another user" in place for place in found.looked_in)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:7070", True),
        ("http://[::1]:7070", True),
        ("http://LOCALHOST", True),
        ("https://rota.example", False),
    ],
)
def test_loopback_is_known(url: str, here: bool) -> None:
    assert is_loopback(url) is here


def test_an_address_without_a_scheme_is_http(tmp_path: Path) -> None:
    assert find(tmp_path, url="rota.example:7070").url == "http://rota.example:7070"


@pytest.mark.parametrize("url", ["rota:7070", "rota.example", "http://rota", "[::1]:7070"])
def test_a_host_by_one_word_needs_a_scheme_or_a_port(tmp_path: Path, url: str) -> None:
    assert find(tmp_path, url=url).url.endswith(url)
    with pytest.raises(AddressError, match="'rota' is not the address of a server"):
        find(tmp_path, url=f"{url},rota")


def test_several_servers_are_a_list_or_one_text_with_commas(tmp_path: Path) -> None:
    found = find(tmp_path, ROTA_URL=" https://a.example/, b.example:7070 ,,https://a.example")
    assert found.urls == ("https://a.example", "http://b.example:7070")
    assert (found.url, found.url_from) == ("https://a.example", "ROTA_URL")
    given = discover(["https://c.example", "d.example"], environ={}, folder=tmp_path)
    assert given.urls == ("https://c.example", "http://d.example")
    assert given.shown == "https://c.example, http://d.example"
    assert not given.is_local


def test_no_server_is_the_same_as_none_named(tmp_path: Path) -> None:
    for nothing in ("", ",", [], [""]):
        environ = {"ROTA_URL": "", "XDG_STATE_HOME": str(tmp_path)}
        found = discover(nothing, environ=environ, folder=tmp_path)
        assert found.url_from == "the default"


def test_a_token_from_a_file_is_not_sent_to_other_servers_beside_its_own(tmp_path: Path) -> None:
    write_local(tmp_path / ".rota/local.json", "http://127.0.0.1:7070", "secret")
    here = "http://127.0.0.1:7070"
    assert find(tmp_path, url=f"{here},http://elsewhere.example").token is None
    assert find(tmp_path, url=f"{here},http://localhost:7070").token == "secret"
