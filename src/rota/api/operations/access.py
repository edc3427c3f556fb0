"""The calls about tokens and the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.cell import tokens
from rota.api.customs.paging import PageQuery
from rota.api.document import examples
from rota.api.door.roles import Rule
from rota.api.routes import Operation
from rota.wire.tokens import AuditPage, NewTokenView, TokenPage, TokenSpec

ACCESS: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/tokens",
        summary="List tokens, newest first",
        handle=tokens.list_tokens,
        tag="Access",
        rule=Rule.ADMINISTER,
        anywhere=True,
        query=PageQuery,
        answer=TokenPage,
        description="Those that ended stay listed for 90 days.",
        examples={"answer": examples.TOKENS},
    ),
    Operation(
        method="POST",
        path="/tokens",
        summary="Make a token",
        handle=tokens.create_token,
        tag="Access",
        rule=Rule.ADMINISTER,
        anywhere=True,
        body=TokenSpec,
        answer=NewTokenView,
        status=201,
        errors=(409,),
        description="The answer shows the token; only its hash is kept, so it cannot be looked up. "
        "A repeat with the same Idempotency-Key, sent with the same token or session within 24 "
        "hours, gets the same answer; later, or once the new token has ended, 409. All servers of "
        "the cell know it within a second.",
        examples={"body": examples.TOKEN_SPEC, "answer": examples.NEW_TOKEN},
    ),
    Operation(
        method="DELETE",
        path="/tokens/{token_id}",
        summary="Revoke a token",
        handle=tokens.revoke_token,
        tag="Access",
        rule=Rule.ADMINISTER,
        anywhere=True,
        status=204,
        errors=(404,),
        description="All servers of the cell turn it away within a second, and the sessions of "
        "browsers that signed in with it. A repeat changes nothing.",
    ),
    Operation(
        method="GET",
        path="/audit",
        summary="Who changed what, newest first",
        handle=tokens.list_audit,
        tag="Access",
        rule=Rule.ADMINISTER,
        anywhere=True,
        query=tokens.AuditPageQuery,
        answer=AuditPage,
        description="An entry for every call that may change something and came with a token, "
        "refused ones too; not for what workers send all day.",
        examples={"answer": examples.AUDIT},
    ),
)
