"""Every entry point takes every kind of array correctly, or explains why it does not.

`kinds` lists arrays that stand for the same zeros and ones, each with the float32 array of these
numbers; `rejected` lists the arrays that no entry point takes. An entry point passes if each kind
gives the result of the float32 array, and each rejected array an error of three parts.
"""

import functools
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

try:
    import pandas as pd
except ImportError:  # the extra "examples" brings pandas
    pd = None

BITS = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0], [0, 0, 1]], "float32")
LABELS = np.array([[0], [1], [1], [0]], "float32")
PREDICTED = np.array([[0.2, 0.8], [0.6, 0.4], [0.3, 0.7], [0.9, 0.1]], "float32")
KEY = jax.random.key(0)

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64", "longdouble")
SHORT = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int4", "uint4")
# the kinds that the default suite passes to every entry point; the others differ only in dtype
FEW = ("big float32", "big int64", "mapped big float64", "frame", "dlpack")


class Protocol:
    """An object that offers its array through selected protocols only."""

    def __init__(self, array):
        self.array = array


class OfArray(Protocol):
    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)


class OfInterface(Protocol):
    @property
    def __array_interface__(self):
        return self.array.__array_interface__


class OfDLPack(Protocol):
    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Refusing(Protocol):
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


class Subclass(np.ndarray):
    pass


def mapped(folder, array):
    path = folder / f"{array.dtype.str.strip('<>|')}{array.dtype.isnative}.bin"
    array.tofile(path)
    return np.memmap(path, array.dtype, "r", shape=array.shape)


def kinds(bits, folder):
    """`{name: (array, float32 array)}`."""
    arrays = {name: bits.astype(name) for name in DTYPES}
    arrays |= {name: bits.astype(getattr(ml_dtypes, name)) for name in SHORT}
    for name in DTYPES:
        if np.dtype(name).itemsize > 1:
            arrays[f"big {name}"] = bits.astype(np.dtype(name).newbyteorder(">"))
    reversed_rows = np.ascontiguousarray(bits[::-1])
    arrays |= {
        "strided": np.repeat(bits, 2, axis=1)[:, ::2],
        "reversed": reversed_rows[::-1],
        "Fortran": np.asfortranarray(bits),
        "unaligned": np.frombuffer(b"\0" + bits.tobytes(), "u1")[1:].view("f4").reshape(bits.shape),
        "matrix": bits.view(np.matrix),
        "subclass": bits.view(Subclass),
        "mapped": mapped(folder, bits),
        "mapped int64": mapped(folder, bits.astype("int64")),
        "mapped big float64": mapped(folder, bits.astype(">f8")),
        "mapped big int64": mapped(folder, bits.astype(">i8")),
        "object": bits.astype(object),
        "jax": jnp.asarray(bits),
        "jax bfloat16": jnp.asarray(bits, "bfloat16"),
        "array": OfArray(bits.astype("float64")),
        "array interface": OfInterface(bits),
        "dlpack": OfDLPack(bits),
        "dlpack bfloat16": OfDLPack(jnp.asarray(bits, "bfloat16")),
    }
    if pd is not None:
        arrays |= {
            "frame": pd.DataFrame(bits.astype("int64")),
            "mixed frame": pd.DataFrame(dict(enumerate(bits.T))).astype({0: "int64"}),
            "nullable frame": pd.DataFrame(bits).astype("Float64"),
            "frame of booleans and floats": pd.DataFrame(bits).astype({0: "bool"}),
            "sparse frame": pd.DataFrame(bits).astype(pd.SparseDtype("float32", 0)),
            "frame of categories": pd.DataFrame(bits.astype("int64")).astype("category"),
        }
    arrays = {name: (array, bits) for name, array in arrays.items()}
    first = np.broadcast_to(bits[:1], bits.shape)
    return arrays | {"zero stride": (first, np.array(first))}


