"""Trainings of models that take strings: equal to trainings of their device parts on numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.callbacks import ModelCheckpoint

CITIES = np.array(["Rome", "Oslo", "Rome", "Bonn", "Oslo", "Lima", "Bonn"])
AREAS = np.linspace(-1, 1, 7, dtype="float32")[:, None]
PRICES = np.array([1, 0, 1, 2, 0, 1, 2], "int32")
X = {"city": CITIES, "area": AREAS}
KEY = jax.random.key(3)


def _model():
    city = fk.Input((), dtype="string", name="city")
    area = fk.Input((1,), name="area")
    ids = layers.StringLookup(vocabulary=["Rome", "Oslo", "Bonn"], name="lookup")(city)
    y = layers.Concatenate()([layers.Embedding(4, 3, name="place")(ids), area])
    y = layers.BatchNormalization(name="norm")(layers.Dense(4, name="wide")(y))
    return fk.Model(
        {"city": city, "area": area}, layers.Dense(3, name="head")(layers.Dropout(0.1)(y))
    )


MODEL = _model()
HOST, DEVICE = fk.split_host(MODEL)
NUMBERS = HOST(X)
TRAINER = fk.Trainer(
    "adam", fk.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)


@functools.lru_cache
def _runs():
    return TRAINER.init(MODEL, KEY), TRAINER.init(DEVICE, KEY)


def _equal(whole, device):
    """Compares two runs, or results of two calls, leaf by leaf."""
    a, b = (jax.tree.map(np.asarray, jax.tree.leaves(tree)) for tree in (whole, device))
    assert len(a) == len(b)
    for one, two in zip(a, b, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6, atol=1e-7)


def _parts(run):
    return (
        dict(zip(_paths(run.model), jax.tree.leaves(run.model), strict=True)),
        run.state,
        run.step,
    )


def _paths(model):
    return [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(model)[0]
    ]


def _fitted(x_whole=X, x_device=NUMBERS, *args, **options):
    whole, device = _runs()
    options = {"batch_size": 3, "epochs": 2, "verbose": 0, **options}
    one = TRAINER.fit(whole, x_whole, *args, **options)
    two = TRAINER.fit(device, x_device, *args, **options)
    return one, two


@pytest.mark.exhaustive
def test_a_training_on_strings_is_that_of_the_device_part():
    (run, history), (other, other_history) = _fitted(X, NUMBERS, PRICES, validation_split=0.3)
    assert type(run.model) is fk.Model
    assert run.model.input_names == ("city", "area")
    assert set(run.model.layers) == set(MODEL.layers)
    _equal(_parts(run), _parts(other))
    assert history.history.keys() == other_history.history.keys()
    _equal(history.history, other_history.history)
    logs = TRAINER.evaluate(run, X, PRICES, batch_size=3, verbose=0)
    _equal(logs, TRAINER.evaluate(other, NUMBERS, PRICES, batch_size=3, verbose=0))
    np.testing.assert_allclose(
        TRAINER.predict(run, X, batch_size=3), run.model(X, state=run.state), rtol=1e-5, atol=1e-6
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"class_weight": {0: 2.0, 2: 0.5}, "sample_weight": np.arange(7, dtype="float32")},
        {"shuffle": False, "validation_data": (X, PRICES)},
        {"batch_size": 8},
    ],
)
def test_options_of_fit(options):
    device = dict(options)
    if "validation_data" in options:
        device["validation_data"] = (NUMBERS, PRICES)
    whole_run, device_run = _runs()
    settings = {"batch_size": 3, "verbose": 0}
    one = TRAINER.fit(whole_run, X, PRICES, **{**settings, **options})
    two = TRAINER.fit(device_run, NUMBERS, PRICES, **{**settings, **device})
    _equal(_parts(one.run), _parts(two.run))
    _equal(one.history.history, two.history.history)


FORMS = {
    "list": CITIES.tolist(),
    "objects": CITIES.astype(object),
    "bytes": CITIES.astype("S"),
    "array": CITIES,
}


def _words():
    x = fk.Input((), dtype="string", name="words")
    return fk.Model(x, layers.Embedding(4, 3)(layers.StringLookup(vocabulary=["Rome", "Oslo"])(x)))


@functools.lru_cache
def _words_run():
    trainer = fk.Trainer("sgd", "mse")
    return trainer, trainer.init(_words(), KEY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", [*FORMS, "Series", "DataFrame", "category"])
def test_forms_of_strings(form):
    trainer, run = _words_run()
    y = np.zeros((7, 3), "float32")
    if form in FORMS:
        x = FORMS[form]
    else:
        pandas = pytest.importorskip("pandas")
        x = pandas.Series(CITIES, name="words")
        x = {"words": x} if form == "DataFrame" else x.astype(form) if form == "category" else x
    expected = run.model(CITIES)
    np.testing.assert_allclose(trainer.predict(run, x), expected, rtol=1e-6)
    fitted, _ = trainer.fit(run, x, y, shuffle=False, verbose=0)
    other, _ = trainer.fit(run, CITIES, y, shuffle=False, verbose=0)
    _equal(fitted.model, other.model)
    _equal(trainer.evaluate(run, x, y, verbose=0), trainer.evaluate(run, CITIES, y, verbose=0))


def _source(x, size=3):
    rows = range(0, 7, size)
    return [
        ({name: value[i : i + size] for name, value in x.items()}, PRICES[i : i + size])
        for i in rows
    ]


@pytest.mark.exhaustive
def test_sources_of_batches():
    (one, history), (two, other_history) = _fitted(_source(X), _source(NUMBERS))
    _equal(_parts(one), _parts(two))
    _equal(history.history, other_history.history)
    lists = [({k: v.tolist() for k, v in x.items()}, y) for x, y in _source(X)]
    three, _ = TRAINER.fit(_runs()[0], iter(lists), epochs=1, verbose=0)
    four, _ = TRAINER.fit(_runs()[1], _source(NUMBERS), epochs=1, verbose=0)
    _equal(_parts(three), _parts(four))
    logs = TRAINER.evaluate(one, _source(X), verbose=0)
    _equal(logs, TRAINER.evaluate(one, X, PRICES, batch_size=3, verbose=0))


@pytest.mark.exhaustive
def test_step_and_run():
    whole, device = _runs()
    one, logs = TRAINER.step(whole, (X, PRICES))
    two, other_logs = TRAINER.step(device, (NUMBERS, PRICES))
    _equal(_parts(one), _parts(two))
    _equal(logs, other_logs)
    one, logs = TRAINER.run(whole, (X, PRICES), epochs=2, batch_size=3)
    two, other_logs = TRAINER.run(device, (NUMBERS, PRICES), epochs=2, batch_size=3)
    _equal(_parts(one), _parts(two))
    _equal(logs, other_logs)
    with pytest.raises(
        TypeError, match=r"strings, which exist on the host.*fk.split_host\(model\)"
    ):
        jax.jit(TRAINER.step)(whole, (NUMBERS, PRICES))


@pytest.mark.exhaustive
def test_checkpoints_and_callbacks_have_the_whole_model(tmp_path):
    folder = tmp_path / "training"
    best = ModelCheckpoint(tmp_path / "best.keras", monitor="loss")
    options = {"batch_size": 3, "verbose": 0}
    half, _ = TRAINER.fit(
        _runs()[0], X, PRICES, epochs=1, callbacks=[best], checkpoint=folder, **options
    )
    model, state = fk.load_model(tmp_path / "best.keras")
    np.testing.assert_allclose(
        model(X, state=state), half.model(X, state=half.state), rtol=1e-5, atol=1e-6
    )
    resumed, _ = TRAINER.fit(_runs()[0], X, PRICES, epochs=2, checkpoint=folder, **options)
    whole, _ = TRAINER.fit(_runs()[0], X, PRICES, epochs=2, **options)
    _equal(_parts(resumed), _parts(whole))


@pytest.mark.exhaustive
def test_blocks_that_run_as_a_loop():
    x = fk.Input((), dtype="string", name="x")
    y = layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=3)(x)
    y = layers.Flatten()(layers.Embedding(4, 2)(y))
    for number in range(4):
        y = layers.Dense(6, "tanh", name=f"block_{number}")(y)
    model = fk.Model(x, layers.Dense(1)(y))
    texts, targets = ["a b", "b", "a a a a"], np.ones((3, 1), "float32")
    runs = []
    for depth in ("scan", "unroll"):
        trainer = fk.Trainer("adam", "mse", depth=depth)
        run, _ = trainer.fit(trainer.init(model, KEY), texts, targets, epochs=2, verbose=0)
        assert list(run.model.layers) == list(model.layers)
        runs.append(run.model)
    _equal(*runs)


@pytest.mark.exhaustive
def test_a_mesh(recwarn):
    mesh = jax.make_mesh((1,), ("data",))
    trainer = fk.Trainer("sgd", "mse", mesh=mesh)
    plain, run = _words_run()
    y = np.ones((7, 3), "float32")
    one, _ = trainer.fit(trainer.init(_words(), KEY), CITIES, y, verbose=0)
    two, _ = plain.fit(run, CITIES, y, verbose=0)
    _equal(one.model, two.model)
    np.testing.assert_allclose(trainer.predict(one, CITIES), plain.predict(two, CITIES), rtol=1e-6)


@pytest.mark.exhaustive
def test_plan_and_profile_of_strings():
    whole, device = _runs()
    plan = fk.plan(whole, (X, PRICES), TRAINER)
    other = fk.plan(device, (NUMBERS, PRICES), TRAINER)
    assert [(c.name, c.flops) for c in plan.calls] == [(c.name, c.flops) for c in other.calls]
    assert fk.plan(MODEL, (X, PRICES), TRAINER).flops == other.flops
    profile = fk.profile(TRAINER, whole, (X, PRICES), steps=1)
    assert {"place", "wide", "head"} <= {call.name for call in profile.calls}


@pytest.mark.exhaustive
def test_nan_is_found_in_strings_and_in_the_batch_of_the_error():
    x = fk.Input((), dtype="string", name="x")
    y = layers.Embedding(3, 2)(layers.StringLookup(vocabulary=["a", "b"])(x))
    model = fk.Model(x, layers.Lambda(jnp.log, name="log")(y))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    assert fk.find_nan(run, ["a", "b"]).path == "log"
    with pytest.raises(fk.training.NonFiniteError) as raised:
        _ = trainer.fit(run, ["a", "b"], np.ones((2, 2)), verbose=0)
    assert raised.value.run.model.input_names == ("x",)
    assert fk.find_nan(raised.value.run, raised.value.batch, trainer).path == "log"
    assert fk.find_nan(run, (["a", "b"], np.ones((2, 2))), trainer).path == "log"


def test_predictions_that_are_strings():
    trainer, run = _words_run()
    words = layers.StringLookup(vocabulary=["p", "q"], invert=True, name="word")
    best = words(fk.ops.argmax(run.model.outputs, axis=-1))
    model = fk.Model(run.model.inputs, {"scores": run.model.outputs, "word": best})
    expected = model(CITIES)
    predictions = trainer.predict(run.replace(model=model), CITIES, batch_size=2)
    np.testing.assert_allclose(predictions["scores"], expected["scores"], rtol=1e-6)
    assert predictions["word"].tolist() == expected["word"].tolist()
    with pytest.raises(fk.FKerasError, match="'word'.*strings.*have no loss"):
        _ = fk.Trainer("sgd", {"scores": "mse"}).init(model, KEY)


def _fit(x, y=PRICES, **options):
    _ = TRAINER.fit(_runs()[0], x, y, verbose=0, **options)


MISSING = CITIES.astype(object)
MISSING[2:4] = None, np.nan


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: _fit({**X, "city": MISSING}),
            ValueError,
            r"fit: x, input 'city', row 2: .*missing value None; 2 of 7 .*fillna\(\"unknown\"\)",
        ),
        (
            lambda: _fit({**X, "city": ["Rome", float("nan"), *CITIES[2:]]}),
            ValueError,
            "input 'city', row 1: .*missing value nan; 1 of 7",
        ),
        (
            lambda: _fit(_source({**X, "city": MISSING}), None),
            ValueError,
            "batch 1: x, input 'city', row 2: .*missing value None",
        ),
        (
            lambda: _fit({**X, "city": ["Rome", 1, *CITIES[2:]]}),
            TypeError,
            r"input 'city', row 1: expected strings, received 1 \(int\)",
        ),
        (
            lambda: _fit({"city": AREAS[:, 0], "area": AREAS}),
            fk.FKerasError,
            "input 'city': expected strings, received float32",
        ),
        (lambda: _fit({"city": CITIES, "area": CITIES}), TypeError, "'area': expected numbers"),
        (lambda: _fit({"city": CITIES[:3], "area": AREAS}), ValueError, r"x\['city'\] 3, y 7"),
        (lambda: _fit(X, PRICES[:3]), ValueError, r"x\['city'\] 7, y 3"),
        (lambda: _fit({"city": CITIES}), fk.FKerasError, "missing: area"),
        (
            lambda: _fit({"city": CITIES[:, None], "area": AREAS}),
            fk.FKerasError,
            r"input 'city': expected shape \(b,\), received \(7, 1\)",
        ),
        (
            lambda: _fit({"city": CITIES, "area": AREAS * np.nan}),
            ValueError,
            r"x\['area'\], row 0: expected finite numbers",
        ),
        (
            lambda: _fit(X, CITIES),
            TypeError,
            "words, such as 'Rome'. .*StringLookup.*get_vocabulary",
        ),
        (lambda: _fit(X, CITIES.tolist()), TypeError, "fit: y: expected numbers, received words"),
        (
            lambda: _fit(X, validation_data=(X, CITIES)),
            TypeError,
            "validation_data: y: expected numbers, received words",
        ),
        (
            lambda: TRAINER.step(_runs()[0], (X, CITIES)),
            TypeError,
            "Trainer.step: y: expected numbers, received words",
        ),
        (
            lambda: fk.export_step(TRAINER, _runs()[0], (X, PRICES), "step.jax"),
            fk.FKerasError,
            "export_step.*received strings.*split_host",
        ),
    ],
)
def test_bad_data_of_models_of_strings(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.exhaustive
def test_labels_that_are_words_are_numbered_as_the_message_says():
    lookup = layers.StringLookup(num_oov_indices=0).adapt(CITIES)
    _fit(X, np.minimum(lookup(CITIES), 2))
    assert lookup.get_vocabulary() == ["Rome", "Oslo", "Bonn", "Lima"]


def test_models_of_strings_without_a_part_to_train():
    x = fk.Input((), dtype="string")
    model = fk.Model(x, layers.StringLookup(vocabulary=["a"])(x))
    with pytest.raises(fk.FKerasError, match=r"host only, and has nothing to train.*model\(x\)"):
        _ = TRAINER.init(model, KEY)
    trainer = fk.Trainer("sgd", objective=lambda *_: fk.Output(jnp.float32(0)))
    with pytest.raises(fk.FKerasError, match="objective computes on the device.*split_host"):
        _ = trainer.init(MODEL, KEY)


@pytest.mark.exhaustive
def test_texts_of_changing_length():
    x = fk.Input((), dtype="string", name="text")
    words = layers.TextVectorization(vocabulary=["a", "b"])
    y = layers.GlobalAveragePooling1D()(layers.Embedding(4, 2, mask_zero=True)(words(x)))
    model = fk.Model(x, y)
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    texts, y = ["a b", "b", "a a a"], np.ones((3, 2), "float32")
    fitted, _ = trainer.fit(run, texts, y, batch_size=2, verbose=0)
    np.testing.assert_allclose(
        trainer.predict(fitted, texts, batch_size=1), fitted.model(texts), rtol=1e-5
    )
    with pytest.raises(ValueError, match="batch 2: .*output_sequence_length"):
        _ = trainer.fit(run, [(texts[:2], y[:2]), (texts[1:2], y[1:2])], verbose=0)


@pytest.mark.exhaustive
def test_a_table_is_passed_by_its_columns():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"city": CITIES, "area": AREAS[:, 0]})
    with pytest.raises(
        fk.FKerasError, match=r"received a table. Pass its columns: \{name: x\[\[name\]\]"
    ):
        _fit(table)
    with pytest.raises(fk.FKerasError, match=r"'area': .*x\[\[name\]\] of a table"):
        _fit({"city": table["city"], "area": table["area"]})
    one, _ = TRAINER.fit(
        _runs()[0], {"city": table["city"], "area": table[["area"]]}, PRICES, verbose=0
    )
    two, _ = TRAINER.fit(_runs()[0], X, PRICES, verbose=0)
    _equal(_parts(one), _parts(two))
