"""A user's program, which type checkers must accept: the public contract, with exact types.

`test_typing.py` checks the file with pyright and mypy in a folder of its own, at default settings,
and runs it once. `assert_type` states the type that both checkers infer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

import fkeras as fk
from fkeras import layers

# -- networks ----------------------------------------------------------------------------------

inputs = fk.Input((8, 8, 1), name="image")
assert_type(inputs, fk.KerasTensor)
x = layers.Conv2D(4, 3, strides=(2, 2), activation="relu", padding="same")(inputs)
assert_type(x, fk.KerasTensor)
x = layers.BatchNormalization(momentum=0.9)(x)
x = layers.Activation("gelu")(x)
x = layers.MaxPooling2D()(x)
x = layers.Dropout(0.2, seed=1)(x)
features = layers.GlobalAveragePooling2D(name="features")(x)
h = layers.Dense(
    np.int64(8),
    activation=layers.LeakyReLU(0.1),
    kernel_initializer=fk.initializers.HeNormal(seed=1),
    kernel_regularizer="l2",
    bias_constraint=fk.constraints.NonNeg(),
    dtype="mixed_bfloat16",
)(features)
assert_type(h + 1, fk.KerasTensor)
assert_type(2 * h, fk.KerasTensor)
print(np.ones(8, "float32") + h)  # NumPy declares the result of its operators, as Any
assert_type(-h @ jnp.ones((8, 8)), fk.KerasTensor)
assert_type(h[:, 0], fk.KerasTensor)
assert_type(h > 0, fk.KerasTensor)
assert_type(fk.ops.mean(h), fk.KerasTensor)
assert_type(fk.ops.mean(h, axis=1, keepdims=True), fk.KerasTensor)
assert_type(fk.ops.add(1.0, h), fk.KerasTensor)
assert_type(fk.ops.where(h > 0, h, 0.0), fk.KerasTensor)
assert_type(fk.ops.concatenate([h, h], axis=-1), fk.KerasTensor)
assert_type(fk.ops.mean(jnp.ones((2, 3)), axis=1), jax.Array)
assert_type(fk.ops.relu([1.0, -1.0]), jax.Array)
assert_type(fk.ops.lift(jnp.cumsum)(h, axis=1), fk.KerasTensor)


class Table:
    """Converts to an array, as tensors of other libraries do."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.ones((2, 3), "float32")


for numbers in (2.0, np.float32(2), [1, 2], [[1.0], [2.0]], (np.ones(2), np.ones(2)), Table()):
    print(fk.ops.mean(numbers), fk.ops.exp(numbers))
