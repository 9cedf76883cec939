"""Chat templates: Jinja templates of a checkpoint that render messages as one text.

Templates are untrusted. Jinja's sandbox rejects access to the internals of Python and mutation of values.
`Budget` adds resource limits, which Jinja lacks. Texts of messages keep their origins through all
operations, so that the tokenizer can tell them from the text of the template.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import json
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.authoring.engine import missing_package
from fkeras.pretrained.texts.budget import Budget
from fkeras.pretrained.texts.traced_text import retraced, trace

_SOURCE = 1 << 20  # characters of a template
_TOKENS = 1 << 14  # names, operators and texts of a template
_INDENT = 32
_DIGITS = 100  # decimals of a rounded number
# methods of strings; those whose result grows with a number are missing, and "encode", since bytes have no origins
_METHODS = frozenset(
    (
        "capitalize",
        "casefold",
        "count",
        "endswith",
        "find",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdecimal",
        "isdigit",
        "isidentifier",
        "islower",
        "isnumeric",
        "isprintable",
        "isspace",
        "istitle",
        "isupper",
        "join",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rindex",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "swapcase",
        "title",
        "upper",
    )
)
_FILTERS = frozenset(
    (
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
        "groupby",
        "int",
        "items",
        "last",
        "length",
        "list",
        "lower",
        "map",
        "max",
        "min",
        "reject",
        "rejectattr",
        "reverse",
        "select",
        "selectattr",
        "sort",
        "title",
        "truncate",
        "unique",
        "upper",
    )
)
# filters that read no more than one item of a list, and return an item
_CHEAP = frozenset(("count", "d", "default", "first", "items", "last", "length"))
# how often a filter reads each item
_READS = types.MappingProxyType({"sort": 24, "dictsort": 24, "groupby": 24, "unique": 4})
# characters that are read in the time of a call
_CALL = 512
# arguments that Jinja adds to calls in loops and blocks
_SCOPES = frozenset(("_loop_vars", "_block_vars"))
# bytes of an item for each character of a text
_CHARACTER = 128


@functools.lru_cache(maxsize=16)
def _compiled(source: str, begin: str, end: str) -> Any:
    """Returns the compiled template, which reports loops, values and outputs to a `Budget`."""
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

    def call(name: str, *values: Any) -> Any:
        made = nodes.Call(nodes.EnvironmentAttribute(name), list(values), [], None, None)
        return made.set_lineno(values[0].lineno)

    def metered(node: Any) -> Any:
        """Inserts calls of the budget."""
        for field, value in node.iter_fields():
            if isinstance(value, nodes.Node):
                setattr(node, field, metered(value))
            elif isinstance(value, list):
                parts = [metered(v) if isinstance(v, nodes.Node) else v for v in value]
                setattr(node, field, parts)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock):
            # a call takes longer than an iteration
            count = nodes.Const(1 if isinstance(node, nodes.For) else 4, lineno=node.lineno)
            node.body.insert(0, nodes.ExprStmt(call("step", count)))
        elif isinstance(node, nodes.Assign):
            node.node = call("kept", node.node)
        elif isinstance(node, nodes.Output):
            texts = (nodes.TemplateData,)
            node.nodes = [
                call("written", nodes.Const(n.data, lineno=n.lineno) if isinstance(n, texts) else n)
                for n in node.nodes
            ]
        elif isinstance(node, nodes.Concat):
            return call("concatenated", *node.nodes)
        elif isinstance(node, nodes.Compare):
            node.expr = call("weighed", node.expr)
            for operand in node.ops:
                operand.expr = call("weighed", operand.expr)
        elif isinstance(node, nodes.ScopedEvalContextModifier):
            raise jinja2.TemplateSyntaxError("{% autoescape %} is not supported", node.lineno)
        elif isinstance(node, nodes.List | nodes.Tuple | nodes.Dict):
            # a tuple may also be the target of an assignment
            return call("made", node) if getattr(node, "ctx", "load") == "load" else node
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            return call("made", node)
        return node

    environment = _sandbox({}).overlay(
        extensions=(Generation, jinja2.ext.loopcontrols), optimized=False
    )
    tokens = environment.lexer.tokeniter(source, None)
    if next(itertools.islice(tokens, _TOKENS, None), None) is not None:
        raise jinja2.TemplateSyntaxError(f"more than {_TOKENS} names, operators and texts", 1)
    tree = metered(environment.parse(source))
    tree.set_lineno(1)  # for inserted nodes, which have no line
    tree.set_environment(environment)
    return environment.compile(tree, filename="<chat template>")


def _sandbox(variables: Mapping[str, Any]) -> Any:
    """Returns an environment with Jinja's immutable sandbox and a new `Budget`."""
    try:
        import jinja2
        from jinja2.runtime import Macro
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise missing_package("A chat template", "jinja2", error) from error

    class Sandbox(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(("+", "*", "**", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            compute = functools.partial(super().call_binop, context, operator, left, right)
            return budget.computed(operator, left, right, compute)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if isinstance(obj, str):
                return attr in _METHODS
            if isinstance(obj, int | float | complex | bytes) or attr == "fromkeys":
                return False
            return super().is_safe_attribute(obj, attr, value)

        def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
            if owner is budget and not kwargs.keys() - _SCOPES:
                return function(*args)
            if isinstance(owner, str):
                options = {k: v for k, v in kwargs.items() if k not in _SCOPES}
                return budget.method(owner, name, *args, **options)
            if isinstance(owner, list | tuple):
                budget.weighed(owner)
            base: Any = super()  # Any: type checkers reject the parameter names of Jinja
            result = base.call(context, function, *args, **kwargs)
            # a dictionary returns its items; the text of a macro is counted when it is joined
            is_new = not isinstance(owner, Mapping) and not isinstance(function, Macro)
            return budget.made(result) if is_new else result

        def wrap_str_format(self, value: Any) -> None:
            return None  # disables `format`, whose widths are unlimited

    budget = Budget(jinja2.TemplateRuntimeError, variables)
    environment: Any = Sandbox(trim_blocks=True, lstrip_blocks=True)
    filters = {name: environment.filters[name] for name in _FILTERS}
    filters |= {
        "round": functools.partial(_rounded, environment.filters["round"]),
        "sum": _flat_or_sum(budget, environment.filters["sum"]),
        "trim": functools.partial(_trimmed, budget),
    }
    environment.filters = {name: _metered(budget, name, f) for name, f in filters.items()}
    environment.filters |= {
        "tojson": functools.partial(_tojson, budget),
        "join": functools.partial(_joined, budget),
        "replace": budget.replaced,
        "indent": budget.indented,
        "string": budget.text,
        "safe": budget.text,
    }
    environment.tests = {n: _metered(budget, n, f) for n, f in environment.tests.items()}
    environment.globals.pop("lipsum")  # returns text of unlimited length
    environment.globals |= {"strftime_now": _strftime_now, "raise_exception": _rejection}
    environment.concat = budget.joined
    for name in ("step", "made", "kept", "written", "concatenated", "weighed"):
        setattr(environment, name, getattr(budget, name))
    return environment


def _metered(budget: Budget, name: str, function: Callable) -> Callable:
    """Returns a filter or test that counts what it reads and makes, and keeps the origins of texts."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        given = [*args, *options.values()]
        if name in _CHEAP:
            return function(*args, **options)
        texts = [value for value in given if isinstance(value, str)]
        extents = [budget.extent(value) for value in given]
        budget.read(_CALL + _READS.get(name, 1) * sum(extent.size for extent in extents))
        if name in ("list", "map", "sort", "title", "unique"):
            budget.check(_CHARACTER * max(map(len, texts), default=0))
        result = function(*args, **options)
        if any(result is value for value in given):
            return result
        if isinstance(result, str):
            inside = [
                e.origin for e, v in zip(extents, given, strict=True) if not isinstance(v, str)
            ]
            result = retraced(trace(result, max(inside, default=0)), texts)
        return budget.made(result)

    return call


def _flat_or_sum(budget: Budget, do_sum: Callable) -> Callable:
    """Returns the filter "sum"; adding lists one by one copies each of them many times."""

    @functools.wraps(do_sum)
    def total(environment: Any, values: Any, attribute: Any = None, start: Any = 0) -> Any:
        if isinstance(start, list | tuple):
            values = list(values)
            budget.read(len(values) * budget.extent(values).size)
        return do_sum(environment, values, attribute, start)

    return total


def _rounded(do_round: Callable, value: Any, precision: int = 0, method: str = "common") -> Any:
    """Rounds a number; the filter "round"."""
    if abs(precision) > _DIGITS:
        raise ValueError(f"rounds to {precision} digits, more than {_DIGITS}")
    return do_round(value, precision, method)


def _trimmed(budget: Budget, value: Any, chars: str | None = None) -> str:
    return budget.method(budget.text(value), "strip", chars)


class _RejectedError(Exception):
    """The template called `raise_exception`."""


def _rejection(message: object) -> None:
    raise _RejectedError(str(message)[:1000])


def _joined(budget: Budget, values: Any, d: Any = "", attribute: Any = None) -> str:
    """Joins values; the filter "join"."""
    budget.weighed(values)
    budget.check(_CHARACTER * (len(values) if isinstance(values, str) else 0))
    return budget.joined(values if attribute is None else [v[attribute] for v in values], d)


def _tojson(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes HTML; models are trained on JSON without these escapes
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii,
        indent=None if indent is None else min(int(indent), _INDENT),
        separators=separators,
        sort_keys=sort_keys,
    )
    parts, size = [], 0
    for part in encoder.iterencode(value):
        size += len(part)
        budget.check(size)
        parts.append(str.__str__(part))
    return budget.made(trace("".join(parts), budget.extent(value).origin))


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
    """
    if len(source) > _SOURCE:
        raise ValueError(
            f"The chat template has {len(source)} characters, expected at most {_SOURCE}. The file is "
            "damaged or crafted; pass template=..."
        )
    try:
        environment = _sandbox(variables)
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
