"""Recurrence: the scan over time, and the steps of SimpleRNN, LSTM, GRU and ConvLSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fkeras.nn.convolution import convolve
from fkeras.nn.numerics.axes import align, channel_axis

Step = Callable[[Any, Any], tuple[Any, ...]]


def keep_steps(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Selects `new` for the samples where `mask` (b,) is True, `old` for the others."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - 1)), new, old)


def scan_sequence(
    step: Step,
    x: jax.Array,
    initial: Any,
    mask: jax.Array | None = None,
    *,
    go_backwards: bool = False,
    unroll: bool = False,
    zero_output_for_mask: bool = False,
    return_sequences: bool = True,
    output_of: Callable[[Any], jax.Array] | None = None,
    prepare: Callable[[jax.Array], Any] = lambda xs: xs,
) -> tuple[Any, ...]:
    """Scans `step` over the time axis of `x`, with the states as carry.

    A masked step leaves the states unchanged and repeats the previous output. Before the first
    output this is `output_of(initial)`, or zeros (with `unroll` always zeros, as in Keras).

    Args:
        step: `(x_t, states) -> (output, new_states, *records)`.
        x: array of shape (b, t, ...).
        initial: the states before the first step, a pytree of arrays with leading axis b.
        mask: array of shape (b, t), False for steps to skip.
        go_backwards: whether to start at the last step; outputs are in the order of computation.
        unroll: whether to unroll the loop; needs a static number of steps.
        zero_output_for_mask: whether the output is 0 at masked steps, and the last output is 0
            if the last step is masked. Has no effect with `unroll`, as in Keras.
        return_sequences: whether to return the outputs of all steps or only the last output.
        prepare: computes the inputs of the steps from `x` with the time as the first axis.

    Returns:
        `(output, states, *records)`: all outputs (b, t, ...) or the last output (b, ...); the final states;
        the records of all steps, with the time as the first axis.
    """
    zeros = zero_output_for_mask and mask is not None and not unroll
    if unroll and mask is not None:
        output_of = None  # Keras's unrolled loop starts from an output of zeros
    carries_output = output_of is None and (
        not return_sequences or (mask is not None and not zeros)
    )
    xs = prepare(jnp.swapaxes(x, 0, 1))
    masks = None if mask is None else jnp.swapaxes(mask.astype(bool), 0, 1)
    previous = None
    # without `output_of` the carry must contain the last output, for masked steps or as result
    if carries_output:
        shape = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), xs)
        output = jax.eval_shape(lambda x_t: step(x_t, initial)[0], shape)
        previous = jnp.zeros(output.shape, output.dtype)

    def body(carry: Any, inputs: Any) -> Any:
        (states, previous), (x_t, keep) = carry, inputs
        output, new, *records = step(x_t, states)
        # a scan requires a carry of constant dtype; mixed precision may compute in another dtype
        new = jax.tree.map(lambda n, s: n.astype(s.dtype), new, states)
        emitted = output
        if keep is not None:
            if zeros and return_sequences:
                emitted = keep_steps(keep, output, jnp.zeros_like(output))
            elif return_sequences or carries_output:
                emitted = keep_steps(keep, output, output_of(states) if output_of else previous)
            new = jax.tree.map(lambda n, s: keep_steps(keep, n, s), new, states)
        carry = new, emitted if carries_output else None
        return carry, (emitted if return_sequences else None, records)

    (states, last), (outputs, records) = lax.scan(
        body, (initial, previous), (xs, masks), reverse=go_backwards, unroll=True if unroll else 1
    )
    if not return_sequences:
        # without `output_of` the loop carries the output
        last: Any = last if output_of is None else output_of(states)
        if zeros and masks is not None:
            # a slice instead of an index: a sequence may have no steps
            last_mask = jnp.any(masks[:1] if go_backwards else masks[-1:], axis=0)
            last = keep_steps(last_mask, last, jnp.zeros_like(last))
        return last, states, *records
    if go_backwards:
        outputs = jnp.flip(outputs, axis=0)
    return jnp.swapaxes(outputs, 0, 1), states, *records


def draw_mask(key: jax.Array, rate: float, shape: tuple, dtype: Any) -> jax.Array:
    """Draws a dropout mask: 0 with probability `rate`, otherwise `1 / (1 - rate)`.

    Example:
        >>> import jax
        >>> mask = draw_mask(jax.random.key(0), 0.5, (4, 4), "float32")
        >>> sorted(set(mask.ravel().tolist()))
        [0.0, 2.0]
    """
    # 1 / (1 - rate) would be infinite
    if rate >= 1:
        return jnp.zeros(shape, dtype)
    keep = jax.random.bernoulli(key, 1 - rate, shape)
    return keep.astype(dtype) / (1 - rate)


def masked_matmul(x: jax.Array, kernel: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Computes `(x * mask) @ kernel`; a mask (gates, b, d) has a separate mask for each gate.

    Args:
        x: array of shape (b, d), or (t, b, d) for all steps.
        kernel: array of shape (d, gates * u).
        mask: None, or an array of shape (b, d) or (gates, b, d).
    """
    if mask is None:
        return x @ kernel
    # a separate dropout mask for each gate needs a separate product for each gate
    masks = mask.reshape(-1, *(1,) * (x.ndim - 2), *mask.shape[-2:])
    parts = jnp.split(kernel, masks.shape[0], axis=-1)
    parts = [(x * m) @ k for m, k in zip(masks, parts, strict=True)]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


