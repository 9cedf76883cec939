"""Name stacks of the operations of a compiled program, from its text."""

from __future__ import annotations

import re

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = ")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
_OPERANDS = re.compile(r"%([\w.\-]+)")


_ASYNCHRONOUS = re.compile(r" (?:dot|convolution)\(|kind=kCustom|custom-call\(")


def awaited(program: str) -> dict[str, tuple[str, ...]]:
    """Returns the operands of each operation that a library may still compute when its call returns.

    Libraries compute matrix products and convolutions in threads of their own. A trace shows the call
    that starts a product. The operation that reads the product waits for the threads.

    Args:
        program: the text of a compiled program, `compiled.as_text()`.

    Example:
        >>> awaited("  %dot.1 = f32[2,2]{1,0} dot(%x, %x)\\n  ROOT %exp.1 = f32[2,2]{1,0} exponential(%dot.1)")
        {'exp.1': ('dot.1',)}
    """
    started: set[str] = set()
    waits: dict[str, tuple[str, ...]] = {}
    for line in program.splitlines():
        instruction = _INSTRUCTION.match(line)
        if not instruction:
            continue
        text = line[instruction.end() - 1 :].partition("metadata=")[0]
        operands = tuple(name for name in _OPERANDS.findall(text) if name in started)
        if operands:
            waits[instruction[1]] = operands
        if _ASYNCHRONOUS.search(text):
            started.add(instruction[1])
    return waits


def scopes(program: str) -> dict[str, str]:
    """Returns the name stack of each operation of a compiled program.

    The compiler adds operations without a name, such as copies and transposes. These operations have the
    name of an operation inside of them, otherwise that of an operation that reads their result.

    Args:
        program: the text of a compiled program, `compiled.as_text()`.

    Example:
        >>> text = '''ENTRY %main (x: f32[2]) -> f32[2] {
        ...   %copy = f32[2]{0} copy(%x)
        ...   ROOT %add.1 = f32[2]{0} add(%copy, %copy), metadata={op_name="jit(f)/dense/add"}
        ... }'''
        >>> scopes(text)
        {'copy': 'jit(f)/dense', 'add.1': 'jit(f)/dense'}
    """
    names: dict[str, str] = {}
    called: dict[str, str] = {}
    inside: dict[str, str] = {}
    operands: dict[str, list[str]] = {}
    readers: dict[str, list[str]] = {}
    products: list[str] = []
    computation = ""
    for line in program.splitlines():
        header = _COMPUTATION.match(line)
        if header:
            computation = header[1]
            continue
        instruction = _INSTRUCTION.match(line)
        if not instruction:
            continue
        name = instruction[1]
        op_name = _OP_NAME.search(line)
        # the last part is the primitive, which may have the name of a layer
        stack = op_name[1].rpartition("/")[0] if op_name else ""
        if stack:
            names[name] = stack
            inside.setdefault(computation, stack)
        target = _CALLED.search(line)
        if target:
            called[name] = target[1]
        text = line[instruction.end() - 1 :].partition("metadata=")[0]
        operands[name] = _OPERANDS.findall(text)
        for operand in operands[name]:
            readers.setdefault(operand, []).append(name)
        if not stack and _ASYNCHRONOUS.search(text):
            products.append(name)
    for name in operands:
        if name not in names and called.get(name) in inside:
            names[name] = inside[called[name]]
    origins: dict[str, str] = {}
    for name, inputs in operands.items():
        origins[name] = names.get(name) or _best([origins.get(each, "") for each in inputs])
    # the update of the weights reads a gradient whose product has lost its name
    names.update({name: origins[name] for name in products if name not in names})
    for name in reversed(operands):
        if name not in names:
            near = _best([names.get(reader, "") for reader in readers.get(name, ())])
            names[name] = near if "jvp" in near else origins[name] or near
    return {name: names[name] for name in operands}


def _best(stacks: list[str]) -> str:
    """Returns the stack of a gradient, otherwise of a call of the model, otherwise any."""
    ranked = sorted(stacks, key=lambda stack: ("transpose(" in stack, "jvp" in stack, bool(stack)))
    return ranked[-1] if ranked else ""
