"""Rows of the tables of operations and layers with edge values as arguments, and their gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

# each value fills an array: zeros, ties and constants, large, huge, denormal and tiny numbers
VALUES = np.array(
    [0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 6.0, 20.0, 1e4, -1e4, 1e30, -1e30, 1e-40, 1e-30, -1e-30],
    "float32",
)


def is_float(array):
    return jnp.issubdtype(array.dtype, jnp.inexact)


def fillings(groups):
    """Fills one group of arrays, or all, with each edge value; other groups stay unchanged or are 0.

    Args:
        groups: lists of floating arrays; arrays of a group are filled together.

    Returns:
        A description of each filling, and the groups with a leading axis of fillings.
    """
    count, positions = len(groups), range(len(groups))
    kinds = [("all", set(positions), 1)] if count != 1 else []
    kinds += [(f"{position} beside its own", {position}, 1) for position in positions]
    if count > 1:
        kinds += [(f"{position} beside zeros", {position}, 0) for position in positions]
    names, filled_groups = [], [[[] for _ in group] for group in groups]
    for name, filled_positions, factor in kinds:
        for value in VALUES:
            names.append(f"{value:g} in {name}")
            for position, group in enumerate(groups):
                for array, values in zip(group, filled_groups[position], strict=True):
                    array = np.asarray(array)
                    with np.errstate(over="ignore"):
                        filling = (
                            np.full_like(array, value)
                            if position in filled_positions
                            else array * factor
                        )
                    values.append(np.nan_to_num(filling) if array.dtype == np.float16 else filling)
    return names, [[np.stack(values) for values in group] for group in filled_groups]


def has_nan_slope(function, groups):
    """Whether all values of the function are finite and a gradient is NaN."""
    values, pull = jax.vjp(function, groups)
    values = [value for value in values if is_float(value)]
    ones = [jnp.ones_like(value) for value in jax.eval_shape(function, groups)]
    slopes = jax.tree.leaves(pull(ones))
    finite = [jnp.isfinite(value).all() for value in values]
    broken = [jnp.isnan(slope).any() for slope in slopes if is_float(slope)]
    all_of = functools.partial(functools.reduce, jnp.logical_and)
    any_of = functools.partial(functools.reduce, jnp.logical_or)
    return all_of(finite, jnp.array(True)) & any_of(broken, jnp.array(False))


def nan_slopes(functions):
    """Finds fillings at which a finite value has a NaN gradient, in one program for all functions.

    Args:
        functions: for each name a function of groups of arrays, which returns a list of floating
            arrays, and its groups.

    Returns:
        For each name the descriptions of these fillings.
    """
    described, filled, failures = {}, {}, {}
    functions = {name: pair for name, pair in functions.items() if any(pair[1])}
    for name, (_, groups) in functions.items():
        described[name], filled[name] = fillings(groups)

    def program(filled):
        has_nan = {}
        for name, (function, _) in functions.items():
            try:
                # no vmap: a batched convolution multiplies the kernels of other fillings by 0
                has_nan[name] = jax.lax.map(
                    functools.partial(has_nan_slope, function), filled[name]
                )
            except Exception as error:
                failures[name] = [f"{type(error).__name__}: {error}"[:200]]
        return has_nan

    has_nan = jax.device_get(jax.jit(program)(filled))
    faults = {
        name: [
            text
            for text, is_faulty in zip(described[name], has_nan[name], strict=True)
            if is_faulty
        ]
        for name in has_nan
    }
    return {name: texts for name, texts in (faults | failures).items() if texts}
