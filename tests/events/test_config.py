"""Configuration of the event bridge: read, checked, and with secrets from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.events.config import ConfigError, FolderSource, WebhookSink, read_config

WHOLE = """
url = "http://127.0.0.1:7070"
token = "env:TEST_TOKEN"
state = "here"

[[source]]
kind = "folder"
name = "inbox"
path = "in"

[[source]]
kind = "kafka"
name = "orders"
servers = "localhost:9092"
topic = "orders"

[[sink]]
kind = "webhook"
name = "audit"
url = "https://example.org/hook"
secret = "file:{secret}"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "events.toml"
    path.write_text(text)
    return path


def test_a_configuration_is_read_with_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_TOKEN", "abc")
    (tmp_path / "secret").write_text("a-secret-of-32-characters-or-so!\n")
    config = read_config(write(tmp_path, WHOLE.replace("{secret}", str(tmp_path / "secret"))))
    assert config.token == "abc"
    assert isinstance(config.source[0], FolderSource)
    assert isinstance(config.sink[0], WebhookSink)
    assert config.sink[0].secret == "a-secret-of-32-characters-or-so!"
    assert config.sink[0].events == ["rota.job.*"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "has no"),
        ("x = 1", "unknown field `x`"),
        ("[[source]]\nkind='folder'\nname='a'", "path"),
        ("[[source]]\nkind='pigeon'\nname='a'", "pigeon"),
        ("[[source]]\nkind='folder'\nname='a b'\npath='x'", "name"),
        ("[[source]]\nkind='folder'\nname='a'\npath='x'\ntype='rota.x'", "type"),
        ("token='env:NOT_SET_ANYWHERE'", "NOT_SET_ANYWHERE"),
        ("[[sink]]\nkind='webhook'\nname='a'\nurl='ftp://x'\nsecret='0123456789abcdef'", "url"),
        ("not toml", "events.toml"),
    ],
)
def test_an_error_names_what_is_wrong(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_config(write(tmp_path, text))
    assert named in str(refused.value)


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    entry = "[[source]]\nkind='folder'\nname='a'\npath='x'\n"
    with pytest.raises(ConfigError, match="two entries"):
        read_config(write(tmp_path, entry * 2))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_config(tmp_path / "nowhere.toml")