def rejected(bits):
    names = [(f"f{i}", "f4") for i in range(bits.shape[1])]
    arrays = {
        "masked": np.ma.masked_array(bits, mask=bits > 0),
        "not masked": np.ma.masked_array(bits),
        "complex64": bits.astype("complex64"),
        "complex256": bits.astype("clongdouble"),
        "jax complex": jnp.asarray(bits, "complex64"),
        "object": np.where(bits > 0, bits.astype(object), None),
        "str": bits.astype(str),
        "bytes": bits.astype(bytes),
        "StringDType": bits.astype(str).astype(np.dtypes.StringDType()),
        "datetime": bits.astype("datetime64[s]"),
        "timedelta": bits.astype("timedelta64[s]"),
        "structured": np.zeros(len(bits), names),
        "record": np.zeros(len(bits), names).view(np.recarray),
        "void": np.zeros(len(bits), "V4"),
        "refusing": Refusing(bits),
        "string": "one",
        "set": {1.0},
    }
    if pd is not None:
        arrays |= {
            "frame of strings": pd.DataFrame(bits.astype(str)),
            "categories": pd.DataFrame({"c": pd.Categorical(["a", "b", "a", "b"])}),
            "nullable missing": pd.DataFrame({"c": pd.array([True, None, True, False])}),
            "frame of dates": pd.DataFrame(bits.astype("datetime64[s]")),
        }
    return arrays


@functools.cache
def dense():
    trainer = fk.Trainer("sgd", "mse", metrics=["mae"])
    model = fk.Sequential([fk.Input((3,)), layers.Dense(1)])
    return trainer, trainer.init(model, KEY)


@functools.cache
def sparse():
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer("sgd", loss, metrics=["accuracy"])
    model = fk.Sequential([fk.Input((3,)), layers.Dense(2)])
    return trainer, trainer.init(model, KEY)


@functools.cache
def embedded():
    trainer = fk.Trainer("sgd", "mse")
    inputs = fk.Input((3,), dtype="int32")
    y = layers.GlobalAveragePooling1D()(layers.Embedding(3, 2)(inputs))
    return trainer, trainer.init(fk.Model(inputs, layers.Dense(1)(y)), KEY)


OPTIONS = {"batch_size": 2, "verbose": 0}


def fitted(pair, x, y, **options):
    trainer, run = pair
    return trainer.fit(run, x, y, shuffle=False, **OPTIONS, **options)[0].model


def stepped(pair, *batch):
    trainer, run = pair
    new, logs = trainer.step(run, batch)
    return new.model, logs


def metric(value, *batch, **options):
    return value.result(value.update(value.init(), *batch, **options))


def over_loss(x):
    return fk.losses.MeanSquaredError()(BITS, x), fk.losses.Huber(reduction="none")(x, BITS)


ROWS = {
    "fit": lambda x: fitted(dense(), x, LABELS),
    "fit of batches": lambda x: dense()[0].fit(dense()[1], [(x, LABELS)], verbose=0)[0].model,
    "validation": lambda x: (
        dense()[0]
        .fit(dense()[1], BITS, LABELS, validation_data=(x, LABELS), **OPTIONS)[1]
        .history["val_loss"]
    ),
    "evaluate": lambda x: dense()[0].evaluate(dense()[1], x, LABELS, **OPTIONS),
    "predict": lambda x: dense()[0].predict(dense()[1], x, batch_size=2),
    "predict of one batch": lambda x: dense()[0].predict(dense()[1], x),
    "step": lambda x: stepped(dense(), x, LABELS),
    "run": lambda x: dense()[0].run(dense()[1], (x, LABELS), 1, batch_size=2)[1],
    "model": lambda x: dense()[1].model(x),
    "apply": lambda x: dense()[1].model.apply(x, training=True).value,
    "jit": lambda x: jax.jit(lambda m: m(x))(dense()[1].model),
    "loss": over_loss,
    "metric": lambda x: metric(fk.metrics.MeanAbsoluteError(), BITS, x),
    "AUC": lambda x: metric(fk.metrics.AUC(), BITS, x),
    "loss function": lambda x: fk.losses.mean_squared_error(x, BITS),
    "accuracy": lambda x: metric(fk.metrics.CategoricalAccuracy(), x, x),
    # ids of an embedding
    "ids of fit": lambda x: fitted(embedded(), x, LABELS),
    "ids of predict": lambda x: embedded()[0].predict(embedded()[1], x),
    "ids of a model": lambda x: embedded()[1].model(x),
    "ids of a layer": lambda x: embedded()[1].model.layers["embedding"](x),
}
COLUMNS = {
    "targets of fit": lambda y: fitted(dense(), BITS, y),
    "labels of fit": lambda y: fitted(sparse(), BITS, y),
    "labels of evaluate": lambda y: sparse()[0].evaluate(sparse()[1], BITS, y, **OPTIONS),
    "labels of step": lambda y: stepped(sparse(), BITS, y),
    "weights of fit": lambda w: fitted(dense(), BITS, LABELS, sample_weight=w),
    "weights of step": lambda w: stepped(dense(), BITS, LABELS, w),
    "classes of fit": lambda y: fitted(sparse(), BITS, y, class_weight={1: 2.0}),
    "labels of a loss": lambda y: fk.losses.SparseCategoricalCrossentropy()(y, PREDICTED),
    "weights of a loss": lambda w: fk.losses.MeanSquaredError()(LABELS, BITS[:, :1], w),
    "labels of a metric": lambda y: metric(fk.metrics.SparseCategoricalAccuracy(), y, PREDICTED),
    "weights of a metric": lambda w: metric(
        fk.metrics.BinaryAccuracy(), LABELS, BITS[:, :1], sample_weight=w
    ),
    "weights of a mean": lambda w: metric(fk.metrics.Mean(), LABELS, sample_weight=w),
}
ENTRIES = {**ROWS, **COLUMNS}
THREE_PARTS = re.compile(r"expected .*received .*[.] .*\w", re.S)


