"""The tokens of `fk.generate`: ids and mask of the prompt, and the number of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.generation.caches import lengths_of
from fkeras.generation.decoding import Prompt, packed
from fkeras.generation.reading import Reader
from fkeras.generation.requests import WHERE, integers, is_traced
from fkeras.generation.samplers.rules import Sampler

# new tokens of a call inside `jax.jit`
MOST_IN_JIT = 1 << 20


def prompt_of(ids: Any, lengths: Any, mask: Any = None) -> Prompt:
    """Returns the prompt, padded on the right to a power of two to limit the number of compilations."""
    array, counts = ids, None
    if not isinstance(ids, jax.Array | np.ndarray):
        array, counts = _padded_rows(ids)
    is_integer = jnp.issubdtype(array.dtype, jnp.integer)
    if array.ndim != 2 or not is_integer or array.size == 0:
        remedy = "Pass a list of lists of ids, or an array with lengths= or mask=."
        if array.ndim == 1 and is_integer:
            remedy = "Add the axis of the rows: ids[None]."
        elif jnp.issubdtype(array.dtype, np.str_):
            remedy = "Encode the text: ids = [tokenizer.encode(text)]."
        raise ValueError(
            f"{WHERE}: expected ids as integers of shape (b, t), received {array.dtype} of shape "
            f"{array.shape}. {remedy}"
        )
    batch, width = array.shape
    size = max(8, 1 << (width - 1).bit_length())
    if mask is None:
        lengths = counts if lengths is None else lengths
        lengths = np.full(batch, width) if lengths is None else lengths
        lengths = integers(lengths, "lengths", (batch,), 1, width)
    # NumPy outside of jit: the dispatch of single JAX operations costs as much time as several tokens
    xp: Any = jnp if is_traced((array, lengths, mask)) else np
    if mask is not None:
        valid = _mask_of(mask, lengths, counts, array.shape, xp)
        array, valid = packed(xp.asarray(array), valid)
        valid = xp.pad(valid, ((0, 0), (0, size - width)))
    else:
        lengths = xp.asarray(lengths)
        if counts is None and xp is np:
            _check_side(np.asarray(array), lengths)
        valid = xp.arange(size)[None] < lengths[:, None]
    padded = xp.pad(xp.asarray(array), ((0, 0), (0, size - width)))
    return Prompt(xp.where(valid, padded, 0), valid, {})


def _mask_of(mask: Any, lengths: Any, counts: Any, shape: tuple[int, ...], xp: Any) -> Any:
    """Returns the mask of the prompt as booleans (b, t)."""
    if lengths is not None:
        raise ValueError(
            f"{WHERE}: expected mask or lengths, received both. The mask is True at the tokens of each row."
        )
    try:
        valid = xp.asarray(mask)
    except ValueError:  # rows of different lengths
        valid = np.empty(len(mask), object)
    is_flag = valid.dtype == bool or jnp.issubdtype(valid.dtype, jnp.integer)
    if valid.shape != shape or not is_flag or (counts and len(set(counts)) > 1):
        raise ValueError(
            f"{WHERE}: expected mask as booleans of shape {shape}, one for each id of an array, received "
            f"{valid.dtype} of shape {valid.shape}. Rows of different lengths need no mask."
        )
    if not isinstance(valid, Tracer):
        if not np.isin(valid, (0, 1)).all():
            raise ValueError(f"{WHERE}: expected 0 and 1 in mask, received other numbers.")
        if not np.asarray(valid).any(axis=1).all():
            row = int(np.argmin(np.asarray(valid).any(axis=1)))
            raise ValueError(
                f"{WHERE}: expected at least one token in each row, received a mask without True in row "
                f"{row}. Start the row with the BOS token of the model, or leave the row out."
            )
    return valid.astype(bool)


def _check_side(ids: np.ndarray, lengths: np.ndarray) -> None:
    """Raises ValueError for a row whose padding is on the left although `lengths` counts from the left."""
    for row, (line, length) in enumerate(zip(ids, lengths, strict=True)):
        first, rest = line[: len(line) - length], line[length:]
        if len(rest) > 1 and (first == first[0]).all() and (rest != rest[0]).any():
            raise ValueError(
                f"{WHERE}: expected padding behind the first {length} ids of row {row}, received "
                f"{rest.tolist()} there, and {len(first)} times the id {first[0]} at the start. If the "
                f"rows are padded on the left, pass mask=ids != {first[0]} instead of lengths."
            )


def _padded_rows(ids: Any) -> tuple[Any, list[int] | None]:
    """Returns the rows of lists as an array, and their lengths; None for other values."""
    rows = [*ids] if isinstance(ids, list | tuple) else []
    xp: Any = jnp if is_traced(rows) else np
    try:
        arrays = [xp.asarray(row) for row in rows]
    except ValueError:
        # a row of numbers and lists
        arrays = []
    if not arrays or any(row.ndim != 1 for row in arrays):
        is_even = not rows or len({row.shape for row in arrays}) == 1
        return xp.asarray(ids) if is_even else np.empty(len(rows), object), None
    counts = [len(row) for row in arrays]
    if 0 in counts:
        raise ValueError(
            f"{WHERE}: expected at least one token in each row, received no token in row "
            f"{counts.index(0)}. Start the row with the BOS token of the model, or leave the row out."
        )
    if xp is jnp and all(jnp.issubdtype(row.dtype, jnp.integer) for row in arrays):
        # jnp.stack promotes no dtypes if `jax_numpy_dtype_promotion` is strict
        arrays = [row.astype("int32") for row in arrays]
    width = max(counts)
    return xp.stack([xp.pad(row, (0, width - len(row))) for row in arrays]), counts


def starts_of(reader: Reader, state: Any, prompt: Prompt) -> Any:
    """Returns the number of tokens (b,) of each row before the first new token."""
    held = lengths_of(state or {}) if reader.form.cached else None
    counts = prompt.valid.sum(axis=1)
    counts = counts if held is None or held.shape != counts.shape else counts + held
    return counts.astype("int32")


def known_prompt(reader: Reader, samplers: Sequence[Sampler], prompt: Prompt) -> tuple[Any, Any]:
    """Returns ids and mask of the prompt, without tokens if decoding needs none.

    The programs then do not depend on the length of the prompt.
    """
    reads = any(part.reads_ids for sampler in samplers for part in sampler.parts)
    size = None if reads or reader.form.boundaries else 0
    return prompt.ids[:, :size], prompt.valid[:, :size]


def check_traced(new: int) -> None:
    """Raises ValueError for more new tokens than a compiled program has room for."""
    if new > MOST_IN_JIT:
        raise ValueError(
            f"{WHERE}: expected at most {MOST_IN_JIT} for max_new_tokens inside jax.jit, where one program "
            f"has room for all tokens from the start, received {new}. Call generate outside of the "
            "compiled program, where the caches grow."
        )
