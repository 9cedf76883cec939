"""Layers written by hand, in `jax.numpy` and in flax.linen, and networks of them.

XLA compiles the operations of a program, whoever composed them: the calls of a model's graph, each
computed by a function of this file, are the network written by hand. A function takes the layer (of
which only options are read), the weights by name, the state, the library and the inputs, and returns
the output, with the new state if there is any.
"""

import functools

import jax
import jax.numpy as jnp

import fkeras as fk
from fkeras import layers
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.values import structure

try:
    from flax import linen
except ImportError:  # the rows then compare with jax.numpy alone
    linen = None

LIBRARIES = ("jax.numpy",) if linen is None else ("jax.numpy", "flax.linen")
NHWC = ("NHWC", "HWIO", "NHWC")
ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": jax.nn.relu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
    "softmax": jax.nn.softmax,
}


def activated(layer, w, state, library, x):
    return ACTIVATIONS[getattr(layer.activation, "__name__", "linear")](x)


def biased(layer, w, y):
    y = y + w["bias"].astype(y.dtype) if "bias" in w else y
    return activated(layer, w, None, None, y)


def dense(layer, w, state, library, x):
    return biased(layer, w, x @ w["kernel"].astype(x.dtype))


def conv(layer, w, state, library, x):
    kernel, groups = w["kernel"].astype(x.dtype), 1
    if isinstance(layer, layers.DepthwiseConv2D):
        kernel, groups = kernel.reshape(*kernel.shape[:2], 1, -1), x.shape[-1]
    y = jax.lax.conv_general_dilated(
        x,
        kernel,
        layer.strides,
        layer.padding.upper(),
        dimension_numbers=NHWC,
        feature_group_count=groups,
    )
    return biased(layer, w, y)


def conv_transpose(layer, w, state, library, x):
    kernel, padding = w["kernel"].astype(x.dtype), layer.padding.upper()
    y = jax.lax.conv_transpose(x, kernel, layer.strides, padding, transpose_kernel=True)
    return biased(layer, w, y)


def max_pool(layer, w, state, library, x):
    sizes = ((1, *layer.pool_size, 1), (1, *layer.strides, 1))
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, *sizes, layer.padding.upper())


def normalized(axes, x, gamma, beta, epsilon):
    """Returns `(normalized, mean, variance)`; statistics in float32."""
    wide = x.astype("float32")
    mean = wide.mean(axes, keepdims=True)
    variance = jnp.square(wide - mean).mean(axes, keepdims=True)
    y = (wide - mean) * (jax.lax.rsqrt(variance + epsilon) * gamma) + beta
    return y.astype(x.dtype), mean, variance


def by_linen(norm, w, x, **variables):
    params = {"scale": w["gamma"], "bias": w["beta"]}
    return norm.apply({"params": params, **variables}, x, mutable=["batch_stats"])


def batch_norm(layer, w, state, library, x):
    if library == "flax.linen":
        norm = linen.BatchNorm(False, momentum=layer.momentum, epsilon=layer.epsilon, dtype=x.dtype)
        old = {"mean": state["moving_mean"], "var": state["moving_variance"]}
        y, new = by_linen(norm, w, x, batch_stats=old)
        new = new["batch_stats"]
        return y, {"moving_mean": new["mean"], "moving_variance": new["var"]}
    axes = tuple(range(x.ndim - 1))
    y, mean, variance = normalized(axes, x, w["gamma"], w["beta"], layer.epsilon)
    new, momentum = {"moving_mean": mean, "moving_variance": variance}, layer.momentum
    return y, {n: momentum * state[n] + (1 - momentum) * new[n].ravel() for n in new}


def layer_norm(layer, w, state, library, x):
    if library == "flax.linen":
        return by_linen(linen.LayerNorm(epsilon=layer.epsilon, dtype=x.dtype), w, x)[0]
    return normalized(-1, x, w["gamma"], w["beta"], layer.epsilon)[0]


def group_norm(layer, w, state, library, x):
    groups = layer.groups
    if library == "flax.linen":
        return by_linen(linen.GroupNorm(groups, epsilon=layer.epsilon, dtype=x.dtype), w, x)[0]
    inner = x.reshape(*x.shape[:-1], groups, -1)
    gamma, beta = (w[name].reshape(groups, -1) for name in ("gamma", "beta"))
    axes = (*range(1, x.ndim - 1), x.ndim)
    return normalized(axes, inner, gamma, beta, layer.epsilon)[0].reshape(x.shape)


def attention(layer, w, state, library, x, value):
    def part(name, equation, x):
        kernel, bias = (w[f"{name}_dense/{leaf}"].astype(x.dtype) for leaf in ("kernel", "bias"))
        return jnp.einsum(equation, x, kernel) + bias

    inputs = {"query": x, "key": value, "value": value}
    heads = [part(name, "btd,dhk->bthk", x) for name, x in inputs.items()]
    attend = linen.dot_product_attention if library == "flax.linen" else None
    y = (attend or jax.nn.dot_product_attention)(*heads)
    return part("output", "bthk,hkd->btd", y)