assert_type(fk.ops.mean(np.ones((2, 3))), jax.Array)
assert_type(fk.ops.mean([[1, 2], [3, 4]], axis=[0, 1]), jax.Array)
assert_type(fk.ops.mean(Table()), jax.Array)
assert_type(fk.ops.mean(x=h, axis=1), fk.KerasTensor)
assert_type(fk.ops.exp(h), fk.KerasTensor)
assert_type(fk.ops.exp(x=h), fk.KerasTensor)
assert_type(fk.ops.exp(x=np.ones(2)), jax.Array)
assert_type(fk.ops.elu(h, alpha=0.5), fk.KerasTensor)
assert_type(fk.ops.elu(x=h, alpha=0.5), fk.KerasTensor)
assert_type(fk.ops.elu(x=np.ones(2), alpha=0.5), jax.Array)
assert_type(fk.ops.leaky_relu(x=[1.0, -1.0], negative_slope=0.5), jax.Array)
assert_type(fk.ops.maximum(h, 0), fk.KerasTensor)
assert_type(fk.ops.maximum(x1=0, x2=h), fk.KerasTensor)
assert_type(fk.ops.maximum([1.0, 2.0], 0), jax.Array)
assert_type(fk.ops.where(np.ones((1, 8), bool), 0.0, h), fk.KerasTensor)
assert_type(fk.ops.stack([h, h], axis=1), fk.KerasTensor)
assert_type(fk.ops.reshape(h, (-1, 4)), fk.KerasTensor)
assert_type(fk.ops.cast([1, 2], np.float16), jax.Array)
assert_type(fk.ops.zeros((2, 3), dtype="int32"), jax.Array)
assert_type(fk.ops.shape(h), tuple[int | None, ...])
pixels, sound, table = jnp.ones((1, 4, 4, 3)), np.ones((2, 8), "float32"), np.ones((2, 3))
assert_type(fk.ops.stft(sound, 4, 2, 4), tuple[jax.Array, jax.Array])
assert_type(fk.ops.stft(h, 4, 2, 4, window=None), tuple[fk.KerasTensor, fk.KerasTensor])
assert_type(fk.ops.stft(x=sound, sequence_length=4, sequence_stride=2, fft_length=4)[0], jax.Array)
assert_type(fk.ops.istft(fk.ops.stft(sound, 4, 2, 4), 4, 2, 4), jax.Array)
assert_type(fk.ops.fft((sound, sound)), tuple[jax.Array, jax.Array])
assert_type(fk.ops.irfft(fk.ops.rfft(h)), fk.KerasTensor)
assert_type(fk.ops.extract_sequences(h, 4, 2), fk.KerasTensor)
assert_type(fk.ops.image.resize(pixels, (2, 2)), jax.Array)
assert_type(fk.ops.image.resize(inputs, (2, 2), interpolation="nearest"), fk.KerasTensor)
assert_type(fk.ops.image.rgb_to_grayscale(images=pixels), jax.Array)
assert_type(
    fk.ops.image.pad_images(
        images=inputs, top_padding=1, left_padding=1, target_height=9, target_width=9
    ),
    fk.KerasTensor,
)
assert_type(fk.ops.nanmean(h, axis=1, keepdims=True), fk.KerasTensor)
assert_type(fk.ops.nanmax([1.0, np.nan]), jax.Array)
assert_type(fk.ops.nancumsum(table, axis=1, dtype="float32"), jax.Array)
assert_type(fk.ops.bitwise_and([1, 2], y=3), jax.Array)
assert_type(fk.ops.left_shift(1, fk.Input((3,), dtype="int32")), fk.KerasTensor)
assert_type(fk.ops.hamming(4), jax.Array)
assert_type(fk.ops.segment_sum(table, [0, 1], num_segments=2), jax.Array)
two_rows = fk.Input((3,), batch_size=2)
assert_type(fk.ops.segment_sum(data=two_rows, segment_ids=[0, 0], num_segments=1), fk.KerasTensor)
assert_type(fk.ops.top_k(h, 2), tuple[fk.KerasTensor, fk.KerasTensor])
assert_type(fk.ops.top_k(table, k=2, sorted=False), tuple[jax.Array, jax.Array])
assert_type(fk.ops.split(h, 2, axis=1, name="halves"), list[fk.KerasTensor])
assert_type(fk.ops.unstack(table), list[jax.Array])
assert_type(fk.ops.nonzero(table), tuple[jax.Array, ...])
assert_type(fk.ops.linalg.eigh(np.eye(2)), tuple[jax.Array, jax.Array])
total: dict[str, jax.Array] = fk.ops.fori_loop(0, 2, lambda i, carry: carry, {"a": pixels})
print(fk.constraints.get("non_neg")(jnp.ones(2)), fk.regularizers.get("l2")(jnp.ones(2)))
assert_type(fk.initializers.get(None), None)
assert_type(fk.activations.get("relu")(jnp.ones(2)), Any)
assert_type(layers.Add()([h, h]), fk.KerasTensor)
assert_type(layers.concatenate([h, h]), fk.KerasTensor)
assert_type(layers.MultiHeadAttention(2, 4)(x, x), fk.KerasTensor)
outputs = layers.Dense(3, name="scores")(h)
assert_type(outputs.shape, tuple[int | None, ...])
model = fk.Model(inputs, outputs, name="small")
assert_type(model, fk.Model)

words = fk.Input((None,), dtype="int32")
embedded = layers.Embedding(100, 8, mask_zero=True)(words)
sequence, last, carry = layers.LSTM(4, return_sequences=True, return_state=True)(embedded)
assert_type(carry, fk.KerasTensor)
both = layers.Bidirectional(layers.GRU(4))(sequence)
encoder = fk.Model(words, {"both": both, "last": last})
sequential = fk.Sequential([fk.Input((4,)), layers.Dense(8, activation="tanh"), layers.Dense(2)])
assert_type(model.name, str)
assert_type(encoder.replace(name="encoder").name.upper(), str)
assert_type(layers.Dense(2).name, str | None)
assert_type(sequential[0], fk.Layer)
assert_type(sequential[:1], fk.Sequential)
assert_type(sequential.add(layers.Dense(1)), fk.Sequential)

