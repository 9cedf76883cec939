"""`agree`: planted faults are reported at their calls, and roundings are no faults."""

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.engine import Coord

KEY = jax.random.key(0)


class Optional(fk.Layer):
    """Adds an input that may be missing."""

    def call(self, x, bias=None):
        return x if bias is None else x + bias


def numbers(shape, seed, positive=False):
    values = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return np.abs(values) + 0.5 if positive else values


def built(model):
    """Builds a model with numbers that depend on names and shapes only: no zeros, no symmetry."""

    def fill(path, spec):
        seed = zlib.crc32(jax.tree_util.keystr(path).encode())
        values = numbers(spec.shape, seed, "moving" in str(path))
        return jax.device_put(values / spec.shape[0] ** 0.5)

    shapes = jax.eval_shape(model.build, KEY), model.state_spec()
    return jax.tree_util.tree_map_with_path(fill, shapes)


def chain(layer, shape, ids=False):
    x = y = fk.Input(shape, dtype="int32" if ids else "float32", name="x")
    if not ids:
        y = layers.Activation("tanh", name="before")(y)
    y = layer.replace(name="fault")(y)
    if y.dtype == "float32":
        y = layers.Activation("sigmoid", name="after")(y)
    return fk.Model(x, y)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A layer, and the wrong layer or the wrong numbers in its place."""

    good: fk.Layer
    bad: fk.Layer | None = None
    shape: tuple = (6,)
    weights: dict[str, Callable] = dataclasses.field(default_factory=dict)
    state: Callable | None = None
    ids: bool = False
    training: bool = False

    def sides(self) -> tuple[Any, Any]:
        good = built(chain(self.good, self.shape, self.ids))
        model, state = built(chain(self.bad or self.good, self.shape, self.ids))
        layer = model.layers["fault"]
        wrong = {name: change(getattr(layer, name)) for name, change in self.weights.items()}
        model = model.replace(layers={**model.layers, "fault": layer.replace(**wrong)})
        if self.state is not None:
            state = {"fault": self.state(state["fault"])}
        return good, (model, state)


def swap(*order):
    """Permutes equal blocks of the last axis: the gates of a recurrent layer."""
    return lambda w: jnp.concatenate([jnp.split(w, len(order), -1)[i] for i in order], -1)


def transpose(*axes):
    return lambda w: jnp.transpose(w, axes)


IMAGE, STEPS = (6, 6, 4), (5, 6)
conv = layers.Conv2D(4, 3, padding="same")
lstm, gru = layers.LSTM(6, return_sequences=True), layers.GRU(6, return_sequences=True)
norm = layers.BatchNormalization()
RECURRENT = ("kernel", "recurrent_kernel", "bias")

FAULTS = {
    "epsilon of a batch normalization": Fault(norm, norm.replace(epsilon=1e-5)),
    "epsilon of a layer normalization": Fault(
        layers.LayerNormalization(epsilon=1e-6), layers.LayerNormalization(epsilon=1e-3)
    ),
    "moving statistics swapped": Fault(
        norm,
        state=lambda s: {"moving_mean": s["moving_variance"], "moving_variance": s["moving_mean"]},
    ),
    "momentum": Fault(norm, norm.replace(momentum=0.9), training=True),
    "scale stored without 1": Fault(norm, weights={"gamma": lambda w: w - 1}),
    "standard deviation in the place of the variance": Fault(
        norm, state=lambda s: {**s, "moving_variance": jnp.sqrt(s["moving_variance"])}
    ),
    "axis of a normalization": Fault(
        layers.LayerNormalization(axis=-1), layers.LayerNormalization(axis=1), (6, 6)
    ),
    "groups of a normalization": Fault(
        layers.GroupNormalization(2), layers.GroupNormalization(3), (6,)
    ),
    "transposed kernel": Fault(layers.Dense(6), weights={"kernel": transpose(1, 0)}),
    "missing bias": Fault(layers.Dense(6), weights={"bias": jnp.zeros_like}),
    "kernel in bfloat16": Fault(
        layers.Dense(6), weights={"kernel": lambda w: jnp.asarray(w, "bfloat16").astype("float32")}
    ),
    "height and width of a kernel swapped": Fault(
        conv, shape=IMAGE, weights={"kernel": transpose(1, 0, 2, 3)}
    ),
    "channels of a kernel swapped": Fault(
        conv, shape=IMAGE, weights={"kernel": transpose(0, 1, 3, 2)}
    ),
    "flipped kernel": Fault(conv, shape=IMAGE, weights={"kernel": lambda w: w[::-1, ::-1]}),
    "flipped kernel of a transposed convolution": Fault(
        layers.Conv2DTranspose(4, 3), shape=IMAGE, weights={"kernel": lambda w: w[::-1, ::-1]}
    ),
    "asymmetric padding": Fault(
        layers.Conv2D(4, 3, strides=2, padding="same"),
        fk.Sequential([layers.ZeroPadding2D(1), layers.Conv2D(4, 3, strides=2)]),
        IMAGE,
    ),
    "causal padding": Fault(
        layers.Conv1D(4, 3, padding="causal"), layers.Conv1D(4, 3, padding="same"), STEPS
    ),
    "dilation": Fault(conv, conv.replace(dilation_rate=(2, 2)), IMAGE),
    "order of depthwise filters": Fault(
        layers.DepthwiseConv2D(3, depth_multiplier=2),
        shape=IMAGE,
        weights={"kernel": lambda w: w[..., ::-1]},
    ),
    "gates of an LSTM": Fault(
        lstm, shape=STEPS, weights=dict.fromkeys(RECURRENT, swap(1, 0, 2, 3))
    ),
    "gates of a GRU": Fault(gru, shape=STEPS, weights=dict.fromkeys(RECURRENT, swap(1, 0, 2))),
    "recurrent activation": Fault(
        lstm, layers.LSTM(6, return_sequences=True, recurrent_activation="hard_sigmoid"), STEPS
    ),
    "direction": Fault(lstm, layers.LSTM(6, return_sequences=True, go_backwards=True), STEPS),
    "tanh form of gelu": Fault(
        layers.Activation("gelu"), layers.Lambda(lambda x: jax.nn.gelu(x, approximate=True))
    ),
    "hard sigmoid of Keras 2": Fault(
        layers.Activation("hard_sigmoid"), layers.Lambda(lambda x: jnp.clip(0.2 * x + 0.5, 0, 1))
    ),
    "slope": Fault(layers.LeakyReLU(0.2), layers.LeakyReLU(0.3)),
    "axis of a softmax": Fault(layers.Softmax(), layers.Softmax(axis=1), (6, 6)),
    "average in the place of the maximum": Fault(
        layers.MaxPooling2D(2), layers.AveragePooling2D(2), IMAGE
    ),
    "padding of an average": Fault(
        layers.AveragePooling2D(3, 1, padding="same"),
        fk.Sequential([layers.ZeroPadding2D(1), layers.AveragePooling2D(3, 1)]),
        IMAGE,
    ),
    "interpolation": Fault(
        layers.UpSampling2D(2), layers.UpSampling2D(2, interpolation="bilinear"), IMAGE
    ),
    "order of flattened channels": Fault(
        layers.Flatten(), fk.Sequential([layers.Permute((3, 1, 2)), layers.Flatten()]), IMAGE
    ),
    "reshaped in the place of transposed": Fault(
        layers.Permute((2, 1)), layers.Reshape((6, 5)), STEPS
    ),
    "offset before the scale": Fault(layers.Rescaling(2.0, 1.0), layers.Rescaling(2.0, 2.0)),
    "shifted rows of an embedding": Fault(
        layers.Embedding(9, 4),
        shape=(5,),
        ids=True,
        weights={"embeddings": lambda w: jnp.roll(w, 1, 0)},
    ),
    "dropped mask": Fault(
        layers.Embedding(9, 4, mask_zero=True), layers.Embedding(9, 4), shape=(5,), ids=True
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_reported_at_its_call(name):
    fault = FAULTS[name]
    a, b = fault.sides()
    shape = (4, *fault.shape)
    x = np.random.default_rng(1).integers(0, 9, shape) if fault.ids else 2 * numbers(shape, 1)
    agreement = transforms.agree(a, b, x, training=fault.training)
    assert not agreement
    assert agreement.first == Coord("fault", 0, 0)
    assert transforms.agree(a, a, x, training=fault.training)


def test_at_least_thirty_faults_are_planted():
    assert len(FAULTS) >= 30


def _merged(order=(0, 1), causal=False, masked=True, training=None):
    ids = fk.Input((5,), dtype="int32", name="ids")
    x = layers.Embedding(9, 6, mask_zero=True, name="embed")(ids)
    norm = layers.BatchNormalization(name="norm")
    first = norm(x)
    pair = [first, norm(layers.Dense(6, name="d")(first), training=training)]
    y = layers.Subtract(name="sub")([pair[i] for i in order])
    y = layers.MultiHeadAttention(2, 3, name="mha")(y, y, use_causal_mask=causal)
    inner = fk.Sequential([layers.Dense(6), layers.ReLU()], name="inner")
    y = inner(inner(y))
    pool = layers.GlobalAveragePooling1D(name="pool")
    return fk.Model(ids, pool(y) if masked else pool(y, mask=None))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"order": (1, 0)}, Coord("sub", 0, 0)),
        ({"causal": True}, Coord("mha", 0, 0)),
        ({"masked": False}, Coord("pool", 0, 0)),
        ({"training": True}, Coord("norm", 1, 0)),
    ],
)
def test_faults_of_calls(options, first):
    ids = np.array([[1, 2, 3, 0, 0], [4, 5, 6, 7, 8]])
    agreement = transforms.agree(built(_merged()), built(_merged(**options)), ids)
    assert agreement.first == first


@pytest.mark.exhaustive
def test_calls_inside_nested_models_have_paths_and_numbers():
    a, state = built(_merged())
    inner = a.layers["inner"]
    dense = inner.layers["dense"].replace(bias=jnp.ones(6))
    b = a.replace(
        layers={**a.layers, "inner": inner.replace(layers={**inner.layers, "dense": dense})}
    )
    agreement = transforms.agree((a, state), (b, state), np.ones((2, 5), "int32"))
    assert agreement.first == Coord("inner/dense", 0, 0)
    names = [c for c in agreement.errors if c.layer == "inner/dense"]
    assert names == [Coord("inner/dense", 0, 0), Coord("inner/dense", 1, 0)]
    # an inner call comes before the call around it
    order = list(agreement.errors)
    assert order.index(Coord("inner/re_lu", 0, 0)) < order.index(Coord("inner", 0, 0))
    assert "inner/dense_ib-0" in str(agreement)
    assert "disagrees" in str(agreement)


def _mlp(activation="tanh", names=("a", "b")):
    x = fk.Input((6,), name="x")
    y = layers.Dense(5, activation, name=names[0])(x)
    return fk.Model(x, layers.Dense(3, name=names[1])(y))


X = numbers((4, 6), 3)


@pytest.mark.exhaustive
def test_files_are_sides(tmp_path):
    model, state = built(_mlp())
    fk.save_model(tmp_path / "m.keras", model, state)
    fk.export(model, state, tmp_path / "m.jax", platforms=("cpu",))
    agreement = transforms.agree(model, tmp_path / "m.keras", X)
    assert agreement
    assert list(agreement.errors) == [Coord("a", 0, 0), Coord("b", 0, 0)]
    agreement = transforms.agree(str(tmp_path / "m.jax"), tmp_path / "m.keras", X)
    assert agreement
    assert list(agreement.errors) == [Coord("b", 0, 0)]
    other, _ = built(_mlp("relu"))
    assert transforms.agree(other, tmp_path / "m.jax", X).first == Coord("b", 0, 0)
    assert transforms.agree(other, tmp_path / "m.keras", X).first == Coord("a", 0, 0)


def test_an_onnx_file_is_computed_by_onnxruntime(tmp_path):
    model, state = built(_mlp())
    fk.export(model, state, tmp_path / "m.onnx")
    agreement = transforms.agree((model, state), tmp_path / "m.onnx", X)
    assert agreement and agreement.errors
    other = transforms.edit(model, {"b": lambda y: y + 1})
    assert not transforms.agree(other, tmp_path / "m.onnx", X)
    wide = jax.tree.map(lambda a: np.asarray(a, "float64"), X)
    assert transforms.agree((model, state), tmp_path / "m.onnx", wide)
    (tmp_path / "m.onnx").write_bytes(b"no graph")
    with pytest.raises(fk.FileError, match=r"m\.onnx"):
        transforms.agree(model, tmp_path / "m.onnx", X)


def test_functions_are_sides():
    model, _ = built(_mlp())
    a, b = model.layers["a"], model.layers["b"]
    outputs = transforms.agree(model, lambda x: b(a(x)), X)
    assert outputs
    assert list(outputs.errors) == [Coord("b", 0, 0)]

    def by_key(x):
        return {"b_ib-0": b(a(x)), "a_ib-0": jax.nn.relu(a(x))}

    def by_coordinates(x):
        return b(a(x)), {Coord("a", 0, 0): a(x), ("b", 0, 0): b(a(x)) + 1}

    # the running order is that of the model
    assert transforms.agree(by_key, model, X).first == Coord("a", 0, 0)
    assert transforms.agree(model, by_coordinates, X).first == Coord("b", 0, 0)
    pair = transforms.agree(lambda x: (x, x), lambda x: [x, x + 1], X)
    assert pair.first == Coord("output", 0, 1)
    numpy = transforms.agree(model, lambda x: np.asarray(b(a(x)), "float64"), X)
    assert numpy
    assert numpy.calls[0].note == "dtype float32, float64"


def test_layers_of_other_names_are_matched_by_structure():
    model, _ = built(_mlp())
    other = fk.rename(model, {"a": "first", "b": "second"})
    agreement = transforms.agree(model, other, X)
    assert agreement
    assert list(agreement.errors) == [Coord("a", 0, 0), Coord("b", 0, 0)]
    assert not agreement.skipped
    changed = other.layers["first"].replace(bias=np.ones(5, "float32"))
    other = other.replace(layers={**other.layers, "first": changed})
    assert transforms.agree(model, other, X).first == Coord("a", 0, 0)


@pytest.mark.exhaustive
def test_calls_of_one_side_only_are_skipped():
    x = fk.Input((6,), name="x")
    short = fk.Model(x, layers.Dense(3, name="b")(layers.Dense(5, name="a")(x)))
    y = layers.Dense(5, name="a")(x)
    long = fk.Model(x, layers.Dense(3, name="b")(layers.Dropout(0.5, name="drop")(y)))
    agreement = transforms.agree(built(short)[0], built(long)[0], X)
    assert agreement
    assert agreement.skipped == (Coord("drop", 0, 0),)
    assert "1 values are on one side only" in str(agreement)


@pytest.mark.exhaustive
def test_roundings_are_no_faults_in_any_dtype():
    x = y = fk.Input((64,), name="x")
    for _ in range(20):
        y = layers.Dense(64, "tanh")(y)
    model = fk.Model(x, y).build(KEY)

    def by_sums(x):
        values = {}
        for name, layer in list(model.layers.items())[1:]:
            # another order of the sums
            terms = [jnp.outer(x[:, i], layer.kernel[i]) for i in range(64)]
            x = jnp.tanh(sum(terms) + layer.bias[None])
            values[f"{name}_ib-0"] = x
        return values

    x = numbers((8, 64), 5)
    agreement = transforms.agree(model, by_sums, x)
    assert agreement
    assert max(agreement.errors.values()) > 0
    half = fk.Model(*[getattr(model, n) for n in ("inputs", "outputs")]).replace(
        layers=model.layers
    )
    halves = jax.tree.map(lambda a: a.astype("bfloat16").astype("float32"), half)
    assert transforms.agree(model, halves, x).first == Coord("dense", 0, 0)
    assert transforms.agree(model, halves, x, tolerance=0.1)


@pytest.mark.exhaustive
def test_a_mixed_model_agrees_within_the_roundings_of_its_dtype():
    def model(dtype):
        x = fk.Input((6,), name="x")
        y = layers.Dense(5, "relu", dtype=dtype, name="a")(x)
        return built(fk.Model(x, layers.Dense(3, dtype=dtype, name="b")(y)))[0]

    agreement = transforms.agree(model("float32"), model("mixed_bfloat16"), X)
    assert agreement
    assert agreement.calls[0].note == "dtype float32, bfloat16"
    assert agreement.calls[0].rounding > 1e-3


def test_rolled_models_and_single_layers():
    model, _ = built(fk.Sequential([fk.Input((6,)), *(layers.Dense(6) for _ in range(6))]))
    rolled = transforms.roll(model)
    agreement = transforms.agree(rolled, model, X)
    assert agreement
    assert len(agreement.errors) == 6
    one, two = (layers.Dense(2).build(jax.random.key(seed), (None, 6)) for seed in (0, 1))
    assert transforms.agree(one, two, X).first == Coord("output", 0, 0)
    assert transforms.agree(one, one, X)


def test_nan_equals_nan_and_infinity_equals_infinity():
    bad = np.where(np.eye(4, 6) > 0, np.nan, np.inf).astype("float32")
    assert transforms.agree(lambda x: bad, lambda x: bad.copy(), X)
    agreement = transforms.agree(lambda x: bad, lambda x: np.nan_to_num(bad), X)
    assert not agreement
    assert agreement.errors[agreement.first] == np.inf
    shapes = transforms.agree(lambda x: x, lambda x: x.T, X)
    assert "shape (4, 6), (6, 4)" in str(shapes)
    assert not transforms.agree(lambda x: np.arange(3), lambda x: np.array([0, 1, 3]), X)


@pytest.mark.parametrize(
    ("sides", "options", "error", "message"),
    [
        ((_mlp(), _mlp()), {}, ValueError, "expected a built model"),
        ((3, built(_mlp())[0]), {}, TypeError, "expected a model, .* received int"),
        ((built(_mlp())[0], "m.txt"), {}, ValueError, "a file with a suffix among .keras"),
        ((built(_mlp())[0], "none.keras"), {}, FileNotFoundError, "none.keras"),
        ((built(_mlp())[0], "none.jax"), {}, FileNotFoundError, "none.jax"),
        (((built(_mlp())[0], 3), lambda x: x), {}, TypeError, "expected a state as a dictionary"),
        ((lambda x: x, lambda x: (x, x)), {}, ValueError, "the same number of outputs"),
        ((lambda x: {}, lambda x: {}), {}, ValueError, "common outputs or calls, received none"),
        ((lambda x: x, lambda x: x), {"tolerance": -1}, ValueError, "a tolerance of at least 0"),
        (
            (lambda x: x, lambda x: x),
            {"tolerance": np.nan},
            ValueError,
            "a tolerance of at least 0",
        ),
        ((built(chain(norm, (6,)))[0], lambda x: x), {}, ValueError, "state"),
    ],
)
def test_bad_arguments(sides, options, error, message):
    with pytest.raises(error, match=message):
        transforms.agree(*sides, X, **options)


def test_a_model_of_strings_is_refused():
    texts = fk.Input((), dtype="string")
    ids = layers.TextVectorization(vocabulary=["one"])(texts)
    model = fk.Model(texts, layers.Embedding(4, 3)(ids)).build(KEY)
    with pytest.raises(ValueError, match="split_host"):
        transforms.agree(model, model, ["one"])


def test_a_damaged_program_is_an_error_of_the_file(tmp_path):
    (tmp_path / "m.jax").write_bytes(b"no program")
    with pytest.raises(fk.FileError, match=r"m\.jax"):
        transforms.agree(lambda x: x, tmp_path / "m.jax", X)


@pytest.mark.exhaustive
def test_long_tables_show_the_first_disagreement():
    model, _ = built(fk.Sequential([fk.Input((6,)), *(layers.Dense(6) for _ in range(60))]))
    name = "dense_50"
    wrong = model.layers[name].replace(bias=jnp.ones(6))
    other = model.replace(layers={**model.layers, name: wrong})
    text = str(transforms.agree(model, other, X))
    assert text.splitlines()[0] == "10 of 60 values disagree, first dense_50_ib-0"
    assert "dense_50_ib-0" in "".join(text.splitlines()[2:])
    assert "more in agreement.calls" in text


def test_optional_inputs_may_be_left_out():
    x, bias = fk.Input((3,), name="x"), fk.Input((1,), name="bias", optional=True)
    inner = fk.Model([x, bias], Optional(name="sum")(x, bias), name="inner")
    model = fk.Model(x, inner(x))
    for one, inputs in (
        (inner, numbers((2, 3), 0)),
        (inner, {"x": numbers((2, 3), 0)}),
        (model, numbers((2, 3), 0)),
    ):
        assert transforms.agree(one, one, inputs)
