"""Repeated blocks: which blocks are found, and that one loop computes what single calls compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.graph.repeats import Repeat
from fkeras.transforms.depth import roll, unroll, with_depth

KEY = jax.random.key(0)


def encoder(x, mask=None):
    """A block with masks, state, randomness and losses."""
    attention = layers.MultiHeadAttention(2, 4, dropout=0.1)(layers.LayerNormalization()(x), x)
    x = layers.BatchNormalization()(x + layers.Dropout(0.2)(attention))
    inner = layers.Dense(8, "gelu", kernel_regularizer="l2")(x)
    return x + layers.Dense(6, activity_regularizer="l2")(inner)


def chain(count=4):
    x = y = fk.Input((5, 6))
    for _ in range(count):
        y = encoder(y)
    return fk.Model(x, layers.Dense(2)(y))


def masked():
    x = fk.Input((5,), dtype="int32")
    y = layers.Embedding(9, 6, mask_zero=True)(x)
    for _ in range(3):
        y = encoder(y)
    return fk.Model(x, layers.GlobalAveragePooling1D()(y))


def shared_input():
    """Each block reads the encoder's output; the first block also begins with it."""
    x = fk.Input((5, 6))
    memory = y = layers.Dense(6)(x)
    for _ in range(4):
        y = y + layers.MultiHeadAttention(1, 3)(y, memory)
    return fk.Model(x, y)


def skips():
    """The outputs of the blocks on the way down are read in reverse order on the way up."""
    x = y = fk.Input((6,))
    outputs = []
    for _ in range(4):
        y = layers.Dense(6, "tanh")(y)
        outputs.append(y)
    for skip in reversed(outputs):
        y = layers.Dense(6, "relu")(layers.Concatenate()([y, skip]))
    return fk.Model(x, y)


def periods():
    """Every third block is another one."""
    x = y = fk.Input((6,))
    for number in range(9):
        y = y + layers.Dense(6, "tanh" if number % 3 == 2 else "relu")(y)
    return fk.Model(x, y)


def nested():
    x = y = fk.Input((6,))
    for _ in range(3):
        inner = fk.Sequential(
            [fk.Input((6,)), layers.Dense(8, "relu"), layers.Dropout(0.5), layers.Dense(6)]
        )
        y = y + inner(y)
    return fk.Model(x, y)


def called_repeatedly():
    block, norm = layers.Dense(6, "tanh"), layers.Dropout(0.5)
    x = y = fk.Input((6,))
    for _ in range(5):
        y = norm(block(y))
    return fk.Model(x, y)


def two_carries():
    x = a = b = fk.Input((6,))
    for _ in range(4):
        a, b = layers.Dense(6, "tanh")(b), a + b
    return fk.Model(x, [a, b])


MODELS = [chain, masked, shared_input, skips, periods, nested, called_repeatedly, two_carries]


def data(model):
    spec = model.graph.specs[model.graph.input_slots[0]]
    shape = (3, *spec.shape[1:])
    if spec.dtype == "int32":
        return jnp.array(np.random.default_rng(0).integers(0, 9, shape), "int32")
    return jax.random.normal(KEY, shape)


def repeats(graph):
    found = [step for step in graph.steps if isinstance(step, Repeat)]
    return found + [s for r in found for s in r.steps if isinstance(s, Repeat)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("depth", ["scan", "share"])
@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_blocks_together_compute_what_single_calls_compute(make, depth):
    model = make().build(KEY)
    rolled, x, state = with_depth(model, depth), data(model), model.init_state()
    assert repeats(rolled.graph)

    @jax.jit
    def step(model):
        def loss(model):
            out = model.apply(x, state=state, training=True, key=jax.random.key(3))
            return sum(jnp.sum(v**2) for v in jax.tree.leaves(out.value)) + sum(out.losses), out

        return jax.value_and_grad(loss, has_aux=True)(model)

    (value, out), gradient = step(model)
    (rolled_value, rolled_out), rolled_gradient = step(rolled)
    assert jax.tree.structure(out) == jax.tree.structure(rolled_out)
    np.testing.assert_allclose(value, rolled_value, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(rolled_out), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    scale = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(gradient))
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(rolled_gradient), strict=True):
        np.testing.assert_allclose(a / scale, b / scale, atol=1e-6)


@pytest.mark.exhaustive
def test_the_program_has_one_block():
    model = chain(6).build(KEY)
    x, state = data(model), model.init_state()

    def count(model):
        program = jax.jit(lambda m: m.apply(x, state=state).value).trace(model).jaxpr
        return str(program).count("erf")  # one for each block

    # a block that is traced once is printed once
    assert count(model) == 6 * count(roll(model)) == 6 * count(with_depth(model, "share"))


@pytest.mark.exhaustive
def test_roll_keeps_names_weights_and_files(tmp_path):
    model = chain().build(KEY)
    rolled = roll(model)
    assert rolled != model and unroll(rolled) == model
    assert list(rolled.layers) == list(model.layers)
    assert jax.tree.leaves(rolled)[0] is jax.tree.leaves(model)[0]
    fk.save_model(tmp_path / "m.keras", rolled, model.init_state())
    assert fk.load_model(tmp_path / "m.keras")[0] == model


@pytest.mark.exhaustive
def test_a_frozen_layer_divides_the_blocks():
    model = fk.freeze(chain(7).build(KEY), "dense_6")
    counts = [
        len(repeat.blocks) for repeat in roll(model).graph.steps if isinstance(repeat, Repeat)
    ]
    assert counts == [3, 3]


def test_shared_state_and_different_shapes_stay_single_calls():
    norm = layers.BatchNormalization()
    x = y = fk.Input((6,))
    for _ in range(3):
        y = norm(y)
    for units in (5, 4, 3):
        y = layers.Dense(units)(y)
    assert not repeats(roll(fk.Model(x, y)).graph)


@pytest.mark.exhaustive
def test_blocks_that_halve_an_unknown_axis_are_no_loop():
    x = y = fk.Input((None, 2))
    for _ in range(12):  # after three layers the size has a name again
        y = layers.Conv1D(2, 3, strides=2, padding="same")(y)
    model = fk.Model(x, y).build(KEY)
    rolled, images = roll(model), np.ones((1, 8192, 2), "float32")
    assert repeats(rolled.graph)
    assert "scan" not in str(jax.make_jaxpr(lambda x: rolled(x))(images))
    np.testing.assert_array_equal(rolled(images), model(images))


def test_parallel_branches_and_pairs_of_calls_stay_single_calls():
    x = fk.Input((6,))
    branches = [layers.Dense(6)(x) for _ in range(5)]
    pair = layers.Dense(4, "relu")(layers.Dense(4, "relu")(layers.Dense(4)(x)))
    assert not repeats(roll(fk.Model(x, [layers.Add()(branches), pair])).graph)


def test_two_calls_of_nested_models_are_blocks():
    x = y = fk.Input((6,))
    for _ in range(2):
        y = fk.Sequential([fk.Input((6,)), layers.Dense(6), layers.Dense(6)])(y)
    (repeat,) = repeats(roll(fk.Model(x, y)).graph)
    assert len(repeat.blocks) == 2
