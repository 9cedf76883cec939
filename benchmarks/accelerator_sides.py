"""Sides of the rows of `accelerators.py`, and what networks by hand consist of, in two libraries."""

import dataclasses
import functools
import types
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

import fkeras as fk

try:
    from flax import linen
except ImportError:  # the rows then compare with jax.numpy alone
    linen = None

LOGITS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
KEY = 0


@dataclasses.dataclass(frozen=True)
class Side:
    """One program.

    Attributes:
        function: the function to compile.
        arguments: makes the arguments; traced for shapes alone.
        donate: the arguments that the function may overwrite.
        carries: whether the result is `(new first argument, loss)`.
        laid_out: whether `arguments` returns shapes with layouts, on several devices.
        seen: what the check compares of the result of a function that does not carry.
    """

    function: Callable
    arguments: Callable[[], tuple]
    donate: tuple = ()
    carries: bool = False
    laid_out: bool = False
    seen: Callable = lambda result: result


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        ours: the program with fkeras.
        by_hand: the programs by hand, by library.
        tolerance: of the check, relative to the largest value.
        trips: the number of steps of loops whose number the program does not state.
    """

    ours: Side
    by_hand: dict[str, Side]
    tolerance: float = 1e-4
    trips: int = 1


def normal(shape, dtype="float32", seed=1):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def integers(shape, limit, seed=2):
    return jax.random.randint(jax.random.key(seed), shape, 0, limit)


def mask_of(rows, time):
    return jnp.arange(time) < jax.random.randint(jax.random.key(3), (rows, 1), time // 2, time + 1)


# what a network by hand consists of, in two libraries; `w` has the weights by path


def dense(w, name, x):
    y = x @ w[f"{name}/kernel"].astype(x.dtype)
    return y + w[f"{name}/bias"].astype(x.dtype) if f"{name}/bias" in w else y


def conv(w, name, x, strides=1):
    kernel = w[f"{name}/kernel"].astype(x.dtype)
    y = jax.lax.conv_general_dilated(
        x, kernel, (strides, strides), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return y + w[f"{name}/bias"].astype(x.dtype) if f"{name}/bias" in w else y


def plain_norm(axes, x, gamma, beta, epsilon):
    """Returns `(normalized, mean, variance)`; statistics in float32."""
    wide = x.astype("float32")
    mean = wide.mean(axes, keepdims=True)
    variance = jnp.square(wide - mean).mean(axes, keepdims=True)
    y = (wide - mean) * (jax.lax.rsqrt(variance + epsilon) * gamma) + beta
    return y.astype(x.dtype), mean, variance


def plain_batch(w, name, x, state):
    axes = tuple(range(x.ndim - 1))
    y, mean, variance = plain_norm(axes, x, w[f"{name}/gamma"], w[f"{name}/beta"], 1e-3)
    old = state[name]
    new = {"moving_mean": mean.ravel(), "moving_variance": variance.ravel()}
    return y, {name: {key: 0.99 * old[key] + 0.01 * new[key] for key in new}}


def plain_layer(w, name, x):
    return plain_norm(-1, x, w[f"{name}/gamma"], w[f"{name}/beta"], 1e-3)[0]


def plain_group(w, name, x, groups):
    inner = x.reshape(*x.shape[:-1], groups, -1)
    gamma, beta = (w[f"{name}/{n}"].reshape(groups, -1) for n in ("gamma", "beta"))
    axes = (*range(1, x.ndim - 1), x.ndim)
    return plain_norm(axes, inner, gamma, beta, 1e-3)[0].reshape(x.shape)


def flax_params(w, name):
    return {"params": {"scale": w[f"{name}/gamma"], "bias": w[f"{name}/beta"]}}


def flax_batch(w, name, x, state):
    old = state[name]
    norm = linen.BatchNorm(False, momentum=0.99, epsilon=1e-3, dtype=x.dtype)
    statistics = {"mean": old["moving_mean"], "var": old["moving_variance"]}
    variables = flax_params(w, name) | {"batch_stats": statistics}
    y, new = norm.apply(variables, x, mutable=["batch_stats"])
    new = new["batch_stats"]
    return y, {name: {"moving_mean": new["mean"], "moving_variance": new["var"]}}


def flax_layer(w, name, x):
    return linen.LayerNorm(epsilon=1e-3, dtype=x.dtype).apply(flax_params(w, name), x)


def flax_group(w, name, x, groups):
    return linen.GroupNorm(groups, epsilon=1e-3, dtype=x.dtype).apply(flax_params(w, name), x)


LIBRARIES = {
    "jax.numpy": types.SimpleNamespace(
        batch=plain_batch,
        layer=plain_layer,
        group=plain_group,
        attention=jax.nn.dot_product_attention,
    )
}
if linen is not None:
    LIBRARIES["flax.linen"] = types.SimpleNamespace(
        batch=flax_batch,
        layer=flax_layer,
        group=flax_group,
        attention=linen.dot_product_attention,
    )


def sides(forward, make):
    """Returns the sides by hand: `make` of `forward`, which takes the library first."""
    return {name: make(functools.partial(forward, library)) for name, library in LIBRARIES.items()}


def attend(library, w, name, x):
    """Multi-head attention of x to itself."""
    heads = (
        jnp.einsum("btd,dhk->bthk", x, w[f"{name}/{part}_dense/kernel"].astype(x.dtype))
        + w[f"{name}/{part}_dense/bias"].astype(x.dtype)
        for part in ("query", "key", "value")
    )
    y = library.attention(*heads)
    y = jnp.einsum("bthk,hkd->btd", y, w[f"{name}/output_dense/kernel"].astype(x.dtype))
    return y + w[f"{name}/output_dense/bias"].astype(x.dtype)


# training steps: `(carry, x, y) -> (carry, loss)`


def cross_entropy(logits, y):
    logits = logits.astype("float32")
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def optimizer_for(small):
    # the loss after one step of SGD shows the gradient itself, that of Adam its sign
    return optax.sgd(0.1) if small else optax.adam(1e-3)


def started(model, optimizer):
    built = model.build(jax.random.key(KEY))
    return built, built.init_state(), optimizer.init(built)


def started_by_hand(model, optimizer):
    built, state, _ = started(model, optimizer)
    weights = dict(fk.engine.trainable_weights(built))
    return weights, dict(state), optimizer.init(weights)


def stepping(optimizer, forward):
    """Returns the step of a forward `(weights, state, x) -> (logits, updates)`."""

    def one(carry, x, y):
        weights, state, opt_state = carry

        def loss_fn(weights):
            logits, updates = forward(weights, state, x)
            return cross_entropy(logits, y), updates

        (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(weights)
        deltas, opt_state = optimizer.update(grads, opt_state, weights)
        return (optax.apply_updates(weights, deltas), state | updates, opt_state), loss

    return one


def by_path(grads):
    """The gradients in the order of their paths, of a model or a dictionary."""
    named = grads if isinstance(grads, dict) else fk.engine.trainable_weights(grads)
    return [named[path] for path in sorted(named)]


def our_forward(model, state, x):
    out = model.apply(x, state=state, training=True)
    return out.value, out.updates


def training(model, forward, data, small, tolerance=1e-4):
    """A custom training step: the model is an argument of `jax.jit`."""
    optimizer = optimizer_for(small)

    def side(forward, start):
        function = stepping(optimizer, forward)
        return Side(function, lambda: (start(model, optimizer), *data()), (0,), True)

    by_hand = sides(forward, lambda f: side(f, started_by_hand))
    return Row(side(our_forward, started), by_hand, tolerance)


def with_trainer(model, forward, data, small, tolerance=1e-4):
    """`trainer.step` under `jax.jit`, beside the step by hand."""
    optimizer = optimizer_for(small)
    trainer = fk.Trainer(optimizer, LOGITS)

    def ours(run, x, y):
        run, logs = trainer.step(run, (x, y))
        return run, logs["loss"]

    def arguments():
        return (trainer.init(model, jax.random.key(KEY)), *data())

    by_hand = training(model, forward, data, small).by_hand
    # the key of `init` is split, so the weights are those of the run
    return Row(Side(ours, arguments, (0,), True), started_with(trainer, model, by_hand), tolerance)


def started_with(trainer, model, by_hand):
    """Returns sides by hand that begin with the weights of `trainer.init`."""

    def again(side):
        def arguments():
            run = trainer.init(model, jax.random.key(KEY))
            weights = dict(fk.engine.trainable_weights(run.model))
            (_, _, _), *data = side.arguments()
            return ((weights, dict(run.state), trainer.optimizer.init(weights)), *data)

        return dataclasses.replace(side, arguments=arguments)

    return {name: again(side) for name, side in by_hand.items()}


# layers: the score and its gradients


def layer_row(layer, forward, shape, tolerance=1e-4, dtype="float32", copies=1, **options):
    """A layer forward and backward; `forward` is `(library, weights by path, state, x) -> (y, updates)`."""

    def built():
        return layer.build(jax.random.key(KEY), *[normal(shape, dtype)] * copies)

    def arguments_of(weights_of):
        def arguments():
            made = built()
            x = normal(shape, dtype)
            state = made.init_state(*[x] * copies)
            y = made.apply(*[x] * copies, state=state, training=True, **options).value
            return weights_of(made), x, state, normal(y.shape, "float32", 5)

        return arguments

    def score(function):
        def scored(weights, x, state, factors):
            y, updates = function(weights, state, x)
            # the output is a result: XLA would fuse some layers with the score
            return (y.astype("float32") * factors).sum(), (updates, y)

        return jax.value_and_grad(scored, argnums=(0, 1), has_aux=True)

    def ours(made, state, x):
        out = made.apply(*[x] * copies, state=state, training=True, **options)
        return out.value, out.updates

    def seen(result):
        (value, _), (grads, x) = result
        return [value, x, *by_path(grads)]

    def paths(made):
        return {f"layer/{path}": leaf for path, leaf in fk.engine.trainable_weights(made).items()}

    def hand(f):
        # the state of one layer has no name of a layer
        def function(w, state, x):
            y, updates = f(w, {"layer": state}, x)
            return y, updates.get("layer", updates)

        return Side(score(function), arguments_of(paths), seen=seen)

    ours_side = Side(score(ours), arguments_of(lambda made: made), seen=seen)
    return Row(ours_side, sides(forward, hand), tolerance)
