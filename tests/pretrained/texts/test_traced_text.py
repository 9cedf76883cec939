"""Origins of characters: a character from "a" to "m" is trusted, others come from a user."""

import pytest

from fkeras.pretrained.texts import traced_text as tt


def traced(text):
    return tt.TracedText(text, bytes(tt.USER * (c > "m") for c in text))


def is_right(value):
    if isinstance(value, list | tuple):
        return all(map(is_right, value))
    return tt.origins(value) == bytes(tt.USER * (c > "m") for c in value)


@pytest.mark.one_in(10)
@pytest.mark.parametrize(
    ("name", "args"),
    [
        *(("split", args) for args in ((), ("x",), ("xa",), (None, 1), ("x", 1))),
        *(("rsplit", args) for args in ((None, 1), ("x", 1))),
        *(("partition", ("xa",)), ("rpartition", ("x",)), ("partition", ("zz",))),
        *(("strip", ()), ("strip", ("zab",)), ("lstrip", ("az",)), ("rstrip", ("bz",))),
        *(("removeprefix", ("za",)), ("removesuffix", ("bz",)), ("splitlines", ())),
        *(("splitlines", (True,)), ("lower", ()), ("casefold", ())),
    ],
)
def test_methods_keep_origins(name, args):
    for text in ("zabxaabxy cxxd\nxay  bz", "", "x", "  ax  xa ", "xabxa\r\n\nx"):
        result = tt.method(traced(text), name, *args)
        assert result == getattr(text, name)(*args)
        assert is_right(result)


def test_operators_keep_origins():
    text = traced("axbyz")
    for result in (text + "ab", "ab" + text, text[1:4], text[::-1], text[-1], [*text], str(text)):
        assert is_right(result)
    assert is_right(tt.replace(text, "b", traced("xay"))) and tt.replace(text, "b", "") == "axyz"
    assert is_right(tt.join(traced("zaz"), ["ab", text]))
    assert not isinstance(tt.join("-", ["a", "b"]), tt.TracedText)


def test_other_operations_keep_the_highest_origin():
    mixed = tt.TracedText("aß", bytes([tt.TRUSTED, tt.ANSWER]))
    assert tt.origins(tt.method(mixed, "upper")) == bytes([tt.ANSWER] * 3)
    assert tt.origins(tt.replace("a", "", tt.trace("x", tt.USER))) == bytes([tt.USER] * 3)


def test_names_from_which_templates_write_delimiters_stay_trusted():
    value = tt.trace({"role": "user", "type": "<|a|>", "content": ["hi", 3]}, tt.USER)
    assert value == {"role": "user", "type": "<|a|>", "content": ["hi", 3]}
    assert [tt.highest(v) for v in (value["role"], value["type"], value["content"][0])] == [0, 2, 2]
    assert all(map(tt.highest, value))
