"""Chat templates: what they may do, and limits of crafted ones."""

import json
import time
import tracemalloc

import pytest

from fkeras.pretrained.texts.chat import render
from fkeras.pretrained.texts.traced_text import USER, TracedText, highest, trace

pytest.importorskip("jinja2")


@pytest.mark.exhaustive
def test_templates_see_pythons_json_and_loops():
    text = (
        "{% for m in messages %}\n  {% if loop.index > 2 %}{% break %}{% endif %}\n{{ m.text }}\n"
        "{% endfor %}{{ tools | tojson }}{{ '<' ~ ['a', 'b'] | join('-') }}{{ 'aa'.replace('a', 'b') }}"
    )
    messages = [{"text": c} for c in "xyz"]
    rendered = render(text, {"messages": messages, "tools": [{"a": "<ü'"}]}, "", "")
    assert rendered == "x\ny\n" + '[{"a": "<ü\'"}]' + "<a-bbb"


@pytest.mark.exhaustive
def test_generation_marks_text():
    text = "{% for i in range(2) %}{% generation %}{{ i }}{% endgeneration %};{% endfor %}"
    assert render(text, {}, "(", ")") == "(0);(1);"


def test_dates_may_be_fixed():
    assert len(render("{{ strftime_now('%Y') }}", {}, "", "")) == 4
    assert render("{{ strftime_now('%Y') }}", {"strftime_now": lambda form: form}, "", "") == "%Y"


@pytest.mark.exhaustive
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


@pytest.mark.one_in(4)
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
        ("{{ " + "(" * 20000 + "1" + ")" * 20000 + " }}", "more than 16384 names"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape %} is not supported"),
    ],
)
def test_crafted_templates_are_errors(text, message):
    with pytest.raises(ValueError, match=message):
        render(text, {"messages": [1]}, "", "")


@pytest.mark.one_in(3)
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


MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Hi {{ 1 }} <b> é\n"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello."},
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "get", "arguments": {"city": "Köln", "n": 1}}}],
    },
    {"role": "tool", "content": '{"t": 3}'},
]
TOOLS = [{"type": "function", "function": {"name": "get", "parameters": {"a": [1, 2.5, None]}}}]
# the constructs of the published templates of each family
TEMPLATES = {
    "llama 3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
        "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + "
        "'<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
        "{{ content }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "llama 3.1": (
        "{{- bos_token }}{%- if messages[0]['role'] == 'system' %}{%- set system_message = "
        "messages[0]['content']|trim %}{%- set messages = messages[1:] %}{%- endif %}"
        "{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{{- system_message }}"
        "{%- for message in messages %}{%- if 'tool_calls' in message %}{%- if not message.tool_calls|"
        "length == 1 %}{{- raise_exception('one call') }}{%- endif %}{%- set tool_call = "
        "message.tool_calls[0].function %}{{- '{\"name\": \"' + tool_call.name + '\", ' }}"
        "{{- tool_call.arguments | tojson }}{%- elif message.role == 'tool' or message.role == "
        "'ipython' %}{%- if message.content is mapping or message.content is iterable %}"
        "{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}{%- else %}"
        "{{- message['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"
    ),
    "qwen 3": (
        "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}"
        "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
        '{%- if ns.multi_step_tool and message.role == "user" and not(message.content.startswith('
        "'<tool_response>') and message.content.endswith('</tool_response>')) %}{%- set "
        "ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}"
        "{%- for message in messages %}{%- set content = message.content %}{%- if message.role == "
        "\"assistant\" %}{%- set reasoning_content = '' %}{%- if '</think>' in message.content %}"
        "{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}{%- set "
        "reasoning_content = message.content.split('</think>')[0].rstrip('\n').split('<think>')[-1]"
        ".lstrip('\n') %}{%- endif %}{{- '<|im_start|>' + message.role + '\n' + content }}"
        "{{- ns.last_query_index ~ reasoning_content.strip('\n') }}{%- for tool_call in "
        "message.tool_calls %}{%- if tool_call.function %}{%- set tool_call = tool_call.function %}"
        "{%- endif %}{{- tool_call.name }}{%- if tool_call.arguments is string %}"
        "{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}"
        "{%- endfor %}{{- '<|im_end|>\n' }}{%- elif message.role == \"tool\" %}{%- if loop.first or "
        "(messages[loop.index0 - 1].role != \"tool\") %}{{- '<|im_start|>user' }}{%- endif %}"
        "{{- content }}{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}"
        "{%- endfor %}"
    ),
    "gemma 3": (
        "{{ bos_token }}\n{%- if messages[0]['role'] == 'system' -%}\n    {%- set first_user_prefix = "
        "messages[0]['content'] + '\n\n' -%}\n    {%- set loop_messages = messages[1:] -%}\n{%- endif -%}"
        "\n{%- for message in loop_messages -%}\n    {%- if (message['role'] == 'assistant') -%}\n"
        "        {%- set role = \"model\" -%}\n    {%- else -%}\n        {%- set role = message['role'] "
        "-%}\n    {%- endif -%}\n    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if "
        "loop.first else \"\") }}\n    {%- if message['content'] is string -%}\n        "
        "{{ message['content'] | trim }}\n    {%- endif -%}\n    {{ '<end_of_turn>\n' }}\n{%- endfor -%}"
    ),
    "mistral": (
        '{%- set user_messages = messages | selectattr("role", "equalto", "user") | list %}'
        "{%- set loop_messages = messages | rejectattr('role', 'in', ['system', 'tool']) | list %}"
        "{{- bos_token }}{%- for message in loop_messages %}{%- if message == user_messages[-1] %}"
        "{{- '[AVAILABLE_TOOLS] [' }}{%- for tool in tools %}{%- set tool = tool.function %}"
        '{{- \'{"type": "function", "function": {\' }}{%- for key, val in tool.items() if key != '
        "\"return\" %}{%- if val is string %}{{- '\"' + key + '\": \"' + val + '\"' }}{%- else %}"
        "{{- '\"' + key + '\": ' + val|tojson }}{%- endif %}{%- if not loop.last %}{{- ', ' }}"
        "{%- endif %}{%- endfor %}{%- endfor %}{{- '[/AVAILABLE_TOOLS]' }}{%- endif %}"
        "{{- '[INST] ' + message.content|string + '[/INST]' }}{%- endfor %}"
    ),
    "phi 3": (
        "{% for message in messages %}{% if message['role'] in ['system', 'user'] %}{{'<|' + "
        "message['role'] + '|>\n' + message['content'] + '<|end|>\n'}}{% elif message['content'] %}"
        "{{ message.role|upper ~ ': ' ~ (message.content|replace('\n', ' ')|title) }}{% endif %}"
        "{% endfor %}{% macro show(x) %}[{{ x }}]{% endmacro %}{{ show(messages[1].content|lower) }}"
        "{{ messages|map(attribute='role')|join(', ')|capitalize }}{{ range(3)|sum ~ 2.5|round }}"
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_of_families_render_as_in_jinja(name):
    """The environment is that of transformers."""
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda x, indent=None: json.dumps(
        x, ensure_ascii=False, indent=indent
    )
    values = {"bos_token": "<s>", "add_generation_prompt": True}
    expected = environment.from_string(TEMPLATES[name]).render(
        messages=MESSAGES, tools=TOOLS, **values
    )
    values |= {"messages": trace(MESSAGES, USER), "tools": trace(TOOLS, USER)}
    rendered = render(TEMPLATES[name], values, "", "")
    assert rendered == expected and len(expected) > 100
    # no text of the template that could be a control token comes from a message
    for token in ("<|im_start|>", "<|end|>", "<end_of_turn>", "<|eot_id|>", "[INST]", "<|user|>"):
        for start in (n for n in range(len(rendered)) if rendered.startswith(token, n)):
            assert not highest(rendered[start : start + len(token)])
    for message in MESSAGES[1:4:2]:
        start = rendered.find(message["content"].strip())
        assert start < 0 or highest(rendered[start]) == USER


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "source",
    [
        "{{ m|string }}",
        "{{ [m] }}",
        "{{ [m]|tojson }}",
        "{{ m|e }}{{ m|safe }}",
        "{{ m * 2 }}",
        "{{ '%' ~ m }}",
        "{{ ' '.join([m]) }}",
        "{{ 'a'.replace('a', m) }}",
        "{{ m|list|join }}",
        "{{ m|truncate(3) }}",
        "{{ [m]|max }}",
        "{% filter upper %}{{ m }}{% endfilter %}",
        "{% set x %}{{ m }}{% endset %}{{ x }}",
        "{% macro f(x) %}{{ x }}{{ caller() }}{% endmacro %}{% call f(m) %}{% endcall %}",
        "{% block b %}{{ m }}{% endblock %}{{ self.b() }}",
        "{{ m|reverse }}{{ m|first }}{{ m|last }}",
        "{{ {m: 1} }}{{ {m: 1}.items() }}{{ {m: 1}|dictsort }}",
        "{{ (m|e ~ 'b')|indent }}",
    ],
)
def test_no_operation_of_templates_loses_origins(source):
    rendered = render(source, {"m": trace("<xyz>", USER)}, "", "")
    assert isinstance(rendered, TracedText)
    assert all(highest(c) == USER for c in rendered if c.lower() in "xyz")


