"""Builds the OpenAPI 3.1 document from the declarations of the served operations.

Its links connect operations: an answer's `job_id` leads to every operation with `{job_id}` in its
path. Examples are JSON files in `examples/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from rota.api.auth.roles import ALLOWED
from rota.api.parsing.null_defaults import document_nulls
from rota.api.router import JSON, NoQuery, Operation
from rota.wire.bundles import FileName
from rota.wire.formats import schema_hook
from rota.wire.jobs import GROUP_RULES, QueueName
from rota.wire.limits import KEY_CHARS_MAX
from rota.wire.problems import MEDIA_TYPE, TITLES, TYPE_PREFIX, Problem

_EXAMPLES = Path(__file__).parent / "examples"


@cache
def example(name: str) -> Any:
    """Reads the example of this name, when the document is requested."""
    return msgspec.json.decode((_EXAMPLES / f"{name}.json").read_bytes())


_PATH_PARAMETER = re.compile(r"{(\w+)}")
Link = dict[str, Any]


def links_from(source: Operation, operations: Sequence[Operation]) -> dict[str, Link]:
    """Returns links by the name of the operation that each leads to.

    Only from operations that change something: all others are reached from those.
    """
    if not source.writes:
        return {}
    known, found = _known(source), {}
    for target in operations:
        names = _PATH_PARAMETER.findall(target.path)
        values = known if _collection(target) == _collection(source) else _without_name(known)
        if names and not target.streams_out and all(name in values for name in names):
            found[target.handle.__name__] = {
                "operationId": target.handle.__name__,
                "parameters": {name: values[name] for name in names},
            }
    return found


def _collection(operation: Operation) -> str:
    """Returns the first segment of the path: a `name` means something else in each."""
    return operation.path.split("/")[1]


def _without_name(known: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in known.items() if name != "name"}


def _known(source: Operation) -> dict[str, str]:
    """Returns the parameters known after a call, with expressions; the answer takes precedence."""
    known: dict[str, str] = {}
    for name, pointer in _answered(source.answer):
        known.setdefault(name, f"$response.body#{pointer}")
    for name in _PATH_PARAMETER.findall(source.path):
        known.setdefault(name, f"$request.path.{name}")
    return known


def _answered(answer: Any) -> Iterator[tuple[str, str]]:
    """Yields (parameter, JSON pointer) of an answer's fields, of lists the first; nullable ones are
    left out."""
    for name, kind in _fields(answer).items():
        if kind is str and (name == "name" or name.endswith("_id")):
            yield name, f"/{name}"
        elif get_origin(kind) is list:
            [inner] = get_args(kind)
            if inner is str and name.endswith("_ids"):
                yield name.removesuffix("s"), f"/{name}/0"
            for one, pointer in _answered(inner):
                yield one, f"/{name}/0{pointer}"


def _fields(kind: Any) -> dict[str, Any]:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {one.encode_name: one.type for one in msgspec.structs.fields(kind)}


Document = dict[str, Any]

_QUEUE_NAME = msgspec.json.schema(QueueName)
_FILE_NAME = msgspec.json.schema(FileName)
_ID = {"type": "string", "minLength": 1}
_TEXT = {"type": "string", "pattern": r"^[^\x00]*$"}
_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)}")
_WHEN: dict[int, str] = {
    400: "The body or the query cannot be read.",
    401: "No token, or one that is not known.",
    403: "The token's role or tenant does not allow it, or another web page asks.",
    404: "There is no such thing.",
    408: "The body stopped coming.",
    409: "It cannot be done as things stand, or the Idempotency-Key was used for something else.",
    410: "The storage has lost it.",
    413: "The body is too large.",
    415: "The body is of another kind than the call takes, or is compressed.",
    416: "The file has no such part.",
    421: "The Host header names another server.",
    422: "A field is unknown, missing or makes no sense; `errors` says which.",
    429: "Over a limit; Retry-After says when to ask again.",
    500: "A fault of the server; the detail names the request in its log.",
    503: "Starting, stopping, or the store is away; Retry-After says when to ask again.",
    507: "The data disk is full; nothing was changed.",
}
_WITH_RETRY_AFTER = (429, 503, 507)


def build_document(operations: Sequence[Operation], version: str) -> Document:
    types = list(dict.fromkeys(_types(operations)))
    _, components = msgspec.json.schema_components(
        types, schema_hook=schema_hook, ref_template=_REF
    )
    for kind, rules in GROUP_RULES.items():
        components[kind].update(rules)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        described = _describe(operation, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
        if found := links_from(operation, operations):
            for status, answer in {operation.status: operation.answer, **operation.also}.items():
                if answer is operation.answer:
                    described["responses"][str(status)]["links"] = found
    # After patches were described, because null in a patch restores a default.
    bodies = [op.body for op in operations if op.body is not None]
    answers = [one for op in operations for one in (op.answer, *op.also.values(), Problem)]
    document_nulls(components, map(_name_of, bodies), map(_name_of, answers))
    used = {op.query.__name__ for op in operations}
    return {
        "openapi": "3.1.0",
        "info": _info(version),
        "security": [{"bearer": []}, {"session": []}],
        "tags": [{"name": tag} for tag in dict.fromkeys(op.tag for op in operations)],
        "paths": paths,
        "components": {
            "schemas": {name: one for name, one in components.items() if name not in used},
            "responses": {f"Problem{status}": _problem(status) for status in _WHEN},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "rota_session_7070"},
            },
        },
    }


def _info(version: str) -> Document:
    return {
        "title": "Rota",
        "version": version,
        "summary": "A distributed job scheduler with a reason for everything it does.",
        "description": "Times are RFC 3339; durations are seconds or text such as `90s`; sizes "
        "are bytes or text such as `512MiB`. Lists are newest first and go on by `cursor`. A "
        "write is durable before it is answered, and safe to repeat with an `Idempotency-Key`. "
        "Errors are RFC 9457 problems.",
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }


def _types(operations: Sequence[Operation]) -> Iterator[Any]:
    yield Problem
    for operation in operations:
        for one in (operation.body, operation.answer, operation.patch_of, *operation.also.values()):
            if isinstance(one, type) and issubclass(one, msgspec.Struct):
                yield one
        if operation.query is not NoQuery:
            yield operation.query


def _describe(operation: Operation, components: Document) -> Document:
    described: Document = {
        "operationId": operation.handle.__name__,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [
            *_path_parameters(operation),
            *_query_parameters(operation, components),
            *_header_parameters(operation),
        ],
        "responses": _responses(operation),
    }
    if operation.description:
        described["description"] = operation.description
    if operation.body is not None:
        described["requestBody"] = _request_body(operation, components)
    if operation.open:
        described["security"] = []
    else:
        described["x-roles"] = [role.value for role in ALLOWED[operation.permission]]
    return described


def _path_parameters(operation: Operation) -> Iterator[Document]:
    for name in _PARAMETER.findall(operation.path):
        file = name == "name" and "artifacts" in operation.path
        queue = name == "name" and not file
        shown_example = example("artifact")["name"] if file else example("parameters")[name]
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _QUEUE_NAME if queue else _FILE_NAME if file else _ID,
            "example": shown_example,
        }


def _query_parameters(operation: Operation, components: Document) -> Iterator[Document]:
    if operation.query is NoQuery:
        return
    query = components[operation.query.__name__]
    for name, schema in query["properties"].items():
        parameter: Document = {"name": name, "in": "query", "required": name in query["required"]}
        plain = _as_text(_without_null(schema))
        if text := plain.pop("description", None):
            parameter["description"] = text
        if shown_example := plain.pop("examples", None):
            parameter["example"] = shown_example[0]
        elif name in example("parameters"):
            parameter["example"] = example("parameters")[name]
        parameter["schema"] = _TEXT if plain == {"type": "string"} else plain
        yield parameter


def _without_null(schema: Document) -> Document:
    """Removes null: a query leaves a parameter out instead."""
    options = [one for one in schema.get("anyOf", []) if one != {"type": "null"}]
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if len(options) == 1:
        return {**options[0], **plain}
    if schema.get("default") is not None:
        plain["default"] = schema["default"]
    return {**plain, "anyOf": options} if options else plain


def _as_text(schema: Document) -> Document:
    """Describes a parameter that takes numbers or text as text: a query is text."""
    options = schema.get("anyOf", [])
    texts = [one for one in options if one.get("type") == "string"]
    if not texts or len(texts) == len(options):
        return schema
    plain = {key: one for key, one in schema.items() if key not in ("anyOf", "exclusiveMinimum")}
    if len(texts) == 1 and not plain.keys() & texts[0].keys():
        return {**plain, **texts[0]}
    return {**plain, "type": "string", "anyOf": texts}


def _header_parameters(operation: Operation) -> Iterator[Document]:
    if operation.writes:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "A repeat with the same key gets the first answer again.",
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": KEY_CHARS_MAX,
                "pattern": "^[ -~]+$",
            },
            "example": "invoice-42",
        }
    for name, header in operation.headers.items():
        schema = {"type": "string"}
        if header.pattern is not None:
            schema["pattern"] = header.pattern
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "schema": schema,
            "example": header.example,
        }


def _request_body(operation: Operation, components: Document) -> Document:
    if operation.takes != JSON and operation.patch_of is None:
        content: Document = {"schema": {"type": "string", "format": "binary"}}
    elif operation.patch_of is not None:
        content = {"schema": _patch_schema(components[operation.patch_of.__name__])}
    else:
        content = {"schema": _schema(operation.body)}
    content["example"] = example(operation.examples["body"])
    media = {operation.takes: content}
    if operation.patch_of is not None:
        media[JSON] = content
    return {"required": not operation.streams_in, "content": media}


def _patch_schema(schema: Document) -> Document:
    """Makes every field optional, and nullable where null restores a default."""
    bare = {
        name: {key: value for key, value in one.items() if key != "default"}
        for name, one in schema["properties"].items()
    }
    properties = {
        name: one if name in schema["required"] else {"anyOf": [one, {"type": "null"}]}
        for name, one in bare.items()
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _responses(operation: Operation) -> Document:
    responses: Document = {str(operation.status): _success(operation, operation.answer)}
    for status, answer in operation.also.items():
        responses[str(status)] = _success(operation, answer, f"answer {status}")
    for status in sorted(_errors(operation)):
        responses[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
    return responses


def _success(operation: Operation, answer: Any, which: str = "answer") -> Document:
    response: Document = {"description": operation.summary}
    if answer is not None:
        shown_example = operation.examples.get(which, operation.examples["answer"])
        content = {"schema": _schema(answer), "example": example(shown_example)}
        response["content"] = {JSON: content}
    elif operation.gives != JSON:
        content = {"example": example(operation.examples["answer"])}
        if not operation.streams_out:  # readers would take a stream's schema for that of its events
            content["schema"] = {"type": "string"}
        response["content"] = {operation.gives.split(";")[0]: content}
    if operation.status == 201 and operation.path in (
        "/jobs",
        "/jobs/{job_id}/execute",
        "/bundles",
    ):
        location = {"description": "Where it is.", "schema": {"type": "string"}}
        response["headers"] = {"Location": location}
    return response


def _errors(operation: Operation) -> Iterator[int]:
    """Yields declared errors, and those that follow from what the operation takes."""
    found = dict.fromkeys([*operation.errors, 400, 403, 421, 422, 429, 500, 503])
    if not operation.open:
        found[401] = None
    if operation.body is not None:
        found.update(dict.fromkeys([408, 413, 415] if operation.takes == JSON else [408, 413]))
    if operation.patch_of is not None:
        found[415] = None
    if operation.writes:
        found.update(dict.fromkeys([409, 507]))
    yield from found


def _problem(status: int) -> Document:
    title, when = TITLES[status], _WHEN[status]
    problem = {"type": TYPE_PREFIX + "…", "title": title, "status": status, "detail": when}
    if status == 422:
        message = "takes a number of at least 1"
        problem["errors"] = [{"field": "retry.max_attempts", "message": message}]
    schema = {"$ref": _REF.format(name="Problem")}
    response: Document = {
        "description": when,
        "content": {MEDIA_TYPE: {"schema": schema, "example": problem}},
    }
    if status in _WITH_RETRY_AFTER:
        retry = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        response["headers"] = {"Retry-After": retry}
    return response


def _name_of(kind: Any) -> str:
    return getattr(kind, "__name__", "")


def _schema(kind: Any) -> Document:
    return {"$ref": _REF.format(name=kind.__name__)}
