"""Hypothesis strategies for texts and values that are nearly valid."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NASTY = (
    *("", "\x00", "\ud800", "\udcff", "\u202e", "\ufeff", "\r\n", "\t", " ", "\x7f", "\x85"),
    # The same to an eye: composed and decomposed; digits that are none of ours.
    *("é", "e\u0301", "İ", "ß", "٣", "²", "Ⅷ", "一", "\uff11"),
    *("-", "+", "--", ".", "..", "/", "\\", "%", "%00", "%ff", "'", '"', "`", "$", "{{", "}}"),
    *("*", "?", "L", "#", "=", ",", ",,", ";", ":", "@", "|", "&", "T", "Z", "P1D", "e", "E"),
    *("0", "-0", "00", "1e999", "-1e999", "1e308", "1e-400", "9" * 19, "9" * 400, "9" * 5000),
    *("0x10", "1_000", "NaN", "nan", "inf", "Infinity", "null", "true", "None", "0001", "9999"),
    *("[" * 200, "(" * 200, "{" * 200, "not " * 300, "[" * 20_000, '{"a":' * 5_000, "((((", "))"),
    *("x" * 70_000, "ab" * 500, "* " * 500, "1," * 3000, "a.b." * 200),
)
"""Lone surrogates come from arguments and file names; JSON of ours cannot carry them."""


@st.composite
def mangled(draw: st.DrawFn, *examples: str) -> str:
    """One of the examples with parts inserted, removed, doubled or cut off."""
    text = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(0, 3))):
        here = draw(st.integers(0, len(text)))
        there = draw(st.integers(here, min(len(text), here + 8)))
        piece = draw(st.sampled_from(NASTY) | st.text(max_size=4) | st.just(text[:200]))
        text = text[:here] + piece + text[there:]
    return text


def texts(*examples: str) -> st.SearchStrategy[str]:
    """Texts that are mostly nearly valid, and some random ones."""
    return mangled(*examples) | st.text(max_size=40) | st.sampled_from(NASTY)


def raw(*examples: bytes) -> st.SearchStrategy[bytes]:
    mangled_text = mangled(*(one.decode("latin-1") for one in examples))
    broken = mangled_text.map(lambda text: text.encode("latin-1", "replace"))
    whole = mangled_text.map(lambda text: text.encode("utf-8", "replace"))
    return broken | whole | st.binary(max_size=40)


numbers: st.SearchStrategy[Any] = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, -1, 2**31, 2**53 + 1, 2**63, 2**64, 10**400, 1e308, -0.0])
)
plain: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | numbers | st.text(max_size=8) | st.sampled_from(NASTY)
)
values: st.SearchStrategy[Any] = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)
"""Whatever JSON or a program can hold."""


@st.composite
def altered(draw: st.DrawFn, example: Any) -> Any:
    """A document with one value replaced, removed, or an unknown one added."""
    if isinstance(example, dict) and example and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(example)))
        if not draw(st.integers(0, 7)):
            return {name: one for name, one in example.items() if name != key}
        if not draw(st.integers(0, 7)):
            return {**example, draw(st.text(max_size=6)): draw(values)}
        return {**example, key: draw(altered(example[key]))}
    if isinstance(example, list) and example and draw(st.booleans()):
        place = draw(st.integers(0, len(example) - 1))
        return [*example[:place], draw(altered(example[place])), *example[place + 1 :]]
    if isinstance(example, str) and draw(st.booleans()):
        return draw(mangled(example))
    return draw(values)
