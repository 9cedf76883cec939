"""Products of few rows with codes of 4 or 8 bits, in a form that XLA's CPU compiler turns into vector code.

XLA vectorizes elementwise computations along their last axis, but no sums. Each sum of a product is
therefore unrolled as far as its terms fit into registers and the first cache; a second step adds the sums.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

# rows of codes in a sum: the lines of more rows exceed the first cache
_ROWS = 32
# fewer if rows are whole pages apart: the lines of all rows then share a set of the first cache
_FEW, _PAGE = 16, 4096
# rows of codes that are converted together: XLA would convert the codes of more rows again for each row
_CONVERTED = 4
# rows of codes that XLA converts within a sum; the converted codes of more rows would go to memory
_FUSED = 8
# inputs in a step of the loop, if all inputs have the same scales
_BLOCK = 128
# outputs of a step of the loop
_OUTPUTS = 4096
# numbers added in a step of the loop over sums, enough for XLA to divide the step among threads, and the largest
# number of sums in a step
_ADDED, _TERMS = 1 << 16, 64
# slices of an array in one operation, for which XLA computes the array once
_PLACES = 16
# bytes of a row of codes that are the last axis of an elementwise computation
_LANES = 16


def fits_columns(x: jax.Array, codes: jax.Array, block: int | None) -> bool:
    """Returns whether `column_product` computes x (b, i) with codes (i, o / 2) faster than dequantization."""
    unit = math.gcd(len(codes), block or _BLOCK)
    return len(x) <= 4 and unit % _FEW == 0 and len(codes) > unit


def _rows(columns: int, unit: int) -> int:
    """Returns the number of rows of codes in a sum: 32 if 32 divides `unit` and no row is whole pages, else 16."""
    return _ROWS if columns % _PAGE and unit % _ROWS == 0 else _FEW


def column_product(
    x: jax.Array,
    codes: jax.Array,
    scale: jax.Array,
    zero: jax.Array | None = None,
    *,
    block: int | None,
) -> jax.Array:
    """Computes x (b, i) times a matrix of codes (i, o / 2), whose bytes have the codes of two outputs.

    Args:
        scale: scales (groups, o), or (1, o) by which codes are divided.
        zero: zero points (groups, o); None for a single group.
        block: the number of inputs of a group.
    """
    (batch, size), columns, block = x.shape, codes.shape[1], block or _BLOCK
    # a unit has inputs with the same scales, which may be those of the next unit too
    unit = math.gcd(size, block)
    # before the barrier: products of the same inputs then share the sums
    totals = jnp.sum(x.reshape(batch, -1, unit), axis=2)
    # otherwise XLA converts the codes before a decoding loop, and keeps the converted codes
    x, codes, scale, zero = jax.lax.optimization_barrier((x, codes, scale, zero))
    parts = _parts(size // unit, unit, columns) if batch == 1 else None
    if parts is not None:
        return _single_column_product(x, totals, codes, scale, zero, block, *parts)
    # low halves plus 8, high halves times 16
    masks, signs = (np.array(pair, "int32").reshape(1, 1, 1, 2, 1) for pair in ([15, -16], [8, 0]))
    shifts, factors = (np.array(pair, x.dtype).reshape(1, 2, 1) for pair in ([8, 0], [1, 1 / 16]))
    rows = _rows(columns, unit)
    sums = _sums_of_rows(x, codes, rows, lambda part: (part.astype("int32") & masks) ^ signs)

    def term(number: jax.Array) -> jax.Array:
        first = number * np.uint32(unit // rows)
        parts = [_cut(sums, first + np.uint32(n), 1) for n in range(unit // rows)]
        products = _sum(parts)[:, 0] * factors
        total = _cut(totals, number, 1)[:, :, None]
        if zero is None:
            return products - total * shifts
        group = number // np.uint32(block // unit)
        point, factor = (
            _cut(f, group, 0).reshape(1, columns, 2).mT.astype(x.dtype) for f in (zero, scale)
        )
        return (products - total * (point + shifts)) * factor

    start = jnp.zeros((batch, 2, columns), x.dtype)
    y = _looped(term, size // unit, _OUTPUTS * _BLOCK // (columns * unit), start)
    y = jnp.moveaxis(y, 1, 2).reshape(batch, -1)
    return y / scale if zero is None else y


def _single_column_product(
    x: jax.Array,
    totals: jax.Array,
    codes: jax.Array,
    scale: jax.Array,
    zero: jax.Array | None,
    block: int,
    rows: int,
    joined: int,
) -> jax.Array:
    """Computes `column_product` for a single row of inputs, where reading the codes takes the time.

    Args:
        totals: the sums (1, units) of the inputs of each unit.
        rows: the number of rows of codes in a sum.
        joined: the number of units that are added in one operation.
    """
    (size, columns), unit = codes.shape, math.gcd(len(codes), block)
    count = unit // rows
    # The rows of a sum are evenly spaced in a unit: from each of them, the processor reads consecutive rows of memory.
    codes, inputs = (a.reshape(size // unit, rows, count, -1) for a in (codes, x))

    def sums(low: bool) -> jax.Array:
        """Returns the sums (units, n, o / 2) of low halves plus 8, or of high halves times 16."""
        mask, sign = (15, 8) if low else (-16, 0)
        terms = []
        for start in range(0, rows, _CONVERTED):
            part = slice(start, start + _CONVERTED)
            halves = (codes[:, part].astype("int32") & mask) ^ sign
            products = halves.astype(x.dtype) * inputs[:, part]
            terms += [products[:, n] for n in range(_CONVERTED)]
        return _sum(terms)

    # complex numbers: XLA computes both halves in one loop, which reads the codes once
    both = jax.lax.complex(sums(low=True), sums(low=False)).reshape(-1, joined, count, columns)
    totals = totals.reshape(-1, joined)
    # a group of scales may be several units
    factors = [
        jnp.repeat(f, block // unit, axis=0)[: size // unit].reshape(-1, joined, columns, 2)
        for f in (zero, scale)
        if f is not None and zero is not None
    ]

    def half(sums: jax.Array, unit: int, low: bool) -> jax.Array:
        total = totals[:, unit, None]
        y = sums.real - 8 * total if low else sums.imag / 16
        if not factors:
            return y
        point, factor = (f[:, unit, :, 0 if low else 1].astype(x.dtype) for f in factors)
        return (y - total * point) * factor

    terms = []
    for number in range(joined):
        products = _sum([both[:, number, n] for n in range(count)])
        terms.append(jax.lax.complex(half(products, number, True), half(products, number, False)))
    y = _added(_sum(terms))
    y = jnp.stack([y.real, y.imag], axis=-1).reshape(1, -1)
    return y / scale if zero is None else y


def _parts(units: int, unit: int, columns: int) -> tuple[int, int] | None:
    """Returns the numbers of rows in a sum and of units that are added in one operation; None for few units.

    XLA computes an array once if an operation reads at least 16 slices of the array, else once for each slice.
    """
    most = _rows(unit // _ROWS * columns, unit)
    for rows in (n for n in (_ROWS, _FEW, _FEW // 2) if n <= most):
        for joined in range(-(-_PLACES * rows // unit), units // 2 + 1):
            if units % joined == 0:
                return rows, joined
    return None


def byte_column_product(x: jax.Array, codes: jax.Array) -> jax.Array:
    """Computes x (b, i) times 8-bit codes (i, o); i is a multiple of 16 and at least 32."""
    x, codes = jax.lax.optimization_barrier((x, codes))
    rows = _rows(codes.shape[1], x.shape[1] // 2)  # at least two sums
    sums = _sums_of_rows(x, codes, rows, lambda part: part)
    start, count = jnp.zeros((len(x), 1, codes.shape[1]), x.dtype), sums.shape[1]
    most = _OUTPUTS * _BLOCK // (codes.shape[1] * rows)
    return _looped(lambda number: _cut(sums, number, 1)[:, 0], count, most, start)[:, 0]


def byte_row_product(x: jax.Array, codes: jax.Array) -> jax.Array:
    """Computes x (b, i) times the transpose of 8-bit codes (o, i); i is a multiple of 32."""
    x, codes = jax.lax.optimization_barrier((x, codes))
    # LLVM unrolls shorter loops over lanes, and then does not vectorize
    shape, terms = (-1, 2 * _LANES), []
    x, codes = x.reshape(len(x), 1, *shape), codes.reshape(1, len(codes), *shape)
    for start in range(0, x.shape[2], _FUSED):
        part = slice(start, start + _FUSED)
        products = codes[:, :, part].astype(x.dtype) * x[:, :, part]
        terms += [products[:, :, n] for n in range(products.shape[2])]
    return _sum(terms) @ np.ones(2 * _LANES, x.dtype)


def _lanes(codes: jax.Array, block: int | None) -> int:
    size = codes.shape[1]
    return math.gcd(size, (block or 2 * size) // 2, _LANES)


def fits_rows(x: jax.Array, codes: jax.Array, block: int | None) -> bool:
    """Returns whether `row_product` computes x (b, i) with codes (o, i / 2) faster than dequantization."""
    # the sum of a whole row is one computation, whose compilation takes seconds for more bytes
    fits = not (block or 0) % 2 and _lanes(codes, block) == _LANES
    return fits and len(x) <= 8 and codes.shape[1] <= 4096


def row_product(
    x: jax.Array,
    codes: jax.Array,
    scale: jax.Array,
    zero: jax.Array | None = None,
    *,
    block: int | None,
) -> jax.Array:
    """Computes x (b, i) times the transpose of codes (o, i / 2), whose bytes have the codes of two inputs.

    Args:
        scale: scales (o, groups), or (o, 1) by which codes are divided.
        zero: zero points (o, groups); None for a single group.
        block: the number of inputs of a group.
    """
    # otherwise XLA converts the zero points before a decoding loop, by an operation for each group
    x, codes, scale, zero = jax.lax.optimization_barrier((x, codes, scale, zero))
    (outputs, size), batch = codes.shape, len(x)
    x = jnp.pad(x, ((0, 0), (0, 2 * size - x.shape[1]))).reshape(
        batch, 1, size // _LANES, _LANES, 2
    )
    # sums, since XLA would read every other number where the result is used
    low, high = (jnp.sum(jnp.where(half, x, 0), axis=-1) for half in np.eye(2, dtype=bool))
    chunks, steps = codes.reshape(1, outputs, -1, _LANES), (block or 2 * size) // 2 // _LANES
    lows, totals = (_group_sums(f, steps, axis=2) for f in (low, low + high))
    y = []
    for number, start in enumerate(range(0, size // _LANES, steps)):
        terms = []
        for first in range(start, min(start + steps, size // _LANES), _FUSED // 2):
            part = slice(first, min(first + _FUSED // 2, start + steps, size // _LANES))
            bytes_ = chunks[:, :, part].astype("int32")
            for inputs, half in ((low, (bytes_ & 15) ^ 8), (high / 16, bytes_ & -16)):
                products = inputs[:, :, part] * half.astype(x.dtype)
                terms += [products[:, :, n] for n in range(products.shape[2])]
        products = _sum(terms) - 8 * lows[:, :, number]
        if zero is not None:
            point, factor = (f[None, :, number, None].astype(x.dtype) for f in (zero, scale))
            products = (products - totals[:, :, number] * point) * factor
        y.append(products)
    y = functools.reduce(operator.add, y) @ np.ones(_LANES, x.dtype)
    return y / scale.T if zero is None else y


def _sums_of_rows(
    x: jax.Array, codes: jax.Array, rows: int, convert: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Returns the products (b, i / rows, halves, o) of x (b, i) and codes (i, o), each of some rows of codes.

    Args:
        convert: converts codes (1, i / rows, n, 1, o) to integers (1, i / rows, n, halves, o).
    """
    codes, inputs = (
        codes.reshape(1, -1, rows, 1, codes.shape[1]),
        x.reshape(len(x), -1, rows, 1, 1),
    )
    terms = []
    for start in range(0, rows, _FUSED):
        part = slice(start, start + _FUSED)
        products = convert(codes[:, :, part]).astype(x.dtype) * inputs[:, :, part]
        terms += [jax.lax.slice_in_dim(products, n, n + 1, axis=2) for n in range(_FUSED)]
    return _sum(terms)[:, :, 0]