def input_product(
    x: jax.Array,
    kernel: jax.Array | None,
    bias: jax.Array | None,
    input_mask: jax.Array | None,
) -> jax.Array:
    """Computes `(x * input_mask) @ kernel + bias`; returns `x` without a kernel.

    Args:
        x: array of shape (b, d), or (t, b, d) for all steps.
        Other arguments: those of `lstm_step`.
    """
    if kernel is None:
        return x
    x = masked_matmul(x, kernel, input_mask)
    return x if bias is None else x + align(bias, x.ndim)


def simple_rnn_step(
    x: jax.Array,
    states: Any,
    *,
    kernel: jax.Array | None,
    recurrent_kernel: jax.Array,
    bias: jax.Array | None,
    activation: Callable,
    input_mask: jax.Array | None = None,
    recurrent_mask: jax.Array | None = None,
    record: bool = False,
) -> tuple[Any, ...]:
    """Computes `h = activation(x @ kernel + h @ recurrent_kernel + bias)`.

    Args:
        states: `[h]`, with h (b, u).
        kernel: array (d, u), or None if `x` is the product (b, u) with the bias.
        recurrent_kernel: array (u, u).
        bias: array (u,) or None.
        input_mask: dropout mask for `x`, or None.
        recurrent_mask: dropout mask for `h`, or None.
        Other arguments: those of `lstm_step`.

    Returns:
        `(h, [h])`, and the record.
    """
    x = input_product(x, kernel, bias, input_mask)
    h = activation(x + masked_matmul(states[0], recurrent_kernel, recurrent_mask))
    return (h, [h], states)[: 2 + record]


def lstm_step(
    x: jax.Array,
    states: Any,
    *,
    kernel: jax.Array | None,
    recurrent_kernel: jax.Array,
    bias: jax.Array | None,
    activation: Callable,
    recurrent_activation: Callable,
    input_mask: jax.Array | None = None,
    recurrent_mask: jax.Array | None = None,
    record: bool = False,
) -> tuple[Any, ...]:
    """Computes `c = f * c + i * activation(g)` and `h = o * activation(c)`.

    The gates i, f, g, o are the quarters of `x @ kernel + h @ recurrent_kernel + bias`; all gates
    except g pass through `recurrent_activation`.

    Args:
        x: input of the step (b, d).
        states: `[h, c]`, both (b, u).
        kernel: array (d, 4u), or None if `x` is the product (b, 4u) with the bias.
        recurrent_kernel: array (u, 4u).
        bias: array (4u,) or None.
        input_mask: dropout masks for `x`, (b, d) or (4, b, d), or None.
        recurrent_mask: dropout masks for `h`, or None.
        record: whether to return the arrays that the tangent of `recurrent_kernel` reads, too.

    Returns:
        `(h, [h, c])`, and the record.
    """
    h, c = states
    # the order of Keras's sum: results in 16 bits are equal
    z = input_product(x, kernel, None, input_mask)
    z = z + masked_matmul(h, recurrent_kernel, recurrent_mask)
    z = z if kernel is None or bias is None else z + align(bias, z.ndim)
    i, f, g, o = jnp.split(z, 4, axis=-1)
    c = recurrent_activation(f) * c + recurrent_activation(i) * activation(g)
    old, h = h, recurrent_activation(o) * activation(c)
    return (h, [h, c], [old])[: 2 + record]


