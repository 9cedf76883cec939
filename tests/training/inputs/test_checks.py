"""Wrong data are reported before the first step, with the row and a remedy."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import fkeras as fk
from fkeras import layers
from fkeras.training.data import host_arrays
from fkeras.training.inputs import checks

RNG = np.random.default_rng(2)
X = RNG.normal(size=(40, 4)).astype("float32")
Y = (np.arange(40) % 3).astype("int32")
KEY = jax.random.key(0)


class TensorFlow(types.SimpleNamespace):
    """Has the attributes of a SparseTensor or RaggedTensor, which are no arrays."""


def two_inputs():
    left, right = fk.Input((4,), name="left"), fk.Input((None, 2), name="right")
    h = layers.GlobalAveragePooling1D()(right)
    h = layers.Concatenate()([left, h])
    outputs = {"score": layers.Dense(1)(h), "kind": layers.Dense(3, "softmax")(h)}
    return fk.Model({"left": left, "right": right}, outputs)


PAIR = fk.Trainer(loss={"score": "mse", "kind": "sparse_categorical_crossentropy"})
PAIR_RUN = PAIR.init(two_inputs(), KEY)
PX = {"left": X, "right": RNG.normal(size=(40, 5, 2)).astype("float32")}
PY = {"score": X[:, :1], "kind": Y}


def plain(loss="sparse_categorical_crossentropy", units=3):
    x = fk.Input((4,), name="x")
    trainer = fk.Trainer("sgd", loss)
    activation = None if loss == "mse" else "softmax"
    return trainer, trainer.init(fk.Model(x, layers.Dense(units, activation)(x)), KEY)


TRAINER, RUN = plain()
MSE, MSE_RUN = plain("mse", 1)


def put(array, row, value):
    array = np.array(array, "float32")
    array[row] = value
    return array


def fit(x=X, y=Y, **options):
    return TRAINER.fit(RUN, x, y, verbose=0, **options)


def pair(x=PX, y=PY, **options):
    return PAIR.fit(PAIR_RUN, x, y, verbose=0, **options)


CASES = (
    # structure
    (lambda: pair({"lefft": X, "right": PX["right"]}), r"unknown: lefft.*mean 'left'"),
    (
        lambda: pair([X]),
        r"expected 2 inputs as \{'left': left, 'right': right\}, received a list of 1",
    ),
    (lambda: pair(y={"score": X[:, :1], "kindd": Y}), r"'kindd' is unexpected.*mean 'kind'"),
    (lambda: pair(y=X[:, :1]), r"expected 2 arrays \(score, kind\), received one"),
    (lambda: pair(sample_weight={"scor": np.ones(40)}), r"'scor' is unexpected.*mean 'score'"),
    (lambda: pair({**PX, "right": PX["right"][:30]}), r"x\['left'\] 40, x\['right'\] 30"),
    (lambda: pair({**PX, "right": PX["right"][..., :1]}), r"input 'right': expected shape .*2\)"),
    (lambda: fit([X, X]), r"expected 1 inputs"),
    (lambda: fit(np.float32(3)), r"x: expected an array with a row for each"),
    # numbers
    (
        lambda: pair({**PX, "left": put(X, (7, 1), np.inf)}),
        r"x\['left'\], row 7: .*inf at \[7, 1\]",
    ),
    (lambda: MSE.fit(MSE_RUN, X, put(X[:, :1], 5, np.nan)), r"row 5"),
    (
        lambda: fk.Trainer(loss=lambda y, p: abs(y - p)).fit(MSE_RUN, X, put(X[:, :1], 5, np.nan)),
        r"y, row 5: .*1 of 40 rows",
    ),
    (lambda: fit(sample_weight=put(np.ones(40), 3, np.nan)), r"sample_weight, row 3: .*finite"),
    (lambda: fit(np.where(X > 0, X.astype(object), None)), r"received an array of object"),
    (lambda: fit(X.astype(str).astype(object)), r"received an array of <U\d+. Encode"),
    (
        lambda: fit([[1.0, 2.0], [3.0]]),
        r"x: expected numbers in rows of one length, received a list",
    ),
    (lambda: fit(np.array(["a"] * 40)), r"received an array of <U1.*Encode"),
    (lambda: fit(X.astype("datetime64[s]")), r"expected numbers, received an array of datetime64"),
    # labels
    (lambda: fit(y=put(Y, 11, 3).astype("int32")), r"row 11: label 3.*3 classes"),
    (lambda: fit(y=np.eye(3, dtype="float32")[Y]), r"categorical_crossentropy"),
    (lambda: plain("categorical_crossentropy")[0].fit(RUN, X, Y), r"sparse_categorical_crossen"),
    # weights of classes
    (lambda: fit(class_weight={3: 1.0}), r"unknown class 3; .* 3 classes \(0\.\.2\)"),
    (lambda: fit(class_weight={"0": 1.0}), r"unknown class '0'"),
    (lambda: fit(class_weight={0: -1.0}), r"class 0: expected a number of 0 or more, received -1"),
    (lambda: fit(class_weight=[1.0, 2.0]), r"expected a dictionary .* received list"),
    (lambda: pair(class_weight={0: 1.0}), r"one output, received a model with 2.*sample_weight"),
    # arguments
    (lambda: fit(steps_per_epoch=0), r"steps_per_epoch: expected a positive integer"),
    (lambda: fit(batch_size=2.5), r"batch_size: .*received 2\.5"),
    (lambda: fit(validation_freq=0), r"validation_freq"),
    (lambda: fit(validation_split=0.2, validation_data=(X, Y)), r"either validation_split or"),
    (lambda: fit(validation_data=X), r"validation_data as \(x, y\)"),
    (lambda: fit(validation_data=(X, Y[:9])), r"x 40, y 9"),
    (lambda: fit(iter([X])), r"expected arrays, received list_iterator"),
    (lambda: fit(iter([X]), validation_split=0.1), r"expected arrays, received list_iterator"),
    (lambda: fit(scipy.sparse.eye_array(8)), r"received dia_array. Convert it: x.toarray\(\)"),
    (lambda: fit(TensorFlow(dense_shape=(8, 3))), r"Convert it: tf\.sparse\.to_dense\(x\)"),
    (lambda: fit(TensorFlow(to_tensor=None)), r"Convert it: x\.to_tensor\(\)"),
    (lambda: TRAINER.evaluate(RUN, X, Y, steps=0), r"steps: expected"),
    (lambda: TRAINER.fit(X, Y), r"run = trainer\.init\(model, jax\.random\.key\(0\)\)"),
    (lambda: TRAINER.predict(RUN.model, X), r"trainer\.predict\(run, \.\.\.\)"),
    (lambda: TRAINER.predict(RUN, iter([])), r"Trainer\.predict: expected batches.* empty source"),
    (lambda: TRAINER.predict(RUN, lambda step: X), r"missing steps for a function of the step"),
    (lambda: TRAINER.predict(RUN, [(X,)], steps=2), r"steps up to 1, the length of the source"),
    (lambda: TRAINER.predict(RUN, iter([X]), steps=2), r"expected 2 batches, .* ended after 1"),
    (
        lambda: TRAINER.predict(RUN, [(X, Y, Y, Y)]),
        r"predict, batch 1: .*received 4 entries.*tuple",
    ),
    (lambda: TRAINER.predict(RUN, [()]), r"predict, batch 1: expected x, .*received 0 entries"),
    (
        lambda: TRAINER.predict(RUN, iter([X, None])),
        r"predict, batch 2: expected a batch, received N",
    ),
    (
        lambda: TRAINER.predict(RUN, iter([X[:2], X])),
        r"predict, batch 2: expected x of shape \(2, 4\)",
    ),
    (lambda: TRAINER.predict(RUN, iter([X[:0]])), r"data are empty"),
    (lambda: TRAINER.predict(RUN, iter([X[0, 0]])), r"x: .*received a scalar"),
    (lambda: TRAINER.predict(RUN, iter([X, put(X, 3, np.nan)])), r"x, row 3"),
    (lambda: jax.jit(lambda x: TRAINER.predict(RUN, x))(X), r"tracer.*trainer\.step"),
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("call", "message"), CASES, ids=[m for _, m in CASES])
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message) as error:
        call()
    assert len(str(error.value).splitlines()) <= 8


def test_the_missing_channel_axis_names_its_remedy_for_one_of_two_inputs():
    x = {**PX, "left": X[:, 0]}
    with pytest.raises(
        ValueError, match=r"input 'left': expected shape \(b, 4\), received \(40,\)"
    ):
        pair(x)


def test_valid_data_pass():
    assert checks.check_lengths(PX, PY) == 40
    checks.check_finite(np.full((4, 2), 3e38, "float32"), "x")  # the sum overflows
    checks.check_finite(jnp.ones(3, "bfloat16").__array__(), "x")
    checks.check_inputs(PAIR_RUN.model, PX, 8)
    checks.check_inputs(RUN.model, [X], 8)
    host = host_arrays.in_memory(
        host_arrays.as_host({"a": np.ones(3), "b": np.arange(3), "c": jnp.ones(2)}, "x")
    )
    assert [str(host[k].dtype) for k in "abc"] == ["float32", "int32", "float32"]


def test_class_weights_of_labels_one_hot_rows_and_binary_outputs():
    table = {0: 2.0, 2: 0.5}
    expected = np.array([2.0, 1.0, 0.5], "float32")[Y]
    np.testing.assert_array_equal(checks.class_weights(table, Y, RUN.model), expected)
    np.testing.assert_array_equal(checks.class_weights(table, Y[:, None], RUN.model), expected)
    one_hot = np.eye(3, dtype="float32")[Y]
    np.testing.assert_array_equal(checks.class_weights(table, one_hot, RUN.model), expected)
    binary = (Y > 0).astype("float32")[:, None]
    values = checks.class_weights({1: 3.0}, binary, MSE_RUN.model)
    np.testing.assert_array_equal(values, np.where(Y > 0, 3.0, 1.0))
    with pytest.raises(ValueError, match=r"unknown class 2; .* 2 classes"):
        checks.class_weights({2: 1.0}, binary, MSE_RUN.model)


@pytest.mark.exhaustive
def test_dictionaries_of_inputs_and_weights_of_each_output_train():
    weights = {"score": np.ones(40, "float32"), "kind": np.linspace(0, 1, 40)}
    run, history = pair(sample_weight=weights, batch_size=16)
    assert list(history.history) == ["loss", "score_loss", "kind_loss"]
    values = PAIR.predict(run, PX, batch_size=16)
    assert values["kind"].shape == (40, 3)
