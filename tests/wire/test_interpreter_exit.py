"""A program that has used the public words ends well.

msgspec frees a union of a text with a pattern and a list, or another container, as if it were
longer than it is (its issue 717): when the interpreter ends, one run in four ends with SIGSEGV.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

import rota.wire

MODULES = sorted(one.name for one in pkgutil.walk_packages(rota.wire.__path__, "rota.wire."))
SIMPLE = (inspect.StrType, inspect.NoneType, inspect.IntType, inspect.FloatType, inspect.BoolType)


def structs(module: str) -> list[type[msgspec.Struct]]:
    found = vars(importlib.import_module(module)).values()
    return [one for one in found if isinstance(one, type) and issubclass(one, msgspec.Struct)]


def parts(kind: object) -> Iterator[inspect.Type]:
    """A type and all that it is made of; structs that it names are looked at for themselves."""
    if isinstance(kind, inspect.Type):
        yield kind
        if isinstance(kind, inspect.StructType):
            return
    for name in getattr(kind, "__struct_fields__", ()):
        value = getattr(kind, name)
        for one in value if isinstance(value, tuple) else (value,):
            yield from parts(one)


def is_trap(kind: inspect.Type) -> bool:
    if not isinstance(kind, inspect.UnionType):
        return False
    has_pattern = any(isinstance(one, inspect.StrType) and one.pattern for one in kind.types)
    return has_pattern and any(not isinstance(one, SIMPLE) for one in kind.types)


@pytest.mark.parametrize("module", MODULES)
def test_no_text_with_a_pattern_stands_beside_a_container(module: str) -> None:
    for struct in structs(module):
        info = inspect.type_info(struct)
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            traps = [kind for kind in parts(field.type) if is_trap(kind)]
            assert not traps, f"{struct.__name__}.{field.name}: leave the pattern to __post_init__"


def test_the_check_finds_a_pattern_beside_a_container() -> None:
    pattern = inspect.StrType(pattern="^a")
    many = inspect.ListType(item_type=inspect.StrType())
    assert is_trap(inspect.UnionType(types=(pattern, many)))
    assert not is_trap(inspect.UnionType(types=(inspect.StrType(), many)))
    assert not is_trap(inspect.UnionType(types=(pattern, inspect.NoneType())))
