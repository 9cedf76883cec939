"""Reader of pickled lists, numbers, texts and NumPy arrays that runs no code of the file.

The files of IMDB, Reuters and CIFAR contain pickles, and Python's reader of pickles calls the
functions that a file names. This reader accepts a few instructions and the names of four functions,
which it does not call: it builds arrays from their bytes itself. Memory is limited by the file's size.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

_MARK = object()
# before and after NumPy 2
_ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_DTYPE_KINDS = "biuf"
_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})
_MAX_DEPTH = 10


# Records on the reader's stack, in the place of functions and of unfinished objects.
@dataclasses.dataclass
class _Function:
    name: str


@dataclasses.dataclass
class _DType:
    code: str
    order: str = "|"


@dataclasses.dataclass
class _Array:
    state: Any = None


class PickleError(ValueError):
    """A pickle that is damaged or has unsupported contents; the message describes the contents."""


def read_pickle(data: bytes) -> Any:
    """Reads a pickle of lists, tuples, dictionaries, numbers, texts and NumPy arrays.

    Args:
        data: the pickle. Strings of Python 2 are read as bytes.
    """
    try:
        return _Reader(data).read()
    except PickleError:
        raise
    except (IndexError, struct.error):
        raise PickleError("a truncated pickle") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise PickleError(f"a damaged pickle ({type(error).__name__})") from None


class _Reader:
    """Interprets the instructions of one pickle: a stack machine with a memo for repeated objects."""

    def __init__(self, data: bytes):
        self.data, self.position = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self) -> Any:
        # local names: this loop runs once for each of the millions of words in a dataset
        data, stack, position = self.data, self.stack, self.position
        push, instructions = stack.append, _INSTRUCTIONS
        while True:
            opcode = data[position]
            position += 1
            # almost all instructions of IMDB and Reuters push a word number of one or two bytes
            if opcode == 0x4B:  # BININT1
                push(data[position])
                position += 1
            elif opcode == 0x4D:  # BININT2
                push(data[position] | data[position + 1] << 8)
                position += 2
            elif opcode == 0x2E:  # STOP
                if len(stack) != 1:
                    raise PickleError("a damaged pickle")
                return _build_value(stack[0], len(data))
            else:
                instruction = instructions.get(opcode)
                if instruction is None:
                    raise PickleError(f"the unsupported pickle instruction {bytes([opcode])!r}")
                self.position = position
                instruction(self)
                position = self.position

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.position:
            raise PickleError("a truncated pickle")
        self.position += count
        return self.data[self.position - count : self.position]

    def unpack(self, number_format: str) -> int:
        return struct.unpack(number_format, self.take(struct.calcsize(number_format)))[0]

    def take_line(self) -> bytes:
        end = self.data.index(b"\n", self.position)
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def pop_mark(self) -> list[Any]:
        """Removes and returns the items above the last mark."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise PickleError("a damaged pickle")

    def top_as(self, expected: type) -> Any:
        value = self.stack[-1]
        if type(value) is not expected:
            raise PickleError("a damaged pickle")
        return value

    def make_tuple(self, count: int) -> None:
        if len(self.stack) < count:
            raise PickleError("a damaged pickle")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def push_function(self, module: str, name: str) -> None:
        # names alone: `reduce` builds the result of a function without calling the function
        is_known = (
            (module in _ARRAY_MODULES and name == "_reconstruct")
            or (module == "numpy" and name in ("ndarray", "dtype"))
            or (module == "_codecs" and name == "encode")
        )
        if not is_known:
            raise PickleError(f"the function {f'{module}.{name}'[:80]!r}, which is not run")
        self.stack.append(_Function(name))

    def push_function_from_stack(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.push_function(str(module), str(name))

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(function) is not _Function or type(arguments) is not tuple:
            raise PickleError("a damaged pickle")
        if function.name == "_reconstruct":
            result: Any = _Array()
        elif function.name == "dtype":
            result = _DType(_text(arguments[0]))
        elif function.name == "encode":  # protocol 2 stores bytes as a text and its encoding
            result = arguments[0].encode("latin1")
        else:
            raise PickleError("a damaged pickle")
        self.stack.append(result)

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if type(target) is _DType and type(state) is tuple:
            target.order = _text(state[1])
        elif type(target) is _Array and type(state) is tuple and len(state) == 5:
            target.state = state
        else:
            raise PickleError("a damaged pickle")

    def memoize(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def set_items(self) -> None:
        pairs = self.pop_mark()
        self.top_as(dict).update(zip(pairs[::2], pairs[1::2], strict=True))

    def append_item(self) -> None:
        value = self.stack.pop()
        self.top_as(list).append(value)

    def append_items(self) -> None:
        values = self.pop_mark()
        self.top_as(list).extend(values)

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.top_as(dict)[key] = value

    def push_integer_line(self) -> None:
        line = self.take_line()[:20]
        if line in (b"00", b"01"):  # False and True in protocols 0 and 1
            self.stack.append(line == b"01")
        else:
            self.stack.append(int(line.rstrip(b"L")))

    def push_long(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.byte()), "little", signed=True))

    def byte(self) -> int:
        return self.take(1)[0]


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _build_value(value: Any, size: int) -> Any:
    """Replaces records by arrays in nested lists; rejects functions and unfinished objects.

    Args:
        size: number of bytes of the pickle, and limit of the number of items. Each stored item takes a
            byte or more, so only lists that repeat the same list many times have more items. Such a
            pickle of a few bytes could otherwise fill the memory.
    """
    remaining_items = size

    def convert(item: Any, depth: int) -> Any:
        nonlocal remaining_items
        kind = type(item)
        if kind in _SCALARS:
            return item
        if depth > _MAX_DEPTH:
            raise PickleError(f"nested lists with more than {_MAX_DEPTH} levels")
        if kind in (list, tuple, dict):
            remaining_items -= len(item)
            if remaining_items < 0:
                raise PickleError("lists that repeat other lists")
        if kind is dict:
            return {key: convert(entry, depth + 1) for key, entry in item.items()}
        if kind in (list, tuple):
            if set(map(type, item)) <= _SCALARS:  # without a call for each of millions of words
                return item
            return kind(convert(entry, depth + 1) for entry in item)
        if kind is not _Array or item.state is None:
            raise PickleError("an object that is not a list, number, text or array")
        return _build_array(item.state, convert, depth)

    return convert(value, 0)


