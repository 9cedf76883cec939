"""Reader of pickled lists, numbers, texts and NumPy arrays that runs no code of the file.

The files of IMDB, Reuters and CIFAR contain pickles, and Python's reader of pickles calls the
functions that a file names. This reader knows a few instructions and four functions of NumPy, which
it does not call: it builds arrays itself from their bytes. Memory is bounded by the file's size.
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
_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_KINDS = "biuf"
_SCALARS = frozenset({int, float, bool, str, bytes, type(None)})
_DEPTH = 10


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
    """A pickle that is damaged or has other contents; the message is the problem."""


def read_pickle(data: bytes) -> Any:
    """Reads a pickle of lists, tuples, dictionaries, numbers, texts and NumPy arrays.

    Args:
        data: the pickle. Bytes of Python 2 stay bytes.

    Raises:
        PickleError: for a damaged pickle, and for any other object.

    Example:
        >>> import pickle
        >>> read_pickle(pickle.dumps({"a": [1, (2.5, None)], "b": np.arange(3)}))
        {'a': [1, (2.5, None)], 'b': array([0, 1, 2])}
        >>> read_pickle(pickle.dumps(print))
        Traceback (most recent call last):
        ...
        fkeras.datasets.files.pickles.PickleError: the function 'builtins.print', which is not run
    """
    try:
        return _Reader(data).read()
    except PickleError:
        raise
    except (IndexError, struct.error):
        raise PickleError("a pickle that ends too early") from None
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise PickleError(f"a damaged pickle ({type(error).__name__})") from None


class _Reader:
    """Interprets the instructions of one pickle."""

    def __init__(self, data: bytes):
        self.data, self.place = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self) -> Any:
        data, stack = self.data, self.stack
        others = _INSTRUCTIONS
        push = stack.append
        place = self.place
        while True:
            code = data[place]
            place += 1
            # the words of a review: small integers are almost all instructions of a file
            if code == 0x4B:
                push(data[place])
                place += 1
            elif code == 0x4D:
                push(data[place] | data[place + 1] << 8)
                place += 2
            elif code == 0x2E:  # the end
                if len(stack) != 1:
                    raise PickleError("a damaged pickle")
                return _plain(stack[0], len(data))
            else:
                instruction = others.get(code)
                if instruction is None:
                    raise PickleError(f"the instruction {bytes([code])!r} of a pickle")
                self.place = place
                instruction(self)
                place = self.place

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.place:
            raise PickleError("a pickle that ends too early")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def line(self) -> bytes:
        end = self.data.index(b"\n", self.place)
        line = self.data[self.place : end]
        self.place = end + 1
        return line

    def marked(self) -> list[Any]:
        """Removes and returns the items above the last mark."""
        for index in range(len(self.stack) - 1, -1, -1):
            if self.stack[index] is _MARK:
                items = self.stack[index + 1 :]
                del self.stack[index:]
                return items
        raise PickleError("a damaged pickle")

    def top(self, kind: type) -> Any:
        value = self.stack[-1]
        if type(value) is not kind:
            raise PickleError("a damaged pickle")
        return value

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise PickleError("a damaged pickle")
        self.stack[-count:] = [tuple(self.stack[-count:])]

    def function(self, module: str, name: str) -> None:
        is_safe = (
            (module in _MODULES and name == "_reconstruct")
            or (module == "numpy" and name in ("ndarray", "dtype"))
            or (module == "_codecs" and name == "encode")
        )
        if not is_safe:
            raise PickleError(f"the function {f'{module}.{name}'[:80]!r}, which is not run")
        self.stack.append(_Function(name))

    def stack_function(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.function(str(module), str(name))

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if type(function) is not _Function or type(arguments) is not tuple:
            raise PickleError("a damaged pickle")
        if function.name == "_reconstruct":
            result: Any = _Array()
        elif function.name == "dtype":
            result = _DType(_text(arguments[0]))
        elif function.name == "encode":  # bytes, in a pickle of protocol 2
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

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def items(self) -> None:
        pairs = self.marked()
        self.top(dict).update(zip(pairs[::2], pairs[1::2], strict=True))

    def append(self) -> None:
        value = self.stack.pop()
        self.top(list).append(value)

    def extend(self) -> None:
        values = self.marked()
        self.top(list).extend(values)

    def item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.top(dict)[key] = value

    def integer_line(self) -> None:
        line = self.line()[:20]
        if line in (b"00", b"01"):  # how protocol 1 writes False and True
            self.stack.append(line == b"01")
        else:
            self.stack.append(int(line.rstrip(b"L")))

    def long(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.data_byte()), "little", signed=True))

    def data_byte(self) -> int:
        return self.take(1)[0]


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _plain(value: Any, size: int) -> Any:
    """Returns lists, numbers, texts and arrays; rejects what else the stack can hold.

    Args:
        value: the object of the pickle.
        size: number of bytes of the pickle. An item takes a byte or more: a larger number of items
            comes from lists that refer to one list again and again.
    """
    room = size

    def convert(item: Any, depth: int) -> Any:
        nonlocal room
        kind = type(item)
        if kind in _SCALARS:
            return item
        if depth > _DEPTH:
            raise PickleError(f"lists inside lists on more than {_DEPTH} levels")
        if kind in (list, tuple, dict):
            room -= len(item)
            if room < 0:
                raise PickleError("lists that refer to their parts again and again")
        if kind is dict:
            return {key: convert(entry, depth + 1) for key, entry in item.items()}
        if kind in (list, tuple):
            if set(map(type, item)) <= _SCALARS:  # millions of words
                return item
            return kind(convert(entry, depth + 1) for entry in item)
        if kind is not _Array or item.state is None:
            raise PickleError("an object that is no list, number, text or array")
        return _array(item.state, convert, depth)

    return convert(value, 0)


def _array(state: tuple, convert: Callable[[Any, int], Any], depth: int) -> np.ndarray:
    _, shape, dtype, fortran, data = state
    if type(shape) is not tuple or any(type(n) is not int or n < 0 for n in shape):
        raise PickleError("an array without a shape")
    if type(dtype) is not _DType:
        raise PickleError("an array without a dtype")
    if dtype.code.startswith("O"):
        if type(data) is not list or len(data) != math.prod(shape):
            raise PickleError("an array of objects of another size")
        objects = np.empty(len(data), object)
        for place, item in enumerate(convert(data, depth + 1)):
            objects[place] = item
        return objects.reshape(shape)
    order = dtype.order if dtype.order in "<>" else ""
    if dtype.code[:1] not in _KINDS or dtype.code[1:] not in ("1", "2", "4", "8"):
        raise PickleError(f"an array of dtype {dtype.code[:20]!r}")
    kind = np.dtype(order + dtype.code)
    if type(data) is not bytes or len(data) != math.prod(shape) * kind.itemsize:
        raise PickleError("an array of another size than its data")
    flat = np.frombuffer(data, kind).astype(kind.newbyteorder("="))
    return flat.reshape(shape, order="F" if fortran is True else "C")


def _pushed(value: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    def instruction(reader: _Reader) -> None:
        reader.stack.append(value(reader))

    return instruction


def _sized(form: str, text: bool) -> Callable[[_Reader], None]:
    def value(reader: _Reader) -> Any:
        content = reader.take(reader.number(form))
        return content.decode("utf-8", "surrogatepass") if text else content

    return _pushed(value)


_INSTRUCTIONS = MappingProxyType(
    {
        ord("("): _pushed(lambda r: _MARK),
        ord("J"): _pushed(lambda r: r.number("<i")),
        ord("I"): lambda r: r.integer_line(),
        ord("L"): lambda r: r.integer_line(),
        0x8A: lambda r: r.long(),
        ord("G"): _pushed(lambda r: r.number(">d")),
        ord("N"): _pushed(lambda r: None),
        0x88: _pushed(lambda r: True),
        0x89: _pushed(lambda r: False),
        ord("U"): _sized("<B", False),
        ord("T"): _sized("<i", False),
        ord("C"): _sized("<B", False),
        ord("B"): _sized("<I", False),
        0x8E: _sized("<Q", False),
        ord("X"): _sized("<I", True),
        0x8C: _sized("<B", True),
        0x8D: _sized("<Q", True),
        ord(")"): _pushed(lambda r: ()),
        ord("t"): _pushed(lambda r: tuple(r.marked())),
        0x85: lambda r: r.tuple_of(1),
        0x86: lambda r: r.tuple_of(2),
        0x87: lambda r: r.tuple_of(3),
        ord("]"): _pushed(lambda r: []),
        ord("l"): _pushed(lambda r: r.marked()),
        ord("a"): lambda r: r.append(),
        ord("e"): lambda r: r.extend(),
        ord("}"): _pushed(lambda r: {}),
        ord("s"): lambda r: r.item(),
        ord("u"): lambda r: r.items(),
        ord("c"): lambda r: r.function(r.line().decode(), r.line().decode()),
        0x93: lambda r: r.stack_function(),
        ord("R"): lambda r: r.call(),
        ord("b"): lambda r: r.build(),
        ord("p"): lambda r: r.put(int(r.line()[:20])),
        ord("q"): lambda r: r.put(r.data_byte()),
        ord("r"): lambda r: r.put(r.number("<I")),
        0x94: lambda r: r.put(len(r.memo)),
        ord("g"): _pushed(lambda r: r.memo[int(r.line()[:20])]),
        ord("h"): _pushed(lambda r: r.memo[r.data_byte()]),
        ord("j"): _pushed(lambda r: r.memo[r.number("<I")]),
        0x80: lambda r: r.take(1),
        0x95: lambda r: r.take(8),
    }
)
