"""Names of unknown sizes in files: fkeras reads them back, and Keras opens the files without them."""

import json

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)


def dense(*symbols, **options):
    inputs = list(symbols) if len(symbols) > 1 else symbols[0]
    return fk.Model(inputs, [layers.Dense(2)(x) for x in symbols], **options)


def by_name():
    a, b = fk.Input(("time", 3), name="a"), fk.Input((None, 3), name="b")
    return fk.Model({"a": a, "b": b}, [layers.Dense(2)(a), layers.Dense(2)(b)])


def nested():
    inner = dense(fk.Input(("words", 3)), name="inner")
    x = fk.Input(("2*h", 4, 3))
    return fk.Model(x, inner(layers.Reshape((-1, 3))(x)))


def nested_sequential():
    x = fk.Input(("2*h", 3))
    return fk.Model(x, fk.Sequential([layers.Dense(2)], name="inner")(x))


def ids():
    x = fk.Input(("time",), dtype="int32")
    return fk.Model(x, layers.Embedding(5, 2)(x))


# model, names and sizes of each input, and the sizes of a batch
FORMS = {
    "none": (lambda: dense(fk.Input((None, 3))), [("b", "d1", 3)], [(2, 4, 3)]),
    "name": (lambda: dense(fk.Input(("time", 3))), [("b", "time", 3)], [(2, 4, 3)]),
    "batch-name": (lambda: dense(fk.Input(("b", 3))), [("b", "b", 3)], [(2, 2, 3)]),
    "expressions": (
        lambda: dense(fk.Input(("4*h", "floordiv(w, 2) + 1", 3))),
        [("b", "4*h", "floordiv(w, 2) + 1", 3)],
        [(2, 8, 3, 3)],
    ),
    "other-order": (lambda: dense(fk.Input(("1+h*4", 3))), [("b", "4*h + 1", 3)], [(2, 9, 3)]),
    "batch-size": (
        lambda: dense(fk.Input(("time", 3), batch_size=2)),
        [(2, "time", 3)],
        [(2, 4, 3)],
    ),
    "batch-shape": (
        lambda: dense(fk.Input(batch_shape=("rows", "time", 3))),
        [("rows", "time", 3)],
        [(2, 4, 3)],
    ),
    "list": (
        lambda: dense(fk.Input(("time", 3)), fk.Input(("words", 3)), fk.Input((3,))),
        [("b", "time", 3), ("b", "words", 3), ("b", 3)],
        [(2, 4, 3), (2, 5, 3), (2, 3)],
    ),
    "dict": (by_name, [("b", "time", 3), ("b", "d1", 3)], [(2, 4, 3), (2, 5, 3)]),
    "sequential": (
        lambda: fk.Sequential([fk.Input(("time", 3)), layers.Dense(2)]),
        [("b", "time", 3)],
        [(2, 4, 3)],
    ),
    "nested": (nested, [("b", "2*h", 4, 3)], [(2, 6, 4, 3)]),
    "nested-sequential": (nested_sequential, [("b", "2*h", 3)], [(2, 6, 3)]),
    "ids": (ids, [("b", "time")], [(2, 4)]),
}


def names_of(model):
    return [model.graph.specs[slot].dims for slot in model.graph.input_slots]


def with_batch(model, sizes):
    arrays = [np.random.default_rng(0).integers(0, 5, size) for size in sizes]
    dtypes = [model.graph.specs[slot].dtype for slot in model.graph.input_slots]
    arrays = [array.astype(dtype) for array, dtype in zip(arrays, dtypes, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(model.inputs), arrays)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", FORMS)
def test_files_and_configurations_keep_the_names(form, tmp_path):
    make, names, sizes = FORMS[form]
    model = make().build(KEY)
    batch = with_batch(model, sizes)
    expected = jax.tree.leaves(model(batch))
    fk.save_model(tmp_path / "m.keras", model, {})
    fk.save_weights(tmp_path / "m.weights.h5", model)
    unbuilt = type(model).from_config(json.loads(model.to_json()))
    weights = fk.load_weights(tmp_path / "m.weights.h5", unbuilt.build(jax.random.key(1)))[0]
    for again in (fk.load_model(tmp_path / "m.keras").model, weights):
        assert names_of(again) == names_of(model) == names
        for value, wanted in zip(jax.tree.leaves(again(batch)), expected, strict=True):
            np.testing.assert_array_equal(value, wanted)
    with keras_rules():
        opened = keras.models.load_model(tmp_path / "m.keras")
        values = jax.tree.leaves(opened(batch))
        from_json = getattr(keras, type(model).__name__).from_config(json.loads(model.to_json()))
    for value, wanted in zip(values, expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-6)
    nulls = [tuple(d if isinstance(d, int) else None for d in dims) for dims in names]
    for reference in (opened, from_json):
        assert [tuple(x.shape) for x in jax.tree.leaves(reference.inputs)] == nulls


def config_of(**options):
    config = dense(fk.Input(("time", 3), name="x")).get_config()
    config["layers"][0]["config"].update(options)
    return config


def test_names_in_the_shape_as_earlier_versions_wrote_them():
    config = config_of(batch_shape=["b", "4*h", 3])
    del config["layers"][0]["config"]["size_names"]
    assert names_of(fk.Model.from_config(config)) == [("b", "4*h", 3)]


def test_a_size_that_another_program_fixed_has_no_name():
    assert names_of(fk.Model.from_config(config_of(batch_shape=[None, 7, 3]))) == [("b", 7, 3)]


@pytest.mark.parametrize(
    "names",
    [
        *([None, "time"], "time", 5, {}, [None, 4, None], [None, ["t"], None]),
        *(
            [None, text, None]
            for text in ("", "4 h", "2*(h+1)", "h^999999999", "a, b", "...", "max")
        ),
        *(
            [None, text, None]
            for text in ("max(" * 60 + "h" + ", 1)" * 60, "h*" * 5000 + "h", "(h")
        ),
    ],
)
def test_damaged_names_are_errors(names):
    with pytest.raises(fk.FKerasError, match=r"'x'.*(size_names|name of an unknown size)"):
        fk.Model.from_config(config_of(size_names=names))


@pytest.mark.parametrize("size", ["", "4 h", "2*(h+1)", "h**2", "max", "h.w", "a, b", "h^100"])
def test_sizes_that_are_no_names(size):
    with pytest.raises(ValueError, match="expected the name of an unknown size or an expression"):
        fk.Input((size, 3))
