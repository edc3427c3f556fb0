"""Writes dashboard/src/api/schema.gen.ts from the OpenAPI document; `--check` only compares.

The file has the types of requests and answers, and for each call the names of its types. The
OpenAPI document uses only a small part of JSON Schema, so no general generator is needed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rota.api.endpoints import OPERATIONS
from rota.api.openapi.document import build_document
from rota.wire.formats import encode

TARGET = Path(__file__).parents[1] / "dashboard" / "src" / "api" / "schema.gen.ts"
OPENING = """\
// Written by `make types` from the OpenAPI document: change the server's wire types, not this.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
"""
JSON = "application/json"
PLAIN_NAME = re.compile(r"[A-Za-z_]\w*\Z")
LINE_CHARS_MAX = 100


def render() -> str:
    document = json.loads(encode(build_document(OPERATIONS, "0")))
    schemas = document["components"]["schemas"]
    types = [_declaration(name, schema) for name, schema in sorted(schemas.items())]
    calls = [line for path, item in document["paths"].items() for line in _calls(path, item)]
    return "\n".join([OPENING, *types, "export interface Calls {", *calls, "}", ""])


def _declaration(name: str, schema: Mapping[str, Any]) -> str:
    if schema.get("type") == "object" and "properties" in schema:
        lines = [f"  {field}" for field in _fields(schema)]
        return "\n".join([f"export interface {name} {{", *lines, "}", ""])
    return f"export type {name} = {_type(schema)};\n"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, part in schema["properties"].items():
        mark = "" if name in required else "?"
        yield f"{_key(name)}{mark}: {_type(part)};"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return _union(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _union(_type(part) for part in schema[word])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union(_type({**schema, "type": one}) for one in kind)
    return _of_kind(kind, schema)


def _of_kind(kind: str | None, schema: Mapping[str, Any]) -> str:
    plain = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean"}
    if kind in plain:
        return plain[kind]
    if kind == "null":
        return "null"
    if kind == "array":
        items = _type(schema.get("items", {}))
        return f"({items})[]" if " | " in items else f"{items}[]"
    if kind == "object" and "properties" in schema:
        return "{ " + " ".join(_fields(schema)) + " }"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'Json'}>"
    return "Json"


def _union(parts: Iterable[str]) -> str:
    known = list(dict.fromkeys(parts))
    return "Json" if "Json" in known else " | ".join(known)


def _key(name: str) -> str:
    return name if PLAIN_NAME.match(name) else json.dumps(name)


def _calls(path: str, item: Mapping[str, Any]) -> Iterator[str]:
    for method, call in item.items():
        query = [part for part in call.get("parameters", ()) if part["in"] == "query"]
        fields = " ".join(f"{_asked(one)}: {_type(one['schema'])};" for one in query)
        yield f'  "{method.upper()} {path}": {{'
        yield f"    query: {f'{{ {fields} }}' if fields else 'Record<string, never>'};"
        yield f"    body: {_content(call.get('requestBody', {}))};"
        yield f"    answer: {_answer(call)};"
        yield "  };"


def _asked(parameter: Mapping[str, Any]) -> str:
    return _key(parameter["name"]) + ("" if parameter["required"] else "?")


def _answer(call: Mapping[str, Any]) -> str:
    good = [_content(body) for status, body in call["responses"].items() if status < "300"]
    return _union(good)


def _content(body: Mapping[str, Any]) -> str:
    """The type of a body; a body that is not JSON is text."""
    content = body.get("content", {})
    if not content:
        return "null"
    for media, part in content.items():
        if media.endswith("json"):
            return _type(part.get("schema", {}))
    return "string"


def main(arguments: Sequence[str]) -> int:
    """Writes the file; with `--check` exits with 1 if it is stale."""
    text = render()
    fresh = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
    if "--check" in arguments:
        if not fresh:
            print(f"{TARGET.name} is stale: run `make types`", file=sys.stderr)
        return 0 if fresh else 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
