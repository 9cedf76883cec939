"""`Trainer(cache_frozen=...)`: trainings on features equal trainings of the whole model."""

import errno
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import Tracer

import fkeras as fk
from fkeras import layers
from fkeras.training.checkpoint.storage.lock import Lock
from fkeras.training.loop import caching
from tests.support.quick_cases import quick_cases

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(22, 4)).astype("float32")
Y = RNG.integers(0, 3, 22)
IDS = RNG.integers(0, 5, (22, 3)).astype("int32")
LOSS = "sparse_categorical_crossentropy"


def frozen(units, name, **options):
    return layers.Dense(units, "tanh", name=name, trainable=False, **options)


def head(name="head"):
    return layers.Dense(3, "softmax", name=name)


def simple():
    x = fk.Input((4,))
    norm = layers.BatchNormalization(name="norm", trainable=False)
    hidden = layers.Dropout(0.3)(norm(frozen(5, "body")(x)))
    return fk.Model(x, head()(layers.BatchNormalization(name="new")(hidden)))


def masked():
    x = fk.Input((3,), dtype="int32")
    table = layers.Embedding(5, 4, mask_zero=True, name="table", trainable=False)
    encoder = fk.Model(x, layers.Dropout(0.2)(table(x)), name="encoder")
    return fk.Model(x, head()(layers.GlobalAveragePooling1D()(encoder(x))))


def several():
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    body = frozen(4, "body")
    hidden = body(a) + body(b)
    outputs = {"p": head("p")(layers.Concatenate()([hidden, b])), "q": layers.Dense(1)(hidden)}
    return fk.Model({"a": a, "b": b}, {**outputs, "features": hidden})


def words():
    x = fk.Input((), dtype="string")
    ids = layers.StringLookup(vocabulary=["one", "two"])(x)
    return fk.Model(x, head()(layers.Embedding(3, 4, name="table", trainable=False)(ids)))


SEVERAL = {"a": X, "b": X[::-1].copy()}
TARGETS = {"p": Y, "q": X[:, :1], "features": X}
CASES: dict[str, Any] = {
    "simple": (simple, X, Y, LOSS, {"validation_split": 0.3}, {}),
    "masked": (masked, IDS, Y, LOSS, {}, {"remat": "full"}),
    "several": (
        several,
        SEVERAL,
        TARGETS,
        {"p": LOSS, "q": "mse"},
        {"sample_weight": np.linspace(0, 1, 22).astype("float32")},
        {},
    ),
    "class_weight": (simple, X, Y, LOSS, {"class_weight": {0: 2.0}, "shuffle": False}, {}),
    "strings": (words, np.array(["one", "two"] * 11), Y, LOSS, {"steps_per_epoch": 2}, {}),
    "mesh": (
        simple,
        X,
        Y,
        LOSS,
        {"validation_data": (X[:5], Y[:5])},
        {"mesh": jax.make_mesh((2,), ("data",)), "sharding": "fsdp"},
    ),
}


def trained(make, x, y, loss, options, settings, cache, run=None):
    trainer = fk.Trainer("adam", loss, cache_frozen=cache, **settings)
    run = trainer.init(make(), KEY) if run is None else run
    return trainer.fit(run, x, y, **{"batch_size": 8, "epochs": 2, "verbose": 0, **options})


def assert_equal(one, other):
    """Compares two results of fit, to the rounding of different programs."""
    first, second = (
        (f.history.history, f.run.model, f.run.state, f.run.opt_state) for f in (one, other)
    )
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", quick_cases(CASES, "simple", "several", "strings"))
def test_a_training_on_features_equals_that_of_the_model(case):
    whole, cached = (trained(*CASES[case], cache=cache) for cache in (False, True))
    assert_equal(cached, whole)
    assert jax.tree.structure(cached.run) == jax.tree.structure(whole.run)


@pytest.mark.exhaustive
def test_rows_of_weight_0_may_hold_nan():
    x, weights = X.copy(), np.ones(22, "float32")
    x[3], weights[3] = np.nan, 0
    options = {"sample_weight": weights, "epochs": 1}
    results = [trained(simple, x, Y, LOSS, options, {}, cache) for cache in (False, True)]
    assert_equal(*results)