def equal(result, reference):
    result, reference = (jax.tree.leaves(jax.device_get(t)) for t in (result, reference))
    pairs = zip(result, reference, strict=True)
    return all(np.allclose(a, b, rtol=1e-6, atol=1e-7, equal_nan=True) for a, b in pairs)


def bits_of(name):
    return BITS if name in ROWS else LABELS


def failures(name, arrays):
    """The kinds whose result differs from the float32 array's result or that raise an error."""
    faults, references, entry = {}, {}, ENTRIES[name]
    for kind, (array, plain) in arrays.items():
        plain = plain.astype("int32") if name.startswith("ids") else plain
        number = plain.tobytes()
        if number not in references:
            references[number] = entry(plain)
        try:
            if not equal(entry(array), references[number]):
                faults[kind] = "another result"
        except (TypeError, ValueError) as error:
            faults[kind] = str(error)
    return faults


def chosen(name, arrays):
    """The kinds that an entry point accepts; an int32 input accepts no floats."""
    if not name.startswith("ids"):
        return arrays
    return {kind: pair for kind, pair in arrays.items() if re.search(r"int(8|16|32|64)$", kind)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENTRIES)
def test_common_array_kinds_give_equal_results(name, tmp_path):
    arrays = chosen(name, kinds(bits_of(name), tmp_path))
    kind_names = (*FEW, "bool") if name.startswith("weights") else FEW
    assert failures(name, {kind: arrays[kind] for kind in kind_names if kind in arrays}) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENTRIES)
def test_all_array_kinds_give_equal_results(name, tmp_path):
    assert failures(name, chosen(name, kinds(bits_of(name), tmp_path))) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["predict", "model", "loss"])
def test_all_array_kinds_give_equal_results_without_training(name, tmp_path):
    assert failures(name, kinds(BITS, tmp_path)) == {}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", ENTRIES)
def test_rejected_arrays_are_explained(name):
    entry, unexplained = ENTRIES[name], {}
    for kind, array in rejected(bits_of(name)).items():
        try:
            entry(array)
            unexplained[kind] = "accepted"
        except (TypeError, ValueError) as error:
            if not THREE_PARTS.search(str(error)):
                unexplained[kind] = str(error)
    assert unexplained == {}


def series_calls():
    trainer, run = sparse()
    for y in (LABELS[:, 0].astype("int64"), pd.Series(LABELS[:, 0], dtype="Int64")):
        x, w = pd.DataFrame(BITS), pd.Series([1.0, 2.0, 0.0, 1.0])
        yield trainer.fit(run, x, y, sample_weight=w, validation_split=0.25, **OPTIONS)[0].model


@pytest.mark.exhaustive
@pytest.mark.skipif(pd is None, reason="pandas is not installed")
def test_series_are_targets_and_weights():
    first, second = series_calls()
    assert equal(first, second)


@pytest.mark.exhaustive
def test_tensors_of_pytorch():
    torch = pytest.importorskip("torch")
    for name in ("float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"):
        tensor = torch.tensor(BITS).to(getattr(torch, name))
        for entry in ("predict", "model", "loss", "step"):
            assert failures(entry, {name: (tensor, BITS)}) == {}
    with pytest.raises(TypeError, match="expected an array, received a Tensor .*requires grad"):
        ROWS["model"](torch.tensor(BITS, requires_grad=True))


EXTREMES = {
    "int64": (2**31, 2**32 + 1, 2**63 - 1, -(2**63)),
    ">i8": (2**32,),
    "uint64": (2**32, 2**64 - 1),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ENTRIES)
