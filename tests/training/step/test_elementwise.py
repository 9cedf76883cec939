"""Elementwise optimizers: which updates of stacked weights equal the updates of single weights."""

import jax
import jax.numpy as jnp
import optax
import pytest

import fkeras as fk
from fkeras import optimizers
from fkeras.engine.network.stacking import Stacking
from fkeras.training.step.elementwise import updates_stacks
from fkeras.transforms import roll

BLOCKS = 3


def _by_path(transform, is_selected):
    """A transformation for the weights whose paths are selected; it keeps no state."""
    return optax.masked(transform, lambda weights: {path: is_selected(path) for path in weights})


def _decay_matrices(weights):
    return jax.tree.map(lambda weight: weight.ndim > 1, weights)


class MatrixSGD(optimizers.Optimizer):
    """Decides by the number of axes."""

    def step(self, gradient, weight, slots, rate, count):
        return (-rate * gradient if gradient.ndim > 1 else 0 * gradient), slots


class Centered(optimizers.Optimizer):
    """Subtracts the mean of the gradient."""

    def step(self, gradient, weight, slots, rate, count):
        return -rate * (gradient - gradient.mean()), slots


ELEMENTWISE = {
    "sgd": optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": "adam",
    "adamw": optimizers.AdamW(0.1, exclude_from_weight_decay=["bias"]),
    "nadam": "nadam",
    "adamax": "adamax",
    "adagrad": "adagrad",
    "adadelta": "adadelta",
    "rmsprop": optimizers.RMSprop(centered=True, momentum=0.5),
    "ftrl": "ftrl",
    "lion": "lion",
    "clipvalue": optimizers.Adam(clipvalue=0.5),
    "global norm": optimizers.Adam(global_clipnorm=1.0),
    "average": optimizers.Adam(use_ema=True, ema_overwrite_frequency=3),
    "accumulation": optimizers.SGD(gradient_accumulation_steps=2),
    "schedule": optimizers.SGD(optimizers.schedules.CosineDecay(0.1, 100)),
    "optax": optax.adamw(1e-3),
    "optax chain": optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)),
    ),
    "optax by name": optax.chain(
        _by_path(optax.add_decayed_weights(0.1), lambda path: path.endswith("kernel")),
        optax.sgd(0.1),
    ),
}
NOT_ELEMENTWISE = {
    "lamb": "lamb",
    "muon": "muon",
    "adafactor": "adafactor",
    "clipnorm": optimizers.Adam(clipnorm=1.0),
    "decay without one block": optimizers.AdamW(exclude_from_weight_decay=["dense_2/kernel"]),
    "number of axes": MatrixSGD(0.1),
    "mean": Centered(0.1),
    "optax number of axes": optax.adamw(1e-3, mask=_decay_matrices),
    "optax first block": optax.chain(
        _by_path(optax.scale(0.1), lambda path: path.startswith("dense/")), optax.sgd(0.1)
    ),
    "optax last block": optax.chain(
        _by_path(optax.scale(0.1), lambda path: path.startswith("dense_2")), optax.sgd(0.1)
    ),
    "optax norm of each": optax.lars(0.1),
    "labels of all weights": optax.partition(
        {"a": optax.sgd(0.1)},
        {
            f"dense{end}/{name}": "a"
            for end in ("", "_1", "_2", "_3")
            for name in ("kernel", "bias")
        },
    ),
    "noise": optax.chain(optax.add_noise(0.1, 0.5, 0), optax.sgd(0.1)),
}


def decide(optimizer, units=4):
    hidden = [fk.layers.Dense(units) for _ in range(BLOCKS)]
    model = fk.Sequential([fk.Input((4,)), *hidden, fk.layers.Dense(2)])
    stacking = Stacking(roll(model.build(jax.random.key(0))))
    spec = jax.ShapeDtypeStruct
    weights = {
        "dense_1/kernel": spec((BLOCKS, 4, 4), jnp.float32),
        "dense_1/bias": spec((BLOCKS, 4), jnp.float32),
        "dense_3/kernel": spec((4, 2), jnp.float32),
        "dense_3/bias": spec((2,), jnp.float32),
    }
    with jax.numpy_dtype_promotion("standard"):  # optax needs promotion
        return updates_stacks(optimizer, stacking, weights)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_optimizers_update_stacks(name):
    assert decide(ELEMENTWISE[name])


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", NOT_ELEMENTWISE)
def test_other_optimizers_update_single_weights(name):
    assert not decide(NOT_ELEMENTWISE[name])
