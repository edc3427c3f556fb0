"""What a function's annotations may name, and who finds out when they name nothing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from rota.sdk.app import App
from rota.sdk.arguments import ArgumentError, FunctionSignature, wants_context
from rota.sdk.context import Context, ContextInfo

LATER = """
def later(order: Later, amount: int) -> Nobody: ...
def told(first: Context, amount: int) -> None: ...
"""
"""Written as most people write: without the future import, so that it means what the version at
hand makes of it."""


def _made() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(LATER, "later.py", "exec", dont_inherit=True), names)
    return names


@pytest.mark.skipif(sys.version_info < (3, 14), reason="such a function cannot be made before 3.14")
def test_annotations_may_name_what_exists_for_type_checkers_only() -> None:
    names = _made()
    job = App().job(names["later"])
    assert job.name.endswith("later")
    signature = FunctionSignature("later", names["later"])
    assert not signature.wants_context
    assert signature.bind([1, 2], {}).arguments == {"order": 1, "amount": 2}
    assert wants_context(names["told"])


def test_a_quoted_annotation_that_names_nothing_leaves_values_as_they_are() -> None:
    def later(order: "Later", amount: int) -> None:  # type: ignore[name-defined]  # noqa: F821, UP037
        """Never called."""

    signature = FunctionSignature("later", later)
    assert not signature.wants_context
    assert signature.bind([1, 2], {}).arguments == {"order": 1, "amount": 2}


class _Silent:
    """Nobody listens."""

    def report_progress(self, fraction: float, message: str) -> None:
        """To nobody."""

    def write_log(self, text: str) -> None:
        """To nobody."""


CONTEXT = Context(ContextInfo(job_id="j", execution_id="e"), _Silent())


def test_a_call_without_arguments_gets_what_the_function_has_by_itself() -> None:
    def plain() -> None: ...

    def whatever(first: int = 1, *more: int, last: str = "x", **rest: int) -> None: ...

    def told(ctx: Context, amount: int = 1) -> None: ...

    for function in (plain, whatever):
        assert FunctionSignature("f", function).decode(b"{}", CONTEXT) == ([], {})
    assert FunctionSignature("f", told).decode(b'{"args": []}', CONTEXT) == ([CONTEXT], {})


def test_a_call_without_arguments_is_refused_where_one_is_needed() -> None:
    def needy(amount: int) -> None: ...

    def named(*, amount: int) -> None: ...

    for function in (needy, named):
        with pytest.raises(ArgumentError, match="amount"):
            FunctionSignature("f", function).decode(b"{}", CONTEXT)
