from __future__ import annotations

import json

import pytest

from tests.oracles import goldens

RENEW = "If it is meant: `python -m tests.oracles renew-goldens {}`, and name it in the commit."


def check(name: str) -> None:
    now, then = goldens.GOLDENS[name](), goldens.recorded_text(name)
    same = now == then  # pytest would spend a minute on showing two long texts
    assert same, f"{goldens.first_lines_that_differ(then, now)}\n{RENEW.format(name)}"


@pytest.mark.parametrize("name", ["cli_options.json", "metrics.txt"])
def test_options_and_metrics_are_those_recorded(name: str) -> None:
    check(name)


def test_the_contract_of_the_api_is_the_one_recorded() -> None:
    both = (goldens.recorded_text("openapi.json"), goldens.openapi())
    texts = [json.dumps(goldens.without_prose(json.loads(one)), indent=1) for one in both]
    shown = goldens.first_lines_that_differ(*texts)
    same = texts[0] == texts[1]
    assert same, f"The API's contract changed:\n{shown}\n{RENEW.format('openapi.json')}"


@pytest.mark.parametrize("name", ["openapi.json", "cli_help.txt"])
def test_the_wording_of_help_and_descriptions_is_the_one_recorded(name: str) -> None:
    check(name)
