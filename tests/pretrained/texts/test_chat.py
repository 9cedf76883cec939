"""Chat templates: what they may do, and limits of crafted ones."""

import pytest

from fkeras.pretrained.texts.chat import render

pytest.importorskip("jinja2")


def test_templates_see_pythons_json_and_loops():
    text = (
        "{% for m in messages %}\n  {% if loop.index > 2 %}{% break %}{% endif %}\n{{ m.text }}\n"
        "{% endfor %}{{ tools | tojson }}{{ '<' ~ ['a', 'b'] | join('-') }}{{ 'aa'.replace('a', 'b') }}"
    )
    messages = [{"text": c} for c in "xyz"]
    rendered = render(text, {"messages": messages, "tools": [{"a": "<ü'"}]}, "", "")
    assert rendered == "x\ny\n" + '[{"a": "<ü\'"}]' + "<a-bbb"


def test_generation_marks_text():
    text = "{% for i in range(2) %}{% generation %}{{ i }}{% endgeneration %};{% endfor %}"
    assert render(text, {}, "(", ")") == "(0);(1);"


def test_dates_may_be_fixed():
    assert len(render("{{ strftime_now('%Y') }}", {}, "", "")) == 4
    assert render("{{ strftime_now('%Y') }}", {"strftime_now": lambda form: form}, "", "") == "%Y"


def test_indentation_as_in_jinja():
    import jinja2

    environment = jinja2.Environment()
    for options in ("", "2", "2, true", "'> ', true, true"):
        text = "{{ x | indent(" + options + ") }}"
        x = "a\n\nb\nc"
        assert render(text, {"x": x}, "", "") == environment.from_string(text).render(x=x)


def test_a_template_rejects_messages():
    with pytest.raises(ValueError, match="rejects the messages: roles must alternate"):
        render("{{ raise_exception('roles must alternate') }}", {}, "", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\n{{ 1 / 0 }}", "line 3: division by zero"),
        ("a\n{% for %}", "line 2: Expected an expression"),
        ("{{ x.y.z }}", "'x' is undefined"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% import 'os' as os %}", "no loader"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        (
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "iterations",
        ),
        ("{% for i in range(10**9) %}{% endfor %}", "Range too big"),
        ("{{ 'a' * 10**9 }}", "repeats a value"),
        ("{{ 10**9 * [1] }}", "repeats a value"),
        ("{{ ('a' * 60000) * 60000 }}", "3600000000 characters"),
        ("{{ 10**10**10 }}", "too large"),
        ("{{ '%1000000000d' % 1 }}", "no limit"),
        ("{{ '{:>1000000000}'.format(1) }}", "unsafe"),
        ("{{ 'a'.center(10**9) }}", "unsafe"),
        ("{{ 'a' | center(10**9) }}", "No filter named 'center'"),
        ("{{ ['a'] | map('center', 10**9) | list }}", "No filter named 'center'"),
        ("{{ lipsum(n=10**9) }}", "undefined"),
        ("{{ strftime_now('%1000000000Y') }}", "without widths"),
        ("{{ ('a' * 60000).replace('a', 'a' * 60000) }}", "characters"),
        ("{{ ('a' * 60000) | replace('a', 'a' * 60000) }}", "characters"),
        ("{{ ('a' * 60000) | list | join('a' * 60000) }}", "characters"),
        ("{{ ('a' * 60000).join(('a' * 60000) | list) }}", "characters"),
        ("{{ (('a\n' * 60000)) | indent('a' * 60000) }}", "characters"),
        ("{{ 'a' | indent(width='x' * 10**9) }}", "repeats a value"),
    ],
)
def test_crafted_templates_are_errors(text, message):
    with pytest.raises(ValueError, match=message):
        render(text, {"messages": [1]}, "", "")


@pytest.mark.parametrize(
    "step",
    [
        "{% set n.s = n.s ~ n.s %}",
        "{% set n.s = n.s + n.s %}",
        "{% set n.s = [n.s, n.s] | join %}",
        "{% set n.s = n.s.replace('a', 'aa') %}",
        "{% set x %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = x %}",
        "{% set n.s = [n.s, n.s] | string %}",
    ],
)
def test_texts_that_double_are_errors(step):
    text = "{% set n = namespace(s='aaaa') %}{% for i in range(99) %}" + step + "{% endfor %}"
    with pytest.raises(ValueError, match="characters, more than|characters of text"):
        render(text, {}, "", "")


def test_a_long_template_is_an_error():
    with pytest.raises(ValueError, match="at most 1048576"):
        render("a" * (1 << 21), {}, "", "")