# -- values ------------------------------------------------------------------------------------

model = model.build(jax.random.key(0))
state = model.init_state()
images = np.zeros((6, 8, 8, 1), "float32")
labels = np.array([0, 1, 2, 0, 1, 2])
assert_type(model(images, state=state), jax.Array)
key = jax.random.key(1)
out = model.apply(images, state=state, training=True, key=key)
assert_type(out, fk.Output)
assert_type(out.updates, dict[str, Any])
state = state | out.updates
assert_type(model.layers["features"], fk.Layer)
assert_type(model.layers[-1], fk.Layer)
assert_type(model.layers[1:3], list[fk.Layer])
assert_type(model.tensor("features"), fk.KerasTensor)
assert_type([layer.count_params() for layer in model.layers.values()], list[int])
assert_type(fk.freeze(model, "conv*"), fk.Model)
difference = fk.transforms.diff(model, fk.freeze(model, "conv*"))
assert_type(difference, fk.transforms.Difference)
assert_type(fk.transforms.apply(model, difference), fk.Model)
assert_type(fk.transforms.revert(fk.freeze(model, "conv*"), difference), fk.Model)
for change in difference:
    if isinstance(change, fk.transforms.ConfigChange):
        assert_type(change.field, str)
assert_type(fk.transforms.fingerprint(model), str)
trainable, frozen = fk.partition(fk.freeze(model, "conv*"))
assert_type(fk.combine(trainable, frozen), fk.Model)
print(model.graph.layer("features").get_output_at(0).shape, model.summary(show=False))
encoded = encoder.build(key)(np.ones((2, 5), "int32"))
print(encoded["both"].shape)

layer = layers.Dense(4, use_bias=False).build(key, jax.ShapeDtypeStruct((None, 8), "float32"))
assert_type(layer, layers.Dense)
assert_type(layer.units, int)
assert_type(layer.kernel, jax.Array)
assert_type(layers.Conv1D(4, 3).kernel_size, tuple[int, ...])
print(layer.bias is None, layer.activation(jnp.ones(2)), layer.dtype.compute_dtype)
print(layers.Dense(4).build(key, (None, 8))(np.ones((1, 8), "float32")).shape)
layer, layer_state = layer.set_weights(layer.get_weights({}), {})
assert_type(layer, layers.Dense)
assert_type(layers.Dense.from_config(layer.get_config()), layers.Dense)
print(layers.deserialize(layers.serialize(layer)), layer.replace(trainable=False))


# -- a training step by hand -------------------------------------------------------------------

optimizer = optax.adam(1e-3)
opt_state = optimizer.init(model)