def lstm(gates, inner, h, c):
    i, f, g, o = jnp.split(gates + inner, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def gru(gates, inner, h):
    xz, xr, xh = jnp.split(gates, 3, axis=-1)
    hz, hr, hh = jnp.split(inner, 3, axis=-1)
    z = jax.nn.sigmoid(xz + hz)
    return (z * h + (1 - z) * jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh),)


def recurrent(layer, w, state, library, x, mask=None):
    """A scan over time; jax.numpy: of the inputs' products, flax.linen: of the inputs."""
    kernel, inner_kernel, bias = (w[n] for n in ("kernel", "recurrent_kernel", "bias"))
    convolutional, cell = isinstance(layer, layers.ConvLSTM2D), lstm
    first, second = bias, 0.0
    if isinstance(layer, layers.GRU):
        (first, second), cell = bias, gru

    def product(x, kernel):
        if not convolutional:
            return x @ kernel
        images = x.reshape(-1, *x.shape[-3:])
        y = jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=NHWC)
        return y.reshape(*x.shape[:-1], -1)

    before = library == "jax.numpy"
    units = kernel.shape[-1] // (3 if cell is gru else 4)
    zeros = jnp.zeros((x.shape[0], *x.shape[2:-1], units))
    x = jnp.swapaxes(x, 0, 1)
    x = product(x, kernel) + first if before else x

    def body(carry, step):
        x, keep = step
        x = x if before else product(x, kernel) + first
        new = cell(x, product(carry[0], inner_kernel) + second, *carry)
        if keep is not None:
            new = tuple(jnp.where(keep[:, None], n, o) for n, o in zip(new, carry, strict=True))
        return new, None

    carry = (zeros,) if cell is gru else (zeros, zeros)
    return jax.lax.scan(body, carry, (x, None if mask is None else mask.T))[0][0]


FUNCTIONS = {
    layers.Dense: dense,
    layers.Conv2D: conv,
    layers.DepthwiseConv2D: conv,
    layers.Conv2DTranspose: conv_transpose,
    layers.MaxPooling2D: max_pool,
    layers.BatchNormalization: batch_norm,
    layers.LayerNormalization: layer_norm,
    layers.GroupNormalization: group_norm,
    layers.MultiHeadAttention: attention,
    layers.LSTM: recurrent,
    layers.GRU: recurrent,
    layers.ConvLSTM2D: recurrent,
    layers.Activation: activated,
    layers.Embedding: lambda layer, w, s, library, x: w["embeddings"][x].astype(dtype_of(layer)),
    layers.Add: lambda layer, w, s, library, x: functools.reduce(jnp.add, x),
    layers.Concatenate: lambda layer, w, s, library, x: jnp.concatenate(x, -1),
    layers.GlobalAveragePooling1D: lambda layer, w, s, library, x: x.mean(1),
    layers.GlobalAveragePooling2D: lambda layer, w, s, library, x: x.mean((1, 2)),
    layers.GlobalMaxPooling2D: lambda layer, w, s, library, x: x.max((1, 2)),
    layers.ReLU: lambda layer, w, s, library, x: jnp.clip(x, 0, layer.max_value),
    layers.Softmax: lambda layer, w, s, library, x: jax.nn.softmax(x),
    layers.ZeroPadding2D: lambda layer, w, s, library, x: jnp.pad(
        x, ((0, 0), *layer.padding, (0, 0))
    ),
}


def dtype_of(layer):
    return layer.policy.compute_dtype


def forward(layer, w, state, library, *inputs, **options):
    """Returns `(output, new state)` of a layer or a model.

    Args:
        layer: the layer or model, of which only graph and options are read.
        w: weights by path.
        state: the state, by layer for a model.
        library: one of `LIBRARIES`.
        options: the mask of a recurrent layer.
    """
    if not isinstance(layer, fk.Model):

        def cast(x):
            return x.astype(dtype_of(layer)) if jnp.issubdtype(x.dtype, jnp.floating) else x

        inputs = jax.tree.map(cast, inputs)
        y = FUNCTIONS[type(layer)](layer, w, state, library, *inputs, **options)
        return y if isinstance(y, tuple) else (y, {})
    slots, updates = new_slots(layer.graph, jax.tree.leaves(inputs)), {}

    def compute(number, call):
        name = call.layer
        own = {p.removeprefix(f"{name}/"): a for p, a in w.items() if p.startswith(f"{name}/")}
        args = structure.fill(call.args, slots)
        y, new = forward(layer.layers[name], own, state.get(name), library, *args)
        updates.update({name: new} if new else {})
        return y

    return run_calls(layer.graph, slots, compute), updates