def test_integers_beyond_32_bits_do_not_wrap(name):
    entry, unexplained = ENTRIES[name], {}
    for dtype, numbers in EXTREMES.items():
        for number in numbers:
            array = bits_of(name).astype(dtype)
            array[2, -1] = number
            try:
                result = jax.tree.leaves(entry(array))
                # sample weights are converted to floats immediately
                if not name.startswith("weights of fit") or not all(np.all(a == a) for a in result):
                    unexplained[number] = "accepted"
            except ValueError as error:
                if not re.search(r"row 2\b.*(received|label) -?\d", str(error)):
                    unexplained[number] = str(error)
    assert unexplained == {}


FLOATS = {"nan": np.nan, "infinity": np.inf, "beyond float32": 1e300}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("name", [n for n in ENTRIES if "ids" not in n])
def test_numbers_that_are_not_finite(name, kind):
    array = bits_of(name).astype("float64")
    array[2, -1] = FLOATS[kind]
    try:
        result = jax.tree.leaves(ENTRIES[name](array))
    except (ValueError, fk.NonFiniteError) as error:
        # batches are read once: the non-finite step names its batch
        row = "batch 1" if name == "fit of batches" else "row 2"
        assert re.search(rf"{row}\b.*(received|label)", str(error)), error
    else:  # a pure computation: the outputs show the NaN
        assert name.split()[0] not in ("fit", "evaluate", "predict", "validation")
        ordered = kind != "nan" and name in ("AUC", "accuracy")  # infinity is a valid score
        assert ordered or not all(np.isfinite(a).all() for a in result)


def test_empty_arrays_and_single_numbers():
    empty, number = BITS[:0], np.float32(1)
    for name in ("fit", "evaluate", "predict"):
        with pytest.raises(ValueError, match=r"row"):
            ROWS[name](empty)
        with pytest.raises(ValueError, match=r"expected an array with a row for each sample"):
            ROWS[name](number)
    assert ROWS["model"](empty).shape == (0, 1)
    assert ROWS["model"](empty.astype(">f8")).shape == (0, 1)
    with pytest.raises(ValueError, match="expected shape"):
        ROWS["model"](number)
    for name in ("loss", "accuracy"):
        with pytest.raises(ValueError, match="y_pred: expected predictions .* scalar"):
            ENTRIES[name](number)


def constant(array):
    dtype = "int32" if array.dtype.kind == "i" else "float32"
    inputs = fk.Input(batch_shape=BITS.shape, dtype=dtype)
    return fk.Model(inputs, inputs + array)(BITS.astype(dtype))


def recurrent(**options):
    layer = layers.SimpleRNN(3).build(KEY, (None, 3, 2))
    return layer.apply(np.ones((4, 3, 2), "float32"), **options).value


OTHERS = {
    "adapt": lambda a: layers.Normalization().adapt(a).mean,
    "adapted bins": lambda a: layers.Discretization(num_bins=2).adapt(a).bin_boundaries,
    "bins": lambda a: layers.Discretization([0.5])(a),
    "encoding": lambda a: layers.CategoryEncoding(2)(a),
    "lookup": lambda a: layers.IntegerLookup(vocabulary=[1])(a),
    "weights": lambda a: layers.Dense(3).build(KEY, (None, 4)).set_weights([a, a[0]])[0].kernel,
    "constant": constant,
    "option": lambda a: recurrent(initial_state=[a]),
    "mask": lambda a: recurrent(mask=a),
    "operation": lambda a: fk.ops.negative(a),
    "find_nan": lambda a: fk.find_nan(dense()[1], (a, LABELS), dense()[0]) is None,
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_accept_big_endian_and_64_bit_arrays(name, tmp_path):
    entry, arrays = OTHERS[name], kinds(BITS, tmp_path)
    for kind in ("big float32", "big int64", "mapped big float64", "int64"):
        array = arrays[kind][0]
        plain = np.asarray(array, "float32" if "float" in kind else "int32")
        assert equal(entry(array), entry(plain)), kind
    with pytest.raises(TypeError, match=r"expected an array without a mask, received .*Fill it"):
        entry(np.ma.masked_array(BITS, BITS > 0))


def test_integers_of_operations_do_not_wrap():
    with pytest.raises(ValueError, match=r"fk\.ops\.sin, row 1: expected integers .* 4294967296"):
        fk.ops.sin(np.array([1, 2**32]))
    with pytest.raises(ValueError, match=r"row 1: expected integers .* 4294967296"):
        recurrent(initial_state=[np.array([[1] * 3, [2**32] * 3, [1] * 3, [1] * 3])])