def _cut(array: jax.Array, start: jax.Array, axis: int) -> jax.Array:
    return jax.lax.dynamic_slice_in_dim(array, start, 1, axis)


def _looped(
    term: Callable[[jax.Array], jax.Array], count: int, most: int, start: jax.Array
) -> jax.Array:
    """Returns `start` plus the terms 0 to `count - 1`; a step of a loop adds at most `most` terms.

    XLA computes the arrays that the loop reads once, before the loop. Without a loop each term would compute them.
    """
    most = next(n for n in range(max(1, min(count // 2, most)), 0, -1) if count % n == 0)

    def step(index: jax.Array, y: jax.Array) -> jax.Array:
        # unsigned: XLA then compares no index with 0
        numbers = (index.astype("uint32") * np.uint32(most) + np.uint32(n) for n in range(most))
        return functools.reduce(operator.add, map(term, numbers), y)

    return jax.lax.fori_loop(0, count // most, step, start)


def _added(terms: jax.Array) -> jax.Array:
    """Returns the sums (o,) of at least two terms (n, o), in a loop as `_looped`."""
    count, columns = terms.shape
    most = min(_TERMS, _ADDED // columns, count // 2)
    size = next(n for n in range(max(1, most), 0, -1) if count % n == 0)
    terms = terms.reshape(-1, size, columns)

    def step(index: jax.Array, y: jax.Array) -> jax.Array:
        index, zero = index.astype("uint32"), np.uint32(0)
        places = ((index, np.uint32(n), zero) for n in range(size))
        return y + _sum([jax.lax.dynamic_slice(terms, p, (1, 1, columns)) for p in places])[0, 0]

    return jax.lax.fori_loop(0, count // size, step, jnp.zeros(columns, terms.dtype))


def _group_sums(x: jax.Array, size: int, axis: int) -> jax.Array:
    """Returns the sums of groups of `size` entries along an axis."""
    widths = [(0, -x.shape[axis] % size if n == axis else 0) for n in range(x.ndim)]
    shape = (*x.shape[:axis], -1, size, *x.shape[axis + 1 :])
    return jnp.sum(jnp.pad(x, widths).reshape(shape), axis=axis + 1)


def _sum(terms: Sequence[jax.Array]) -> jax.Array:
    """Adds the terms in four independent sums, which the processor computes at the same time."""
    sums = [functools.reduce(operator.add, terms[n::4]) for n in range(min(4, len(terms)))]
    return functools.reduce(operator.add, sums)