BIG = "{% set s = 'x' * 65536 %}{% set s = s * 120 %}"
LOOP, END = "{% for i in range(99999) %}", "{% endfor %}"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "source",
    [
        LOOP + "x" * 20000 + END,
        LOOP + "{% set x %}" + "x" * 5000 + "{% endset %}" + END,
        "{{ ('a'.encode() * 500000000)|length }}",
        "{{ (1).to_bytes(500000000, 'big')|length }}",
        "{% set a = 'x' * 1000 %}" + "{% set a = [a] * 70 %}" * 3 + "{{ a|string|length }}",
        "{% set a = 'x' * 1000 %}" + "{% set a = [a] * 70 %}" * 3 + "{{ a|tojson|length }}",
        "{% set a = {'a': 'x' * 99} %}" + "{% set a = {'a': a, 'b': a} %}" * 40 + "{{ a.items() }}",
        "{% set a = ('x', 'y') %}" + "{% set a = (a, a) %}" * 60 + "{{ a in [a, 1] }}",
        "{% set n = namespace(a=1) %}" + LOOP + "{% set n.a = [n.a] %}" + END + "{{ n.a }}",
        "{% set n = namespace(a=[]) %}" + BIG + LOOP + "{% set n.a = [n.a, s[i:]] %}" + END,
        "{% set n = namespace(a=[]) %}" + BIG + LOOP + "{% set n.a = [n.a, s|upper] %}" + END,
        "{% set n = namespace() %}" + "{% set n = namespace(a=n, b=n) %}" * 40 + "{{ n }}",
        "{{ 1|round(30000000, 'ceil') }}",
        LOOP + "{% set x = (65535 - i) ** 65535 %}" + END,
        "{% set n = namespace(a=3) %}" + LOOP + "{% set n.a = n.a * n.a %}" + END,
        BIG + "{{ s|int(base=16) }}{{ ('f' * 8000)|int(base=16) }}",
        BIG + LOOP + "{% set t = s|upper %}" + END,
        BIG + LOOP + "{% if 'y' in s %}{% endif %}" + END,
        BIG + "{% set t = 'y' ~ s[:4000000] %}{{ s.rfind(t) }}",
        BIG + "{% set t = 'y' * 65536 ~ 'x' %}{{ s.strip(t) }}",
        "{% set a = [[1] * 1000] * 65536 %}{{ a|sum(start=[])|length }}",
        LOOP + "{{ range(99999)|last }}" + END,
        "{% set s = m * 40000 %}{{ s|list|length }}",
        "{% set s = 'a ' * 65536 %}{% set s = s * 60 %}{{ s.split()|length }}",
    ],
)
def test_bombs_take_little_time_and_memory(source):
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(ValueError) as caught:
        render(source, {"m": trace("hi there " * 20, USER)}, "", "")
    seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "MemoryError" not in str(caught.value)
    # tracing slows a rendering by a factor of about three
    assert seconds < 3 and peak < 100e6
