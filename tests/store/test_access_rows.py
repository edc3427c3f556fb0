from __future__ import annotations

from rota.store.access_rows import to_tokens, token_row
from tests.store.conformance_access import token


def test_a_role_that_only_a_newer_program_knows_opens_nothing_and_harms_nobody() -> None:
    strange = list(token_row(token(2)))
    strange[3] = "emperor"
    assert to_tokens([token_row(token(1)), tuple(strange)]) == [token(1)]