def cross_entropy(y: jax.Array, scores: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(model, state, opt_state, x, y, key):
    def loss_fn(model):
        out = model.apply(x, state=state, training=True, key=key)
        return cross_entropy(y, out.value) + sum(out.losses), out.updates

    (value, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(model)
    deltas, opt_state = optimizer.update(grads, opt_state, model)
    return optax.apply_updates(model, deltas), state | updates, opt_state, value


def annotated_loss(
    model: fk.Model, state: Mapping[str, Any], x: jax.Array, y: jax.Array, key: jax.Array
) -> tuple[jax.Array, dict[str, Any]]:
    out = model.apply(x, state=state, training=True, key=key)
    return cross_entropy(y, out.value) + sum(out.losses), out.updates


# a step consumes its arguments: `model` is used again below
copy, copy_state = jax.tree.map(jnp.array, (model, state))
copy, copy_state, opt_state, value = step(
    copy, copy_state, opt_state, jnp.asarray(images), jnp.asarray(labels), key
)
grads = jax.grad(annotated_loss, has_aux=True)(
    model, state, jnp.asarray(images), jnp.asarray(labels), key
)[0]
deltas, opt_state = optimizer.update(grads, optimizer.init(model), model)
moved = optax.apply_updates(model, deltas)


# -- the high-level loop -----------------------------------------------------------------------


class Log(fk.Callback):
    """Collects the losses."""

    every: int = fk.option(default=1)

    def on_epoch_end(
        self, epoch: int, run: fk.TrainState, logs: Mapping[str, float]
    ) -> fk.TrainState | fk.Stop | None:
        if epoch % self.every == 0:
            print(epoch, logs["loss"], int(run.step))
        return fk.Stop() if logs["loss"] > 1e6 else None


schedule = fk.optimizers.schedules.CosineDecay(3e-3, decay_steps=100)
trainer = fk.Trainer(
    optimizer=fk.optimizers.Adam(schedule, weight_decay=1e-4),
    loss=fk.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy", fk.metrics.SparseTopKCategoricalAccuracy(2)],
)
run = trainer.init(model, jax.random.key(0))
assert_type(run, fk.TrainState[fk.Model])
assert_type(run.model, fk.Model)
assert_type(run.state, dict[str, Any])
assert_type(run.step, jax.Array)
run, logs = trainer.step(run, (images, labels))
assert_type(logs, dict[str, jax.Array])
run, history = trainer.fit(
    run,
    images,
    labels,
    epochs=2,
    batch_size=2,
    validation_data=(images, labels),
    callbacks=[Log(every=2), fk.callbacks.EarlyStopping("val_loss", patience=1)],
    class_weight={0: 2.0},
    verbose=0,
)
assert_type(run.model, fk.Model)
assert_type(history.history, dict[str, list[float]])
fitted = trainer.fit(run, images, labels, epochs=3, initial_epoch=2, verbose=0)
assert_type(fitted.run, fk.TrainState[fk.Model])
assert_type(fitted.history["loss"], list[float])
assert_type(trainer.evaluate(run, images, labels, verbose=0), dict[str, float])
print(trainer.predict(run, images).argmax(-1))
print(trainer.predict(run, jnp.asarray(images)).shape, trainer.evaluate(run, [images], [labels]))


class Batches:
    """A loader: each iteration yields all batches."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        yield images, labels


def batch_at(step: int) -> tuple[np.ndarray, np.ndarray]:
    return images, labels


fitted = trainer.fit(run, Batches(), epochs=1, validation_data=(images, labels), verbose=0)
fitted = trainer.fit(run, [(images, labels), (images, labels)], epochs=1, verbose=0)
fitted = trainer.fit(run, batch_at, steps_per_epoch=1, epochs=1, verbose=0)
words = fk.Input((), dtype="string", name="words")
place = layers.Embedding(2, 3)(layers.StringLookup(vocabulary=["one"])(words))
trainer_of_texts = fk.Trainer("sgd", "mse")
texts = trainer_of_texts.init(fk.Model(words, place), jax.random.key(0))
texts, _ = trainer_of_texts.fit(texts, {"words": ["one", "two"]}, np.ones((2, 3)), verbose=0)
print(
    trainer_of_texts.predict(texts, ["one"]),
    trainer_of_texts.predict(texts, {"words": np.array(["one"])}),
)
assert_type(trainer.share, tuple[int, int])

population = fk.populate(trainer, {"learning_rate": [1e-2, 1e-3], "seed": range(2)})
listed = fk.populate(trainer, members=[{"seed": 0}, {"seed": 1}], order="shared", group_size=1)
runs = population.init(model, jax.random.key(0))
runs, history = population.fit(
    runs,
    images,
    labels,
    epochs=2,
    rules=[fk.training.population.EarlyStopping("loss", patience=1)],
    verbose=0,
)
run = population.member(runs, 0)
assert_type(population.trainer_of(runs, 0), fk.Trainer)
assert_type(population.members, list[dict[str, Any]])
best, chosen = population.select(runs, [0, 1])
print(len(best), best.values(chosen), history["loss"])
print(fk.Trainer(optax.sgd(0.1), "mse"), fk.Trainer("adam", loss={"a": "mse", "b": "mae"}))


def objective(
    model: fk.Model, state: Mapping[str, Any], batch: Any, key: jax.Array, training: bool
) -> fk.Output:
    out = model.apply(batch, state=state, training=training, key=key)
    return fk.Output(jnp.mean(out.value**2), out.updates, out.losses, metrics={"size": 1.0})


print(fk.Trainer("adam", objective=objective))
print(fk.losses.mean_squared_error([[0.0]], [[1.0]]), fk.losses.MeanSquaredError()([1.0], [2.0]))
print(fk.metrics.MeanSquaredError().update(fk.metrics.MeanSquaredError().init(), [1.0], [2.0]))
assert_type(fk.random.normal((2,), mean=np.ones(2), dtype="float32", seed=0), jax.Array)
print(fk.losses.MeanSquaredError()(np.ones((2, 1)), np.zeros((2, 1))).item())

# -- files -------------------------------------------------------------------------------------

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.keras"
    fk.save_model(path, run.model, run.state)
    loaded, loaded_state = fk.load_model(path)
    print(loaded(images, state=loaded_state).shape, loaded.layers["features"].name)
    fk.save_weights(Path(folder) / "model.weights.h5", model, state)
    model, state = fk.load_weights(Path(folder) / "model.weights.h5", model, state)
    assert_type(model, fk.Model)

with tempfile.TemporaryDirectory() as folder:
    config = fk.pretrained.LlamaConfig(8, hidden_size=4, num_attention_heads=2, num_hidden_layers=1)
    assert_type(config.rope_theta, float)
    decoder = fk.pretrained.build(config)
    assert_type(decoder, fk.Model)
    fk.pretrained.save(folder, decoder.build(jax.random.key(0)), {}, config)
    pretrained = fk.pretrained.load(Path(folder), dtype="float32")
    assert_type(pretrained.model, fk.Model)
    assert_type(pretrained.config, fk.pretrained.Config)
    assert_type(pretrained.tokenizer, fk.pretrained.Tokenizer | None)
    print(pretrained.model(np.ones((1, 3), "int32")).shape)


# -- layers by users ---------------------------------------------------------------------------


class Scale(fk.Layer):
    """Multiplies the last axis by a weight."""

    initial: float = fk.option(default=1.0)
    factor: jax.Array = fk.weight()

    @property
    def factor_initializer(self) -> fk.initializers.Constant:
        return fk.initializers.Constant(self.initial)

    def build(self, key: jax.Array, x: Any) -> Scale:
        return self.with_weights(key, factor=x.shape[-1:])

    def call(self, x: jax.Array) -> jax.Array:
        return x * fk.engine.align(self.factor, x.ndim)


class Affine(fk.Layer):
    units: int
    use_bias: bool = True
    kernel: jax.Array | None = fk.weight(initializer=jax.nn.initializers.lecun_normal())
    bias: jax.Array | None = fk.weight(initializer=jax.nn.initializers.zeros)

    def build(self, key, x):
        bias = (self.units,) if self.use_bias else None
        return self.with_weights(key, kernel=(x.shape[-1], self.units), bias=bias)

    def call(self, x):
        y = x @ self.kernel
        return y if self.bias is None else y + self.bias


def architectures(image: fk.KerasTensor) -> None:  # not called: composing takes seconds
    assert_type(fk.applications.ResNet50(weights=None, classes=10), fk.Model)
    assert_type(fk.applications.resnet50.ResNet50(weights="r.h5"), tuple[fk.Model, dict[str, Any]])
    assert_type(fk.applications.MobileNet(weights=None, alpha=0.5, input_tensor=image), fk.Model)
    assert_type(fk.applications.MobileNetV3Small(weights=None, minimalistic=True), fk.Model)
    assert_type(fk.applications.NASNetMobile((64, 64, 3), weights=None), fk.Model)
    assert_type(fk.applications.EfficientNetV2B0(False, weights=None, pooling="avg"), fk.Model)
    assert_type(fk.applications.ConvNeXtTiny(weights=None, name="mine"), fk.Model)
    assert_type(fk.applications.vgg16.preprocess_input(jnp.ones((1, 2, 2, 3))), jax.Array)
    assert_type(fk.applications.vgg16.preprocess_input(image), fk.KerasTensor)
    names = fk.applications.vgg16.decode_predictions(jnp.ones((1, 2)), class_index="index.json")
    assert_type(names, list[list[tuple[str, str, Any]]])
    assert_type(fk.from_keras(object()), tuple[fk.Network, dict[str, Any]])


class Counted(fk.Layer):
    """Counts its training calls."""

    def init_state(self, x: Any) -> dict[str, Any]:
        return {"count": jnp.zeros((), "int32")}

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        if not context.training:
            return fk.Output(x)
        return fk.Output(x, {"count": context.state["count"] + 1}, losses=(jnp.mean(x),))


class Block(fk.Model):
    units: int
    activation: str = "relu"

    def call(self, x):
        return x + layers.Dense(self.units, activation=self.activation)(x)


scale = Scale(2.0, name="scale")
assert_type(scale, Scale)
assert_type(Block(2, name="block").name, str)
print(Block(2, name=None))
assert_type(scale.build(key, (None, 3)), Scale)
assert_type(scale(fk.Input((3,))), fk.KerasTensor)
assert_type(Affine(4, use_bias=False)(fk.Input((3,))), fk.KerasTensor)
assert_type(Counted()(fk.Input((3,))), fk.KerasTensor)
assert_type(Block(3, activation="tanh")(fk.Input((3,))), fk.KerasTensor)
print(Affine(units=4).build(key, (None, 3))(jnp.ones((1, 3))).shape)

layers.Pipeline([layers.Rescaling(2.0), layers.RandomFlip()])
layers.RNN([layers.GRUCell(2), layers.GRUCell(3)])
assert_type(layers.StackedRNNCells([layers.GRUCell(2)]).cells, tuple[fk.Layer, ...])


class Indexed:
    """A source with a length and batches by number."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index >= 2:
            raise IndexError(index)
        return np.ones((4, 3), "float32"), np.ones((4, 1), "float32")


indexed_model = fk.Sequential([fk.Input((3,)), layers.Dense(1)])
indexed_trainer = fk.Trainer("adam", "mse")
indexed_trainer.fit(indexed_trainer.init(indexed_model, key), Indexed(), verbose=0).history

# -- generation --------------------------------------------------------------------------------

ids = fk.Input((None,), dtype="int32")
language_model = fk.Model(ids, layers.Embedding(5, 5)(ids)).build(jax.random.key(0))
chain = fk.samplers.Chain(fk.samplers.Temperature(0.7), fk.samplers.TopP(0.9))
generated = fk.generate(
    language_model,
    language_model.init_state(),
    [[1, 2], [3]],
    jax.random.key(0),
    4,
    chain,
    end_ids=0,
)
assert_type(generated.tokens, jax.Array)
more = fk.generate(
    [language_model, language_model],
    None,
    np.ones((2, 3), "int32"),
    max_new_tokens=2,
    rows=[0, 1],
    draft=(language_model, None),
    decode=str,
    stop=["."],
    stream=lambda row, piece: print(row, piece),
)
print(more.lengths, generated.state)


def of_a_loaded_model(loaded: fk.pretrained.Loaded) -> fk.Logprobs | None:
    return fk.generate(loaded, None, [[1]], logprobs=2).logprobs


scores = fk.score(language_model, None, [[1, 2], [3]], np.ones((2, 3), "int32"), logprobs=1)
assert_type(scores.total, jax.Array)
assert_type(scores.logprobs.top_ids, jax.Array)
grammars = fk.samplers.Grammars(["<end>", "null"], end_ids=0)
configured = fk.samplers.Chain(grammars.json({"type": "null"}), fk.samplers.configured({}))
suppressed = fk.samplers.Chain(fk.samplers.SuppressedIds([1, 2]), fk.samplers.Greedy())
fk.generate(
    language_model,
    None,
    [np.array([1, 2]), jnp.array([3])],
    sampler=suppressed,
    end_ids={1, 2},
)

# -- texts -------------------------------------------------------------------------------------

vocabulary = '{"type": "WordLevel", "vocab": {"?": 0, "a": 1}, "unk_token": "?"}'
tokenizer = fk.pretrained.Tokenizer(
    {"tokenizer.json": f'{{"model": {vocabulary}}}', "chat_template.jinja": "a"}
)
assert_type(fk.pretrained.Tokenizer.read("no/folder"), fk.pretrained.Tokenizer | None)
assert_type(tokenizer.encode("a", special_tokens=False), list[int])
assert_type(tokenizer.decode(jnp.array([1])), str)
assert_type(tokenizer.chat([{"role": "user", "content": "a"}], enable_thinking=False), list[int])
answers = tokenizer.chat_answers([{"role": "user", "content": "a"}])
assert_type(answers.mask, list[bool])
assert_type(tokenizer.end_ids, tuple[int, ...])
packed = fk.utils.pack_sequences([answers.ids], 4, [answers.mask])
assert_type(packed.segments, np.ndarray)
stream, piece = fk.utils.TextStream(tokenizer.decode).add([1])
assert_type(stream, fk.utils.TextStream)
assert_type(piece, str)
lookup = fk.pretrained.TokenLookup(tokenizer, output_sequence_length=4)
assert_type(lookup(fk.Input((), dtype="string")), fk.KerasTensor)
sequence = fk.Input((None, 8))
encoded_sequence = layers.TransformerEncoder(intermediate_dim=16, num_heads=2)(sequence)
assert_type(
    layers.TransformerDecoder(16, 2, activation="gelu")(sequence, encoded_sequence), fk.KerasTensor
)
