"""What `rota submit` makes of the options that say what to run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.cli.views import task_line
from tests.cli.conftest import Rota
from tests.sdk.fake_server import SmallServer


def submitted(server: SmallServer) -> Any:
    """The last job as the server read it."""
    return json.loads(server.writes()[-1].body)


def test_a_function_of_an_app_is_the_jobs_name(server: SmallServer, rota: Rota) -> None:
    ran = rota("submit", "--function", "invoice", "--args", "[42]", "--kwargs", '{"fast": true}')
    assert ran.status == 0, ran.err
    call = {"args": [42], "kwargs": {"fast": True}}
    assert submitted(server) == {"name": "invoice", "payload": call}
    assert rota("submit", "--function", "sweep").status == 0
    assert submitted(server) == {"name": "sweep"}
    assert rota("submit", "--function", "sweep", "--payload", "[1]").status == 0
    assert submitted(server) == {"name": "sweep", "payload": [1]}


def test_a_function_of_a_module_is_a_task(server: SmallServer, rota: Rota, tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text("[1, 2]")
    ran = rota("submit", "--python", "shop.bills:write", "--args", f"@{tmp_path}/args.json")
    assert ran.status == 0, ran.err
    task = {"kind": "python", "entry": "shop.bills:write", "args": [1, 2]}
    assert submitted(server) == {"name": "write", "task": task}


def test_a_request_is_a_task(server: SmallServer, rota: Rota) -> None:
    url = "https://shop.example/hooks"
    assert rota("submit", "--http", url).status == 0
    task: dict[str, Any] = {"kind": "http", "url": url, "method": "GET"}
    assert submitted(server) == {"name": "shop.example", "task": task}
    ran = rota("submit", "-n", "hook", "--http", url, "-H", "X-Key=1", "--body", '{"paid": 42}')
    assert ran.status == 0, ran.err
    task |= {"method": "POST", "headers": {"X-Key": "1"}, "body": {"paid": 42}}
    assert submitted(server) == {"name": "hook", "task": task}
    assert rota("submit", "--http", url, "--method", "put", "--body", "plain text").status == 0
    plain = {"kind": "http", "url": url, "method": "PUT", "body": "plain text"}
    assert submitted(server)["task"] == plain


def test_a_bundle_or_an_image_may_have_a_command_in_it(server: SmallServer, rota: Rota) -> None:
    bundle = "019a85c2-6b1e-7c3a-9f00-000000000001"
    args = ("--bundle", bundle, "--input", f"d={bundle}", "-e", "A=1", "--", "./run.sh", "42")
    ran = rota("submit", *args)
    assert ran.status == 0, ran.err
    task = {"kind": "bundle", "bundle_id": bundle, "argv": ["./run.sh", "42"]}
    around = {"env": {"A": "1"}, "inputs": {"d": bundle}}
    assert submitted(server) == {"name": "run.sh", "task": {**task, **around}}
    assert rota("submit", "--container", "docker.io/library/alpine:3.20").status == 0
    image = {"kind": "container", "image": "docker.io/library/alpine:3.20"}
    assert submitted(server) == {"name": "alpine", "task": image}
    missing = rota("submit", "--bundle", "nowhere.zip")
    assert missing.status == 1
    assert "is neither a file" in missing.err


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ((), "name what to run: -- COMMAND"),
        (
            ("--python", "a:b", "--http", "http://x"),
            "--python and --http: a job can run only one of them",
        ),
        (("--noop", "--", "ls"), "a command and --noop"),
        (("--args", "[1]", "--", "ls"), "--args goes with --function or --python"),
        (("--body", "x", "--python", "a:b"), "--body goes with --http"),
        (("--python", "a:b", "--args", "{}"), "a JSON list"),
        (("--python", "a:b", "--kwargs", "[]"), "a JSON object"),
        (("--python", "a:b", "--args", "[1"), "not JSON"),
        (("--function", "f", "--args", "[1]", "--payload", "{}"), "both set the arguments"),
        (("--function", "f", "-n", "g"), "is the job's name already"),
        (("--container", "", "--", "rm", "-r", "x"), "--container is empty"),
        (("--bundle", "", "--", "./run.sh"), "--bundle is empty"),
        (("--http", "", "--", "ls"), "--http is empty"),
    ],
)
def test_options_that_do_not_go_together_are_told(
    server: SmallServer, rota: Rota, options: tuple[str, ...], hint: str
) -> None:
    ran = rota("submit", *options)
    assert ran.status == 2
    assert hint in ran.err


def test_what_a_job_runs_is_shown_as_one_would_write_it() -> None:
    call = {"kind": "python", "entry": "shop:bill", "args": [1, "a"], "kwargs": {"fast": True}}
    assert task_line("x", json.dumps(call).encode()) == 'shop:bill(1, "a", fast=true)'
    assert task_line("bill", b"null") == "function bill"
    request = {"kind": "http", "method": "PUT", "url": "http://a/b"}
    assert task_line("x", json.dumps(request).encode()) == "PUT http://a/b"
    image = {"kind": "container", "image": "alpine", "argv": ["echo", "a b"]}
    assert task_line("x", json.dumps(image).encode()) == "container alpine: echo 'a b'"
    script = {"kind": "bundle", "bundle_id": "019a", "argv": []}
    assert task_line("x", json.dumps(script).encode()) == "bundle 019a"
