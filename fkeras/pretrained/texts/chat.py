"""Chat templates: Jinja templates of a checkpoint that render messages as one text.

Templates are untrusted. Jinja's sandbox rejects access to the internals of Python and mutation of values.
`_Budget` adds resource limits, which Jinja lacks, for loops, recursion and the growth of strings.
"""

from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fkeras.engine.messages.optional_packages import missing_package

_SOURCE = 1 << 20  # characters of a template
_TEXT = 1 << 23  # characters of the rendered text, and of each string inside the template
_STEPS = 1 << 18  # iterations of loops and calls of macros
_ITEMS = 1 << 16  # factor of a repetition
_INDENT = 32
# methods whose result grows with a number in the template
_REFUSED_METHODS = frozenset(
    ("center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate")
)
_FILTERS = frozenset(
    (
        *(
            "abs",
            "capitalize",
            "count",
            "d",
            "default",
            "dictsort",
            "e",
            "escape",
            "first",
            "float",
        ),
        *("groupby", "int", "items", "last", "length", "list", "lower", "map", "max", "min"),
        *("reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort"),
        *("string", "sum", "title", "trim", "truncate", "unique", "upper"),
    )
)


class _Budget:
    """Counts steps and characters of one rendering."""

    def __init__(self, error: type[Exception]):
        self.error, self.steps, self.characters = error, _STEPS, _TEXT

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise self.error(f"more than {_STEPS} iterations")

    def bounded(self, value: Any) -> Any:
        self.check(len(value) if isinstance(value, str | list | tuple) else 0)
        return value

    def check(self, size: int) -> None:
        if size > _TEXT:
            raise self.error(f"a value of {size} characters, more than {_TEXT}")

    def written(self, value: Any) -> Any:
        self.characters -= len(value if isinstance(value, str) else str(value))
        if self.characters < 0:
            raise self.error(f"more than {_TEXT} characters of text")
        return value

    def concatenated(self, *values: Any) -> str:
        texts = [str(value) for value in values]
        self.check(sum(map(len, texts)))
        return "".join(texts)

    def joined(self, values: Iterable, d: str = "", attribute: str | int | None = None) -> str:
        """Joins values; the filter "join"."""
        if attribute is not None:
            values = [value[attribute] for value in values]
        texts = [str(value) for value in values]
        self.check(sum(map(len, texts)) + len(str(d)) * len(texts))
        return str(d).join(texts)

    def replaced(self, text: str, old: str, new: str, count: int = -1) -> str:
        """Replaces parts of a text; the filter and the method "replace"."""
        text, old, new = str(text), str(old), str(new)
        self.check(len(text) + text.count(old) * len(new))
        return text.replace(old, new, -1 if count is None else count)

    def indented(
        self, text: str, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        """Indents lines; the filter "indent"."""
        space = width if isinstance(width, str) else " " * min(width, _INDENT)
        self.check(len(text) + len(space) * (text.count("\n") + 1))
        lines = text.split("\n")
        rest = [space + line if line or blank else line for line in lines[1:]]
        return "\n".join([(space if first else "") + lines[0], *rest])

    def computed(self, operator: str, left: Any, right: Any, compute: Callable[[], Any]) -> Any:
        """Checks the size of the result of an operator, and computes the result."""
        texts = [v for v in (left, right) if isinstance(v, str | list | tuple)]
        if operator == "+":
            self.check(sum(map(len, texts)))
        elif texts and operator == "%":
            raise self.error("formats a string with %, which has no limit. Use ~ to join texts")
        elif texts and operator == "*":
            factor = right if texts[0] is left else left
            if isinstance(factor, int) and factor > _ITEMS:
                raise self.error(f"repeats a value {factor} times, more than {_ITEMS}")
            self.check(len(texts[0]) * (factor if isinstance(factor, int) else 0))
        elif not texts and max(_bits(left), _bits(right)) > (16 if operator == "**" else 4096):
            raise self.error("computes with integers that are too large")
        return compute()


def _bits(value: Any) -> int:
    return value.bit_length() if isinstance(value, int) else 0


@functools.lru_cache(maxsize=16)
def _compiled(source: str, begin: str, end: str) -> Any:
    """Returns the compiled template, whose loops, assignments and outputs report to a `_Budget`."""
    import jinja2.ext
    from jinja2 import nodes

    class Generation(jinja2.ext.Extension):
        """`{% generation %}`: encloses answers of the model in delimiters."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            mark = [nodes.Output([nodes.TemplateData(m)], lineno=line) for m in (begin, end)]
            return [mark[0], *body, mark[1]]

    environment = _sandbox().overlay(extensions=(Generation, jinja2.ext.loopcontrols))
    tree = environment.parse(source)

    def call(name: str, *values: Any) -> Any:
        function = nodes.EnvironmentAttribute(name)
        made = nodes.Call(function, list(values), [], None, None)
        return made.set_lineno(values[0].lineno if values else 1)

    for loop in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
        loop.body.insert(0, nodes.ExprStmt(call("step")))
    for assignment in list(tree.find_all(nodes.Assign)):
        assignment.node = call("bounded", assignment.node)
    for output in list(tree.find_all(nodes.Output)):
        output.nodes = [
            node if isinstance(node, nodes.TemplateData) else call("written", node)
            for node in output.nodes
        ]
    for join in list(tree.find_all(nodes.Concat)):
        # `a ~ b` doubles a text in a loop
        join.nodes = [call("concatenated", *join.nodes)]
    tree.set_lineno(1)  # for inserted nodes, which have no line
    tree.set_environment(environment)
    return environment.compile(tree, filename="<chat template>")


def _sandbox() -> Any:
    """Returns an environment with Jinja's immutable sandbox and a new `_Budget`."""
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise missing_package("A chat template", "jinja2", error) from error

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(("+", "*", "**", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            compute = functools.partial(super().call_binop, context, operator, left, right)
            return budget.computed(operator, left, right, compute)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if isinstance(obj, str) and attr in _REFUSED_METHODS:
                return False
            return super().is_safe_attribute(obj, attr, value)

        def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            text, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
            if isinstance(text, str) and name == "replace":
                return budget.replaced(text, *args)
            if isinstance(text, str) and name == "join":
                (values,) = args
                return budget.joined(values, text)
            base: Any = super()  # Any: type checkers reject the parameter names of Jinja
            return base.call(context, function, *args, **kwargs)

        def wrap_str_format(self, value: Any) -> None:
            return None  # disables `format`, whose widths are unlimited

    budget = _Budget(jinja2.TemplateRuntimeError)
    environment: Any = Sandbox(trim_blocks=True, lstrip_blocks=True)
    environment.filters = {k: v for k, v in environment.filters.items() if k in _FILTERS}
    environment.filters |= {
        "tojson": _tojson,
        "join": budget.joined,
        "replace": budget.replaced,
        "indent": budget.indented,
    }
    environment.globals.pop("lipsum")  # returns text of unlimited length
    environment.globals |= {"strftime_now": _strftime_now, "raise_exception": _rejection}
    for name in ("step", "bounded", "written", "concatenated"):
        setattr(environment, name, getattr(budget, name))
    return environment


class _RejectedError(Exception):
    """The template called `raise_exception`."""


def _rejection(message: object) -> None:
    raise _RejectedError(str(message)[:1000])


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML; models are trained on JSON without these escapes
    indent = None if indent is None else min(int(indent), _INDENT)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _strftime_now(form: str) -> str:
    if len(form) > 200 or re.search(r"%-?[0-9]", form):
        raise ValueError(f"expected a short date format without widths, received {form[:40]!r}")
    return datetime.datetime.now().strftime(form)


def render(source: str, variables: Mapping[str, Any], begin: str, end: str) -> str:
    """Renders a chat template in Jinja's immutable sandbox, with resource limits.

    Args:
        source: the template.
        variables: variables of the template, such as `messages`.
        begin: delimiter that is rendered before a block `{% generation %}`.
        end: delimiter that is rendered after the block.

    Raises:
        ImportError: if the package jinja2 is not installed.
        ValueError: for an error in the template, an exceeded limit, and messages that the template rejects.

    Example:
        >>> render("{% for m in messages %}{{ m.text }};{% endfor %}", {"messages": [{"text": "a"}]}, "", "")
        'a;'
    """
    if len(source) > _SOURCE:
        raise ValueError(
            f"The chat template has {len(source)} characters, expected at most {_SOURCE}. The file is "
            "damaged or crafted; pass template=..."
        )
    environment = _sandbox()
    try:
        code = _compiled(source, begin, end)
        template = environment.template_class.from_code(environment, code, environment.globals)
        return template.render(**variables)
    except _RejectedError as error:
        raise ValueError(f"The chat template rejects the messages: {error}") from None
    except ImportError:
        raise
    # a crafted template can raise any exception
    except Exception as error:
        line = _line(error)
        raise ValueError(
            f"The chat template has an error{f' in line {line}' if line else ''}: {str(error)[:300]} "
            f"({type(error).__name__}). Give messages with the keys that the template reads, or pass "
            "another template: tokenizer.chat(messages, template=...)."
        ) from error


def _line(error: Exception) -> int | None:
    line = getattr(error, "lineno", None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<chat template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
