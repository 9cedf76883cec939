"""The rows of `accelerators.py`: programs with fkeras and the same programs written by hand.

A row computes one function from one set of weights. `small` makes the sizes of the check on the CPU,
which compares values: of layers the score and all gradients, of training the loss after two steps of SGD,
of `fk.generate` the tokens.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from accelerator_networks import (
    convnet_of,
    llama,
    llama_step,
    mlp_of,
    transformer_of,
    unet_of,
    words_of,
)
from accelerator_sides import (
    KEY,
    LOGITS,
    Row,
    Side,
    attend,
    by_path,
    cross_entropy,
    dense,
    integers,
    layer_row,
    mask_of,
    normal,
    optimizer_for,
    our_forward,
    sides,
    stepping,
    training,
    with_trainer,
)
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import layers
from fkeras.training.step import blocks, sharding, step

# rows that are neither a network's step nor a layer


def softmax_loss(small):
    """A model that ends in a softmax, under a cross-entropy of probabilities."""
    rows, width, classes = (8, 16, 10) if small else (4096, 256, 1000)
    x = fk.Input((width,))
    model = fk.Model(x, layers.Dense(classes, "softmax", name="head")(x))
    loss = fk.losses.SparseCategoricalCrossentropy()

    def data():
        return (normal((rows, width)), integers((rows,), classes))

    def ours(model, x, y):
        return loss(y, model(x))

    def by_hand(library, w, x, y):
        return cross_entropy(dense(w, "head", x), y)

    def seen(result):
        return [result[0], *by_path(result[1])]

    def side(function, weights_of):
        def arguments():
            return (weights_of(model.build(jax.random.key(KEY))), *data())

        return Side(jax.value_and_grad(function), arguments, seen=seen)

    def hand(function):
        return side(function, lambda made: dict(fk.engine.trainable_weights(made)))

    return Row(side(ours, lambda made: made), sides(by_hand, hand))


def activation(layer, function, shape):
    return layer_row(layer, lambda library, w, state, x: (function(x), {}), shape)


def norm_row(kind, small, layer, shape, **options):
    def forward(library, w, state, x):
        if kind == "batch":
            return library.batch(w, "layer", x, state)
        return getattr(library, kind)(w, "layer", x, **options), {}

    return layer_row(layer, forward, shape)


def attention_row(small, policy="float32"):
    shape, heads = ((2, 8, 16), 2) if small else ((4, 512, 512), 8)
    dtype = "float32" if policy == "float32" else "bfloat16"

    def forward(library, w, state, x):
        return attend(library, w, "layer", x), {}

    layer = layers.MultiHeadAttention(heads, shape[-1] // heads, dtype=policy)
    return layer_row(layer, forward, shape, 1e-4 if dtype == "float32" else 5e-2, dtype, 2)


def recurrent(kind, small):
    rows, time, width, units = (2, 6, 4, 4) if small else (32, 128, 256, 256)
    mask = mask_of(rows, time)

    def lstm(gates, h, c):
        i, f, g, o = jnp.split(gates, 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def gru(gates, inner, h):
        xz, xr, xh = jnp.split(gates, 3, axis=1)
        hz, hr, hh = jnp.split(inner, 3, axis=1)
        z = jax.nn.sigmoid(xz + hz)
        return z * h + (1 - z) * jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh)

    def forward(hoisted, w, state, x):
        kernel, recurrent, bias = (w[f"layer/{n}"] for n in ("kernel", "recurrent_kernel", "bias"))
        first, second = bias if kind == "gru" else (bias, 0.0)

        def project(x):
            return x @ kernel + first

        x, zeros = jnp.swapaxes(x, 0, 1), jnp.zeros((rows, units))
        x = project(x) if hoisted else x

        def body(carry, step):
            x, keep = step
            x, keep = x if hoisted else project(x), keep[:, None]
            inner = carry[0] @ recurrent + second
            new = (gru(x, inner, *carry),) if kind == "gru" else lstm(x + inner, *carry)
            return tuple(jnp.where(keep, n, o) for n, o in zip(new, carry, strict=True)), None

        start = (zeros,) if kind == "gru" else (zeros, zeros)
        return jax.lax.scan(body, start, (x, mask.T))[0][0], {}

    layer = (layers.GRU if kind == "gru" else layers.LSTM)(units)
    made = layer_row(layer, lambda library, *a: forward(True, *a), (rows, time, width), mask=mask)
    other = layer_row(layer, lambda library, *a: forward(False, *a), (rows, time, width), mask=mask)
    by_hand = {
        "lax.scan, inputs first": made.by_hand["jax.numpy"],
        "lax.scan": other.by_hand["jax.numpy"],
    }
    return dataclasses.replace(made, by_hand=by_hand)


def fit_loop(model, forward, data, small, tolerance=1e-4, batches=8):
    """The compiled call of `fit`: a number of batches, gathered from arrays on the device."""
    optimizer = optimizer_for(small)
    trainer = fk.Trainer(optimizer, LOGITS)
    form = step.training_form(trainer)
    run = jax.eval_shape(lambda: trainer.init(model, jax.random.key(KEY)))
    structure = blocks.flat(form, run).structure

    def rows():
        x, y = data()
        size = x.shape[0]
        order = jax.random.permutation(jax.random.key(6), batches * size)
        x, y = (jnp.concatenate([a] * batches) for a in (x, y))
        return x, y, order

    def ours(leaves, x, y, order, count):
        size = x.shape[0] // batches
        places, total = jnp.arange(size), jnp.int32(batches * size)
        rows = ((x, y), order, places, jnp.int32(0), total)
        leaves, logs, _ = step.compiled_train(form, structure, "loop", leaves, rows, count)
        return leaves, logs["loss"]

    def arguments():
        run = trainer.init(model, jax.random.key(KEY))
        return (blocks.flat(form, run).leaves, *rows(), jnp.int32(batches))

    def one(library):
        return stepping(optimizer, functools.partial(forward, library))

    def scanned(library, carry, x, y, order, count):
        def body(carry, index):
            return one(library)(carry, x[index], y[index])

        carry, losses = jax.lax.scan(body, carry, order.reshape(batches, -1))
        return carry, losses.mean()

    def arguments_by_hand():
        run = trainer.init(model, jax.random.key(KEY))
        weights = dict(fk.engine.trainable_weights(run.model))
        return ((weights, dict(run.state), optimizer.init(weights)), *rows(), jnp.int32(batches))

    def seen(result):
        return [result[1]]

    by_hand = sides(scanned, lambda f: Side(f, arguments_by_hand, seen=seen))
    return Row(Side(ours, arguments, seen=seen), by_hand, tolerance, batches)


def generating(small, new):
    """`fk.generate` under `jax.jit`: the prefill, and `new` tokens."""
    rows, width = (2, 4) if small else (4, 64)
    config, model = llama(small)

    def ours(model, ids):
        return fk.generate(model, None, ids, max_new_tokens=new).tokens

    def by_hand(w, ids):
        heads, size = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        shape = (rows, width + new, heads, size)
        blank = jnp.zeros(shape, w["norm/scale"].dtype)
        caches = [(blank, blank)] * config.num_hidden_layers
        scores, caches = llama_step(config, w, ids, caches, 0)

        def body(count, carry):
            scores, caches, tokens = carry
            token = jnp.argmax(scores, axis=-1).astype("int32")
            tokens = tokens.at[:, count].set(token)
            scores, caches = llama_step(config, w, token[:, None], caches, width + count)
            return scores, caches, tokens

        carry = scores, caches, jnp.zeros((rows, new), "int32")
        scores, _, tokens = jax.lax.fori_loop(0, new - 1, body, carry)
        return tokens.at[:, -1].set(jnp.argmax(scores, axis=-1).astype("int32"))

    def arguments(weights_of):
        def built():
            return model.build(jax.random.key(KEY))

        return lambda: (weights_of(built()), integers((rows, width), config.vocab_size))

    def weights(made):
        return dict(fk.engine.trainable_weights(made))

    hand = {"jax.numpy": Side(by_hand, arguments(weights))}
    return Row(Side(ours, arguments(lambda made: made)), hand, trips=new - 1)


def lora(small, rank=8):
    """A step that trains adapters of the kernels "up" and "down" of the transformer."""
    model, forward, data, _, tolerance = transformer_of(small)
    optimizer = optimizer_for(small)
    pattern = ["up*", "down*"]

    def adapted():
        keys = jax.random.split(jax.random.key(KEY))
        built = model.build(keys[0])
        changed = fk.transforms.adapt(built, pattern, fk.transforms.LoRA(rank=rank), keys[1])
        return built, changed

    def ours(carry, x, y):
        trained, frozen, opt_state = carry

        def loss_fn(trained):
            return cross_entropy(our_forward(fk.combine(trained, frozen), {}, x)[0], y)

        loss, grads = jax.value_and_grad(loss_fn)(trained)
        deltas, opt_state = optimizer.update(grads, opt_state, trained)
        return (optax.apply_updates(trained, deltas), frozen, opt_state), loss

    def arguments():
        trained, frozen = fk.partition(adapted()[1])
        return ((trained, frozen, optimizer.init(trained)), *data())

    def forward_by_hand(library, adapters, w, x):
        changed = dict(w)
        names = [f"{kind}{i}" for i in range(2) for kind in ("up", "down")]
        for name in names:
            changed[f"{name}/kernel"] = _Low(
                w[f"{name}/kernel"],
                *(adapters[f"{name}/adapters/layer/{part}"] for part in ("a", "b")),
            )
        return forward(library, changed, {}, x)[0]

    def by_hand(library, carry, x, y):
        adapters, w, opt_state = carry

        def function(adapters):
            return cross_entropy(forward_by_hand(library, adapters, w, x), y)

        loss, grads = jax.value_and_grad(function)(adapters)
        deltas, opt_state = optimizer.update(grads, opt_state, adapters)
        return (optax.apply_updates(adapters, deltas), w, opt_state), loss

    def arguments_by_hand():
        built, changed = adapted()
        trained = dict(fk.engine.trainable_weights(changed))
        w = dict(fk.engine.trainable_weights(built))
        return ((trained, w, optimizer.init(trained)), *data())

    hand = sides(by_hand, lambda f: Side(f, arguments_by_hand, (0,), True))
    return Row(Side(ours, arguments, (0,), True), hand, tolerance)


class _Low:
    """A kernel and its adapter of low rank: x @ kernel + x @ a @ b."""

    def __init__(self, *arrays):
        self.arrays = arrays

    def astype(self, dtype):
        return _Low(*(a.astype(dtype) for a in self.arrays))

    def __rmatmul__(self, x):
        kernel, a, b = self.arrays
        return x @ kernel + x @ a @ b


def on_mesh(small, devices):
    """`trainer.step` on a mesh of 8: rows and the largest axis of each weight over the devices."""
    model, forward, data, _, tolerance = transformer_of(small, rows=8)
    made = with_trainer(model, forward, data, small, tolerance)
    if devices is None:
        return made
    mesh = jax.sharding.Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))
    optimizer = optimizer_for(small)
    trainer = fk.Trainer(optimizer, LOGITS, mesh=mesh, sharding={"batch": "data", "fsdp": "data"})

    def ours(run, x, y):
        run, logs = step.train_logs(trainer, run, (x, y, None))
        return run, logs["loss"]

    def split(leaf):
        """The layout by hand: the largest axis that 8 divides."""
        sizes = [n if n % len(devices) == 0 else 0 for n in leaf.shape]
        axis = sizes.index(max(sizes)) if max(sizes, default=0) else None
        return NamedSharding(mesh, P(*("data" if i == axis else None for i in range(leaf.ndim))))

    def laid_out(specs, layouts):
        def put(s, layout):
            return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=layout)

        return jax.tree.map(put, specs, layouts)

    def rows(specs):
        return laid_out(specs, jax.tree.map(lambda _: NamedSharding(mesh, P("data")), specs))

    def our_arguments():
        run, *batch = jax.eval_shape(made.ours.arguments)
        return (laid_out(run, sharding.layouts(trainer, run)), *rows(batch))

    def hand_arguments(side):
        carry, *batch = jax.eval_shape(side.arguments)
        return (laid_out(carry, jax.tree.map(split, carry)), *rows(batch))

    def keep(function):
        # the results have the layouts of the arguments
        def kept(carry, x, y):
            new, loss = function(carry, x, y)

            def fixed(a):
                return jax.lax.with_sharding_constraint(a, split(a))

            return jax.tree.map(fixed, new), loss

        return kept

    ours_side = Side(ours, our_arguments, (0,), True, True)
    by_hand = {
        name: Side(keep(side.function), functools.partial(hand_arguments, side), (0,), True, True)
        for name, side in made.by_hand.items()
    }
    return Row(ours_side, by_hand, tolerance)


def image(small, channels=128):
    return (2, 4, 4, 16) if small else (64, 32, 32, channels)


# `(small) -> Row`; the last row takes the devices of a slice of 8 as well
ROWS: dict[str, Callable[..., Any]] = {
    "MLP": lambda s: training(*mlp_of(s)),
    "ConvNet": lambda s: training(*convnet_of(s)),
    "ConvNet, mixed_bfloat16": lambda s: training(*convnet_of(s, "mixed_bfloat16")),
    "transformer": lambda s: training(*transformer_of(s)),
    "transformer, mixed_bfloat16": lambda s: training(*transformer_of(s, "mixed_bfloat16")),
    "BatchNormalization": lambda s: norm_row("batch", s, layers.BatchNormalization(), image(s)),
    "LayerNormalization": lambda s: norm_row(
        "layer", s, layers.LayerNormalization(), (2, 4, 16) if s else (8, 512, 512)
    ),
    "GroupNormalization": lambda s: norm_row(
        "group", s, layers.GroupNormalization(8), image(s), groups=8
    ),
    "GlobalMaxPooling2D": lambda s: activation(
        layers.GlobalMaxPooling2D(), lambda x: x.max((1, 2)), image(s)
    ),
    "Softmax": lambda s: activation(
        layers.Softmax(), jax.nn.softmax, (2, 3, 8) if s else (32, 512, 512)
    ),
    "softmax, cross-entropy": softmax_loss,
    "MultiHeadAttention": attention_row,
    "MultiHeadAttention, mixed_bfloat16": lambda s: attention_row(s, "mixed_bfloat16"),
    "LSTM, mask": lambda s: recurrent("lstm", s),
    "GRU, mask": lambda s: recurrent("gru", s),
    "U-Net": lambda s: training(*unet_of(s)),
    "Embedding, 100,000 rows": lambda s: training(*words_of(s)),
    "trainer.step, MLP": lambda s: with_trainer(*mlp_of(s)),
    "trainer.step, transformer": lambda s: with_trainer(*transformer_of(s)),
    "fit, MLP": lambda s: fit_loop(*mlp_of(s)),
    "fit, ConvNet": lambda s: fit_loop(*convnet_of(s)),
    "generate, prefill": lambda s: generating(s, 1),
    "generate, 32 tokens": lambda s: generating(s, 4 if s else 32),
    "LoRA": lora,
    "mesh of 8, fsdp": lambda s, devices=None: on_mesh(s, devices),
}