@pytest.mark.exhaustive
def test_other_methods_compute_the_whole_model():
    trainer = fk.Trainer("adam", LOSS, cache_frozen=True)
    fitted = trained(simple, X, Y, LOSS, {"epochs": 1}, {}, True)
    plain = fk.Trainer("adam", LOSS)
    for one in (
        lambda t: t.evaluate(fitted.run, X, Y, verbose=0),
        lambda t: t.predict(fitted.run, X),
        lambda t: t.step(fitted.run, (X[:8], Y[:8]))[1],
        lambda t: t.run(fitted.run, (X, Y), 1, batch_size=8)[1],
    ):
        for a, b in zip(*(jax.tree.leaves(one(t)) for t in (trainer, plain)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.exhaustive
def test_a_step_computes_the_rest_alone():
    # the frozen layer is traced for the features and for the checks of the data, not in the steps
    calls = []

    def body(x):
        calls.append(isinstance(x, Tracer))
        return jnp.tanh(x)

    x = fk.Input((4,))
    model = fk.Model(x, head()(fk.ops.lift(body)(x)))
    trainer = fk.Trainer("adam", LOSS, cache_frozen=True)
    run = trainer.init(model, KEY)
    counts = []
    watch = fk.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, run: counts.append(len(calls)))
    _ = trainer.fit(run, X, Y, epochs=2, verbose=0, callbacks=[watch])
    assert counts[0] == counts[1] == len(calls)


# -- a folder -------------------------------------------------------------------------------------


def mixed():
    x = fk.Input((4,))
    body = frozen(5, "body", dtype="mixed_bfloat16")
    return fk.Model(x, head()(body(x)))


@pytest.mark.exhaustive
def test_a_folder_serves_later_trainings(tmp_path, monkeypatch):
    folder = tmp_path / "features"
    options = {"validation_split": 0.3}
    first = trained(mixed, X, Y, LOSS, options, {}, folder)
    assert_equal(first, trained(mixed, X, Y, LOSS, options, {}, True))
    assert len(os.listdir(folder)) == 2  # training and validation, no temporary folder

    def refuse(*_):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(caching, "predicted", refuse)
        assert_equal(trained(mixed, X, Y, LOSS, options, {}, str(folder)), first)
        # another head has the same features
        other = fk.Trainer("sgd", "mse", cache_frozen=folder)
        x = fk.Input((4,))
        start = other.init(fk.Model(x, layers.Dense(7)(mixed().layers["body"](x))), KEY)
        targets = np.zeros((22, 7), "float32")
        _ = other.fit(start, X, targets, validation_split=0.3, verbose=0)
        with pytest.raises(AssertionError, match="computed again"):
            trained(mixed, X + 1, Y, LOSS, options, {}, folder)
        trainer = fk.Trainer("adam", LOSS, cache_frozen=folder)
        with pytest.raises(AssertionError, match="computed again"):
            _ = trainer.fit(trainer.init(mixed(), jax.random.key(1)), X, Y, verbose=0)
    assert len(os.listdir(folder)) == 2


DAMAGES = {
    "fewer bytes": lambda data: data[:-8],
    "one bit": lambda data: data[:-5] + bytes([data[-5] ^ 64]) + data[-4:],
    "zeros": lambda data: data[:-100] + bytes(100),
    "another dtype": lambda data: data.replace(b"<u2", b"<i2"),
    "another order": lambda data: data.replace(b"False", b"True "),
    "no file": None,
}


def _features_of(tmp_path):
    trained(mixed, X, Y, LOSS, {"epochs": 1}, {}, tmp_path)
    (name,) = os.listdir(tmp_path)
    return tmp_path / name


@pytest.mark.exhaustive
def test_damaged_features_are_an_error(tmp_path):
    file = _features_of(tmp_path) / "0.npy"
    data = file.read_bytes()
    for damage in DAMAGES.values():
        if damage is None:
            file.unlink()
        else:
            assert damage(data) != data
            file.write_bytes(damage(data))
        with pytest.raises(ValueError, match=r"are damaged: 0\.npy .*Delete this folder"):
            trained(mixed, X, Y, LOSS, {"epochs": 1}, {}, tmp_path)


@pytest.mark.exhaustive
def test_features_without_a_manifest_are_computed_again(tmp_path):
    folder = _features_of(tmp_path)
    manifest = folder / "features.json"
    first, text = (folder / "0.npy").read_bytes(), manifest.read_text()
    for damaged in (None, '[[[22, 4], "float32"]]', text[:20]):
        (folder / "0.npy").write_bytes(b"other")
        if damaged is None:
            manifest.unlink()
        else:
            manifest.write_text(damaged)
        assert _features_of(tmp_path) == folder
        assert (folder / "0.npy").read_bytes() == first and manifest.read_text() == text


def test_a_full_disk_is_an_error_that_leaves_no_files(tmp_path, monkeypatch):
    def full(*_):
        yield from ([np.zeros((8, 5), "float32")],)
        raise OSError(errno.ENOSPC, "No space left on device")

    trainer = fk.Trainer("adam", LOSS, cache_frozen=tmp_path)
    run = trainer.init(mixed(), KEY)
    with monkeypatch.context() as patch:
        patch.setattr(caching, "predicted", full)
        with pytest.raises(OSError, match="No space left on device: .*") as error:
            _ = trainer.fit(run, X, Y, verbose=0)
    assert error.value.run is run and os.listdir(tmp_path) == []


@pytest.mark.exhaustive
def test_folders_that_killed_processes_left_are_removed(tmp_path):
    for name in ("killed.1.partial", "writes.2.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.npy").write_bytes(bytes(10))
    lock = Lock(str(tmp_path / "writes.2.partial"))
    trained(mixed, X, Y, LOSS, {"epochs": 1}, {}, tmp_path)
    assert sorted(name.split(".")[0] for name in os.listdir(tmp_path))[-1] == "writes"
    assert len(os.listdir(tmp_path)) == 2
    lock.release()


# -- interruptions --------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_killed_training_resumes_on_the_restored_weights(tmp_path):
    def stop(step, run, logs):
        if step == 4:
            raise OSError("the disk is gone")

    hook = fk.callbacks.LambdaCallback(on_batch_end=stop)
    options = {"steps_per_execution": 1, "checkpoint": tmp_path / "run"}
    with pytest.raises(OSError):
        trained(simple, X, Y, LOSS, {**options, "callbacks": [hook]}, {}, True)
    # another start: the weights of the checkpoint count, also those of the frozen part
    trainer = fk.Trainer("adam", LOSS, cache_frozen=True)
    other = trainer.init(simple(), jax.random.key(5))
    resumed = trained(simple, X, Y, LOSS, options, {}, True, other)
    assert_equal(resumed, trained(simple, X, Y, LOSS, {}, {}, False))


@pytest.mark.exhaustive
def test_a_nonfinite_step_carries_the_rows_of_the_data():
    errors, y = [], np.zeros((22, 3), "float32")
    y[-1] = 3e38  # its square overflows
    for cache in (False, True):
        trainer = fk.Trainer("sgd", "mse", cache_frozen=cache)
        run = trainer.init(simple(), KEY)
        with pytest.raises(fk.training.NonFiniteError) as caught:
            _ = trainer.fit(run, X, y, batch_size=8, verbose=0)
        errors.append(caught.value)
    for a, b in zip(*(jax.tree.leaves(error.batch) for error in errors), strict=True):
        np.testing.assert_array_equal(a, b)
    assert str(errors[0]) == str(errors[1])


# -- errors ---------------------------------------------------------------------------------------


def doubled(run):
    return run.replace(model=jax.tree.map(lambda a: 2 * a, run.model))


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("hook", "change", "named"),
    [
        ("on_epoch_end", doubled, "'body/kernel'"),
        ("on_epoch_begin", doubled, "'body/kernel'"),
        ("on_batch_end", doubled, "'body/kernel'"),
        ("on_test_begin", doubled, "'body/kernel'"),
        ("on_epoch_end", lambda run: run.replace(model=fk.unfreeze(run.model, "body")), "'body'"),
        (
            "on_epoch_end",
            lambda run: run.replace(state=jax.tree.map(lambda a: a + 1, run.state)),
            "'norm, state'",
        ),
    ],
)
def test_a_callback_must_not_change_the_frozen_part(hook, change, named):
    def call(*arguments):
        run = next(a for a in arguments if isinstance(a, fk.TrainState))
        return change(run)

    hooks: dict[str, Any] = {hook: call}
    options = {"callbacks": [fk.callbacks.LambdaCallback(**hooks)], "validation_split": 0.3}
    with pytest.raises(ValueError, match=f"a callback changed {named}, whose outputs") as caught:
        trained(simple, X, Y, LOSS, options, {}, True)
    assert isinstance(fk.training.run_of(caught.value), fk.TrainState)


