"""Four architectures on eight devices, each with one dictionary: the numbers of one device.

The collectives of the compiled program are those of a program whose weights are laid out by hand.
"""

import collections
import functools
import re

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import layers
from fkeras.training.step import step

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
KEY = jax.random.key(0)
RNG = np.random.default_rng(5)
IDS = RNG.integers(1, 32, (16, 6)).astype("int32")
LABELS = RNG.integers(0, 8, 16).astype("int32")
PIXELS = RNG.normal(size=(16, 8, 8, 3)).astype("float32")
IMAGES = RNG.normal(size=(16, 32, 32, 3)).astype("float32")
WORDS = {"batch": "data", "heads": "model", "hidden": "model", "vocab": "model"}
FILTERS = {"batch": "data", "hidden": "model"}


def encoder_block(x, causal):
    h = layers.LayerNormalization()(x)
    h = layers.MultiHeadAttention(8, 2, name="attention")(h, h, use_causal_mask=causal)
    x = layers.Add()([x, h])
    h = layers.Dense(64, "gelu", name="up")(layers.LayerNormalization()(x))
    return layers.Add()([x, layers.Dense(16, name="down")(h)])


def transformer():
    ids = fk.Input((6,), dtype="int32")
    x = encoder_block(layers.Embedding(32, 16, name="words")(ids), causal=True)
    return fk.Model(ids, layers.Dense(32, name="logits")(x))


def bert():
    ids = fk.Input((6,), dtype="int32")
    x = layers.Embedding(32, 16, mask_zero=True, name="words")(ids)
    x = layers.Add()([x, layers.Embedding(6, 16, name="positions")(np.arange(6)[None] + 0 * ids)])
    x = layers.GlobalAveragePooling1D()(encoder_block(layers.LayerNormalization()(x), causal=False))
    return fk.Model(ids, layers.Dense(8, name="logits")(layers.Dense(16, "tanh", name="pool")(x)))


def unet():
    image = fk.Input((8, 8, 3))
    outer = layers.Conv2D(8, 3, padding="same", activation="relu", name="outer")(image)
    inner = layers.Conv2D(16, 3, 2, "same", activation="relu", name="inner")(outer)
    inner = layers.BatchNormalization(momentum=0.5)(inner)
    up = layers.Conv2DTranspose(8, 2, 2, name="up")(inner)
    both = layers.Concatenate()([outer, up])
    both = layers.Conv2D(8, 3, padding="same", activation="relu", name="both")(both)
    return fk.Model(image, layers.Conv2D(1, 1, name="mask")(both))


def resnet50():
    model = fk.applications.ResNet50(weights=None, input_shape=(32, 32, 3), classes=8)
    # Gradients through statistics of 16 rows amplify rounding errors 10^5 times, also on one device
    # with the rows in another order. Frozen normalizations use moving statistics.
    return fk.freeze(model.build(KEY), "*bn")


CROSS_ENTROPY = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
# positions have 6 ids, which 8 devices cannot share: a pattern is the fifth entry
MODELS = {
    "transformer": (transformer, IDS, IDS, CROSS_ENTROPY, WORDS),
    "bert": (bert, IDS, LABELS, CROSS_ENTROPY, {**WORDS, "positions/*": P()}),
    "unet": (unet, PIXELS, PIXELS[..., :1], "mse", FILTERS),
    "resnet50": (resnet50, IMAGES, LABELS, "sparse_categorical_crossentropy", FILTERS),
}
LAYOUTS = {
    "data": ((8, 1), lambda rules: {"batch": "data"}),
    "tensor": ((1, 8), lambda rules: rules),
    "combined": ((4, 2), lambda rules: rules),
    "fsdp": ((8, 1), lambda rules: "fsdp"),
    "fsdp and tensor": ((4, 2), lambda rules: rules | {"fsdp": "data"}),
}
QUICK = {("transformer", "combined"), ("bert", "fsdp"), ("unet", "tensor")}
PAIRS = [
    pytest.param(*(model, layout), marks=() if (model, layout) in QUICK else pytest.mark.exhaustive)
    for model in MODELS
    for layout in LAYOUTS
]