def gru_step(
    x: jax.Array,
    states: Any,
    *,
    kernel: jax.Array | None,
    recurrent_kernel: jax.Array,
    bias: jax.Array | None,
    recurrent_bias: jax.Array | None = None,
    activation: Callable,
    recurrent_activation: Callable,
    reset_after: bool = True,
    input_mask: jax.Array | None = None,
    recurrent_mask: jax.Array | None = None,
    record: bool = False,
) -> tuple[Any, ...]:
    """Computes `h = z * h + (1 - z) * activation(g)` with an update gate z and a reset gate r.

    z, r and g are the thirds of the sum of `x @ kernel` and `h @ recurrent_kernel`. The reset gate
    multiplies g's recurrent part after the product (`reset_after`), or h before the product.

    Args:
        states: `[h]`, with h (b, u).
        kernel: array (d, 3u), or None if `x` is the product (b, 3u) with the bias.
        recurrent_kernel: array (u, 3u).
        bias: array (3u,) or None.
        recurrent_bias: array (3u,), which `reset_after` adds to `h @ recurrent_kernel`, or None.
        reset_after: whether to apply the reset gate after the product with `recurrent_kernel`.
        input_mask: dropout masks for `x`, (b, d) or (3, b, d), or None.
        recurrent_mask: dropout masks for `h`, (3, b, u), or None.
        Other arguments: those of `lstm_step`.

    Returns:
        `(h, [h])`, and the record.
    """
    h = states[0]
    u = h.shape[-1]
    x = input_product(x, kernel, bias, input_mask)
    x_z, x_r, x_g = jnp.split(x, 3, axis=-1)
    if reset_after:
        inner = masked_matmul(h, recurrent_kernel, recurrent_mask)
        if recurrent_bias is not None:
            inner = inner + align(recurrent_bias, inner.ndim)
        h_z, h_r, h_g = jnp.split(inner, 3, axis=-1)
        r = recurrent_activation(x_r + h_r)
        h_g = r * h_g
    else:
        # the third mask is for the candidate g, whose product follows the reset gate
        gate_mask = None if recurrent_mask is None else recurrent_mask[:2]
        inner = masked_matmul(h, recurrent_kernel[:, : 2 * u], gate_mask)
        h_z, h_r = jnp.split(inner, 2, axis=-1)
        r = recurrent_activation(x_r + h_r)
        dropped_h = h if recurrent_mask is None else h * recurrent_mask[2]
        h_g = (r * dropped_h) @ recurrent_kernel[:, 2 * u :]
    z = recurrent_activation(x_z + h_z)
    old, h = h, z * h + (1 - z) * activation(x_g + h_g)
    return (h, [h], [old, r])[: 2 + record]


def conv_lstm_step(
    x: jax.Array,
    states: Any,
    *,
    kernel: jax.Array,
    recurrent_kernel: jax.Array,
    bias: jax.Array | None,
    activation: Callable,
    recurrent_activation: Callable,
    strides: Sequence[int],
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Sequence[int] | None = None,
    input_mask: jax.Array | None = None,
    recurrent_mask: jax.Array | None = None,
) -> tuple[jax.Array, list[jax.Array]]:
    """Computes `c = f * c + i * activation(g)` and `h = o * activation(c)`.

    The gates i, f, g, o are the quarters of the channels of `convolve(x, kernel) +
    convolve(h, recurrent_kernel) + bias`; all gates except g pass through `recurrent_activation`.
    The convolution of `h` has padding "same", strides 1 and dilation 1, so states keep their size.

    Args:
        x: input of the step (b, *sizes, c), or (b, c, *sizes) with "channels_first".
        states: `[h, c]`, both of the shape of the output of `convolve` with f filters.
        kernel: array (*kernel_size, c, 4f).
        recurrent_kernel: array (*kernel_size, f, 4f).
        bias: array (4f,) or None.
        strides: step of the kernel over `x` along each axis.
        padding: padding of `x`, "valid" or "same".
        data_format: "channels_last" or "channels_first".
        dilation_rate: distance between the cells of `x` that the kernel reads, along each axis.
        input_mask: dropout masks for `x`, those of the four gates concatenated along the channels
            (b, *sizes, 4c), or None.
        recurrent_mask: the corresponding masks for `h`, or None.
        Other arguments: those of `lstm_step`.

    Returns:
        `(h, [h, c])`.
    """
    axis = channel_axis(data_format)
    h, c = states
    x, h = _masked(x, input_mask, axis), _masked(h, recurrent_mask, axis)
    ones = (1,) * (x.ndim - 2)
    z = convolve(x, kernel, strides, padding, data_format, dilation_rate)
    z = z + convolve(h, recurrent_kernel, ones, "same", data_format)
    if bias is not None:
        z = z + align(bias, z.ndim, axis)
    i, f, g, o = jnp.split(z, 4, axis=axis)
    c = recurrent_activation(f) * c + recurrent_activation(i) * activation(g)
    h = recurrent_activation(o) * activation(c)
    return h, [h, c]


def _masked(x: jax.Array, mask: jax.Array | None, axis: int) -> jax.Array:
    # four masked copies along the channels: `convolve` then treats the gates as four groups
    return x if mask is None else jnp.concatenate([x] * 4, axis=axis) * mask