@pytest.mark.exhaustive
def test_a_callback_may_change_the_model_before_the_first_step():
    hook = fk.callbacks.LambdaCallback(on_train_begin=doubled)
    results = [
        trained(simple, X, Y, LOSS, {"epochs": 1, "callbacks": [hook]}, {}, cache)
        for cache in (False, True)
    ]
    assert_equal(*results)


def test_a_model_without_a_frozen_part_is_an_error():
    def noisy():
        return fk.Sequential([fk.Input((4,)), layers.Dropout(0.1), frozen(3, "a"), head()])

    for make, reason in (
        (noisy, "'dropout' .Dropout. draws random numbers"),
        (lambda: fk.Sequential([fk.Input((4,)), head()]), "'head' .Dense. has trained weights"),
    ):
        with pytest.raises(ValueError, match=f"nothing to cache: {reason}.*fk.freeze"):
            trained(make, X, Y, LOSS, {}, {}, True)


def test_frozen_layers_behind_the_cache_are_a_warning():
    def make():
        members = [frozen(4, "a"), layers.GaussianNoise(0.1, name="noise"), frozen(4, "b"), head()]
        return fk.Sequential([fk.Input((4,)), *members])

    with pytest.warns(
        UserWarning, match="'noise' .GaussianNoise. draws random numbers. Each .*'b'"
    ) as caught:
        _ = trained(make, X, Y, LOSS, {"epochs": 1}, {}, True)
    assert caught[0].filename == __file__


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "data", [[(X, Y)], iter([(X, Y)]), lambda step: (X, Y)], ids=["list", "iterator", "function"]
)
def test_sources_without_an_index_are_refused(data):
    trainer = fk.Trainer("adam", LOSS, cache_frozen=True)
    run = trainer.init(simple(), KEY)
    with pytest.raises(ValueError, match="cache_frozen needs rows with an index.*Pass arrays"):
        _ = trainer.fit(run, data, steps_per_epoch=1, verbose=0)
    with pytest.raises(ValueError, match="validation_data: cache_frozen needs rows"):
        _ = trainer.fit(run, X, Y, validation_data=data, verbose=0, validation_steps=1)
    assert trainer.evaluate(run, [(X, Y)], verbose=0)["loss"] > 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("value", [None, 1, "", b"folder", ["folder"]])
def test_values_other_than_a_folder_are_refused(value):
    with pytest.raises(TypeError, match="cache_frozen: expected True, False or a folder"):
        fk.Trainer("adam", LOSS, cache_frozen=value)


def test_an_objective_and_a_population_are_refused():
    with pytest.raises(ValueError, match="objective= or cache_frozen=, received both"):
        fk.Trainer("adam", objective=lambda *_: fk.Output(0.0), cache_frozen=True)
    with pytest.raises(ValueError, match="populate: expected a trainer without cache_frozen"):
        fk.populate(fk.Trainer("adam", LOSS, cache_frozen=True), {"seed": range(2)})