def trainer_of(name, **options):
    optimizer = fk.optimizers.SGD(1e-2, momentum=0.9, use_ema=True, ema_momentum=0.5)
    return fk.Trainer(optimizer, MODELS[name][3], **options)


@functools.cache
def alone(name):
    """Returns the model, and run and loss after a step on one device."""
    make, x, y, *_ = MODELS[name]
    model, trainer = make(), trainer_of(name)
    model = model if model.built else model.build(KEY)
    start_and_step = jax.jit(lambda model: trainer.step(trainer.init(model, KEY), (x, y)))
    run, logs = start_and_step(model)
    return model, run, float(logs["loss"])


def close(tree, expected):
    for one, other in zip(jax.tree.leaves(tree), jax.tree.leaves(expected), strict=True):
        scale = max(np.abs(np.asarray(other)).max(), 1e-2)
        np.testing.assert_allclose(np.asarray(one) / scale, np.asarray(other) / scale, atol=1e-5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "layout"), PAIRS)
def test_eight_devices_compute_the_numbers_of_one(name, layout):
    # seconds: the only default training whose numbers are those of several devices
    model, expected, loss = alone(name)
    sizes, choose = LAYOUTS[layout]
    _, x, y, _, rules = MODELS[name]
    assert len(rules) <= 5
    trainer = trainer_of(name, mesh=jax.make_mesh(sizes, ("data", "model")), sharding=choose(rules))
    run, logs = trainer.step(trainer.init(model, KEY), (x, y))
    assert float(logs["loss"]) == pytest.approx(loss, rel=1e-5)
    close(run.state, expected.state)
    close(run.model, expected.model)
    close(run.opt_state, expected.opt_state)
    # moments and averages have the layout of their weights
    specs = specs_of(run)
    for slots in run.opt_state.slots.values():
        for path, slot in slots.items():
            assert slot.sharding.spec == specs[path]
    whole = sum(a.nbytes for a in jax.tree.leaves(expected.model))
    part = sum(a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(run.model))
    assert part < {"data": 1.01, "combined": 0.75}.get(layout, 0.5) * whole


def specs_of(run):
    keyed, _ = jax.tree_util.tree_flatten_with_path(run.model)
    return {path[-1].key: array.sharding.spec for path, array in keyed}


def collectives(trainer, run, batch):
    """Returns how often the compiled step has each collective operation."""
    program = step.compiled_step.by_default.lower(
        trainer, run, step.as_arrays(trainer, run.model, batch)
    ).compile()
    kinds = "all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute"
    return collections.Counter(
        re.findall(rf"= .*? ({kinds})(?:-start)?\(", program.as_text() or "")
    )


BY_HAND = {
    "transformer": {
        "words/*": P("model"),
        "attention/output_dense/kernel": P("model"),
        "attention/*_dense/kernel": P(None, "model"),
        "attention/output_dense/bias": P(),
        "attention/*_dense/bias": P("model"),
        "up/kernel": P(None, "model"),
        "up/bias": P("model"),
        "down/kernel": P("model"),
        "logits/kernel": P(None, "model"),
        "logits/bias": P("model"),
    },
    "unet": {
        "outer/kernel": P(None, None, None, "model"),
        "inner/kernel": P(None, None, None, "model"),
        "inner/bias": P("model"),
        "outer/bias": P("model"),
        "up/kernel": P(None, None, None, "model"),
        "both/kernel": P(None, None, "model"),
        "mask/kernel": P(None, None, "model"),
    },
}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["transformer", pytest.param("unet", marks=pytest.mark.exhaustive)]
)
def test_collectives_are_those_of_weights_laid_out_by_hand(name):
    model = alone(name)[0]
    _, x, y, _, rules = MODELS[name]
    mesh = jax.make_mesh((2, 4), ("data", "model"))
    counts = []
    for sharding in (rules, BY_HAND[name]):
        trainer = trainer_of(name, mesh=mesh, sharding=sharding)
        run = trainer.init(model, KEY)
        counts.append((specs_of(run), collectives(trainer, run, (x, y))))
    (by_role, ours), (by_hand, theirs) = counts
    assert by_role == by_hand
    # constraints on the outputs of the convolutions save XLA some of its moves
    assert ours == theirs if name == "transformer" else ours.total() <= theirs.total()