def _build_array(state: tuple, convert: Callable[[Any, int], Any], depth: int) -> np.ndarray:
    _, shape, dtype, fortran, data = state
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise PickleError("an array without a shape")
    if type(dtype) is not _DType:
        raise PickleError("an array without a dtype")
    if dtype.code.startswith("O"):
        if type(data) is not list or len(data) != math.prod(shape):
            raise PickleError("an array of objects whose number differs from its shape")
        objects = np.empty(len(data), object)
        # filled one by one: `np.array` would convert equally long lists to a matrix
        for index, item in enumerate(convert(data, depth + 1)):
            objects[index] = item
        return objects.reshape(shape)
    order = dtype.order if dtype.order in "<>" else ""
    if dtype.code[:1] not in _DTYPE_KINDS or dtype.code[1:] not in ("1", "2", "4", "8"):
        raise PickleError(f"an array of dtype {dtype.code[:20]!r}")
    stored_dtype = np.dtype(order + dtype.code)
    if type(data) is not bytes or len(data) != math.prod(shape) * stored_dtype.itemsize:
        raise PickleError("an array whose data differ from its shape in size")
    flat = np.frombuffer(data, stored_dtype).astype(stored_dtype.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran is True else "C")


def _push(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    def instruction(reader: _Reader) -> None:
        reader.stack.append(value(reader))

    return instruction


def _push_sized(size_format: str, text: bool) -> Callable[[_Reader], None]:
    def value(reader: _Reader) -> Any:
        content = reader.take(reader.unpack(size_format))
        return content.decode("utf-8", "surrogatepass") if text else content

    return _push(value)


# by opcode, with the name in Python's `pickletools`
_INSTRUCTIONS = MappingProxyType(
    {
        ord("("): _push(lambda r: _MARK),  # MARK
        ord("J"): _push(lambda r: r.unpack("<i")),  # BININT
        ord("I"): lambda r: r.push_integer_line(),  # INT
        ord("L"): lambda r: r.push_integer_line(),  # LONG
        0x8A: lambda r: r.push_long(),  # LONG1
        ord("G"): _push(lambda r: r.unpack(">d")),  # BINFLOAT
        ord("N"): _push(lambda r: None),  # NONE
        0x88: _push(lambda r: True),  # NEWTRUE
        0x89: _push(lambda r: False),  # NEWFALSE
        ord("U"): _push_sized("<B", False),  # SHORT_BINSTRING
        ord("T"): _push_sized("<i", False),  # BINSTRING
        ord("C"): _push_sized("<B", False),  # SHORT_BINBYTES
        ord("B"): _push_sized("<I", False),  # BINBYTES
        0x8E: _push_sized("<Q", False),  # BINBYTES8
        ord("X"): _push_sized("<I", True),  # BINUNICODE
        0x8C: _push_sized("<B", True),  # SHORT_BINUNICODE
        0x8D: _push_sized("<Q", True),  # BINUNICODE8
        ord(")"): _push(lambda r: ()),  # EMPTY_TUPLE
        ord("t"): _push(lambda r: tuple(r.pop_mark())),  # TUPLE
        0x85: lambda r: r.make_tuple(1),  # TUPLE1
        0x86: lambda r: r.make_tuple(2),  # TUPLE2
        0x87: lambda r: r.make_tuple(3),  # TUPLE3
        ord("]"): _push(lambda r: []),  # EMPTY_LIST
        ord("l"): _push(lambda r: r.pop_mark()),  # LIST
        ord("a"): lambda r: r.append_item(),  # APPEND
        ord("e"): lambda r: r.append_items(),  # APPENDS
        ord("}"): _push(lambda r: {}),  # EMPTY_DICT
        ord("s"): lambda r: r.set_item(),  # SETITEM
        ord("u"): lambda r: r.set_items(),  # SETITEMS
        ord("c"): lambda r: r.push_function(
            r.take_line().decode(), r.take_line().decode()
        ),  # GLOBAL
        0x93: lambda r: r.push_function_from_stack(),  # STACK_GLOBAL
        ord("R"): lambda r: r.reduce(),  # REDUCE
        ord("b"): lambda r: r.build(),  # BUILD
        ord("p"): lambda r: r.memoize(int(r.take_line()[:20])),  # PUT
        ord("q"): lambda r: r.memoize(r.byte()),  # BINPUT
        ord("r"): lambda r: r.memoize(r.unpack("<I")),  # LONG_BINPUT
        0x94: lambda r: r.memoize(len(r.memo)),  # MEMOIZE
        ord("g"): _push(lambda r: r.memo[int(r.take_line()[:20])]),  # GET
        ord("h"): _push(lambda r: r.memo[r.byte()]),  # BINGET
        ord("j"): _push(lambda r: r.memo[r.unpack("<I")]),  # LONG_BINGET
        0x80: lambda r: r.take(1),  # PROTO
        0x95: lambda r: r.take(8),  # FRAME
    }
)
