"""Sources of batches: iterables, generators, functions of the step, mapped files, wrong sources."""

import itertools

import chex
import jax
import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.data import array_feed, stream_feed
from fkeras.utils.sources.dataset import Dataset
from tests.support.keras_oracle import keras_rules

RNG = np.random.default_rng(5)
X = RNG.normal(size=(44, 3)).astype("float32")
Y = (X[:, :1] * 2 - X[:, 1:2]).astype("float32")
KEY = jax.random.key(1)
TRAINER = fk.Trainer("sgd", "mse")
RUN = TRAINER.init(fk.Sequential([fk.Input((3,)), layers.Dense(1)]), KEY)


def batches(size=8):
    return [(X[i : i + size], Y[i : i + size]) for i in range(0, len(X), size)]


class Loader:
    """Something that can be iterated again and again."""

    def __init__(self, made):
        self.made = made

    def __iter__(self):
        return iter(self.made)


class Indexed:
    """Batches by number, as in Keras's `PyDataset`; numbers beyond the length start again."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return batches()[index % 6]


FITTED, LOGS = TRAINER.fit(RUN, X, Y, 8, epochs=2, shuffle=False, verbose=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("source", "steps"),
    [
        (lambda: batches(), None),
        (lambda: Loader(batches()), None),
        (lambda: Loader(batches()), 6),
        (Indexed, None),
        (Indexed, 6),
        (lambda: (b for _ in range(2) for b in batches()), 6),
        (lambda: lambda step: batches()[step % 6], 6),
    ],
    ids=[
        *("list", "iterable", "iterable with steps", "indexed", "indexed with steps"),
        *("generator", "function of the step"),
    ],
)
def test_batches_train_as_arrays_do(source, steps):
    run, history = TRAINER.fit(RUN, source(), epochs=2, steps_per_epoch=steps, verbose=0)
    chex.assert_trees_all_close(run.model, FITTED.model, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history.history["loss"], LOGS.history["loss"], rtol=1e-5)
    assert history.params["steps"] == 6


@pytest.mark.exhaustive
def test_an_iterator_continues_after_the_previous_epoch():
    one, _ = TRAINER.fit(RUN, iter(batches()), epochs=2, steps_per_epoch=3, verbose=0)
    expected, _ = TRAINER.fit(RUN, batches(), epochs=1, verbose=0)
    chex.assert_trees_all_close(one.model, expected.model, rtol=1e-6)
    again, _ = TRAINER.fit(RUN, Loader(batches()), epochs=4, steps_per_epoch=3, verbose=0)
    chex.assert_trees_all_close(again.model, FITTED.model, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_validation_and_evaluation_take_batches_too():
    logs = TRAINER.evaluate(RUN, X, Y, verbose=0)
    assert TRAINER.evaluate(RUN, Loader(batches(10)), verbose=0) == pytest.approx(logs, rel=1e-5)
    _, history = TRAINER.fit(RUN, X, Y, validation_data=Loader(batches()), verbose=0)
    _, other = TRAINER.fit(RUN, X, Y, validation_data=(X, Y), verbose=0)
    assert history.history["val_loss"] == pytest.approx(other.history["val_loss"], rel=1e-5)


def first_row(y_true, y_pred):
    return y_true[:, 0]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "source",
    [
        lambda: (X, Y),
        batches,
        lambda: Loader(batches()),
        Indexed,
        lambda: lambda step: batches()[step],
        lambda: Dataset(44, lambda ids: (X[ids], Y[ids]), 8, shuffle=True, seed=3),
    ],
    ids=["arrays", "list", "iterable", "indexed", "function of the step", "dataset"],
)
@pytest.mark.parametrize("objective", [False, True])
def test_each_validation_sees_the_same_batches(source, objective):
    """A learning rate of 0: equal rows have equal logs."""

    def error(model, state, batch, key, training):
        loss = ((model(batch[0]) - batch[1]) ** 2).mean()
        return fk.Output(loss, {}, metrics={"first_row": first_row(batch[1], None).mean()})

    optimizer = fk.optimizers.SGD(0.0)
    trainer = fk.Trainer(optimizer, "mse", [first_row])
    trainer = fk.Trainer(optimizer, objective=error) if objective else trainer
    run = trainer.init(RUN.model, KEY)
    options = {"validation_steps": 2, "validation_batch_size": 8, "verbose": 0}
    history = trainer.fit(run, X, Y, epochs=3, validation_data=source(), **options).history
    logs = {name: history[f"val_{name}"] for name in ("loss", "first_row")}
    assert all(values == [values[0]] * 3 for values in logs.values())
    data = source() if not isinstance(source(), tuple) else batches()
    assert trainer.evaluate(run, data, steps=2, verbose=0) == {n: v[0] for n, v in logs.items()}
    if not isinstance(source(), Dataset):  # its first batches are those of a shuffled order
        assert logs["first_row"][0] == pytest.approx(Y[:16].mean(), rel=1e-6)


@pytest.mark.exhaustive
def test_an_iterator_has_one_validation():
    options = {"validation_steps": 2, "verbose": 0}
    expected = TRAINER.evaluate(RUN, X[:16], Y[:16], 8, verbose=0)["loss"]
    trainer = fk.Trainer(fk.optimizers.SGD(0.0), "mse")
    run = trainer.init(RUN.model, KEY)
    for epochs, freq in ((1, 1), (3, 3), (3, 2)):
        options |= {"epochs": epochs, "validation_freq": freq}
        _, history = trainer.fit(run, X, Y, validation_data=iter(batches()), **options)
        assert history["val_loss"] == [pytest.approx(expected, rel=1e-6)]
    message = "begins again in each of 2 validations, received an iterator .generator.*a list of"
    for steps in (2, None):
        options = {"epochs": 2, "validation_steps": steps, "verbose": 0}
        with pytest.raises(ValueError, match=message) as caught:
            _ = TRAINER.fit(RUN, X, Y, validation_data=(b for b in batches()), **options)
        assert caught.value.run is RUN  # before the first step


@pytest.mark.parametrize(
    "source", [batches, Indexed, lambda: Loader(batches()), lambda: iter(batches())]
)
def test_an_evaluation_has_at_most_one_pass(source):
    known = hasattr(source(), "__len__")
    told = "up to 6, the length of the source, received 7" if known else "7 batches, but .* after 6"
    for call, name in (
        (lambda: TRAINER.evaluate(RUN, source(), steps=7, verbose=0), "steps"),
        (
            lambda: TRAINER.fit(RUN, X, Y, validation_data=source(), validation_steps=7, verbose=0),
            "validation_steps",
        ),
    ):
        with pytest.raises(ValueError, match=rf"{told}. Reduce {name}, or"):
            call()


def test_the_length_hint_of_an_iterator_is_an_estimate():
    class Estimated:
        iterator = iter(batches())

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.iterator)

        def __length_hint__(self):
            return 1

    assert len(TRAINER.predict(RUN, Estimated(), steps=6)) == 44


@pytest.mark.exhaustive
def test_class_weights_count_in_batches_too():
    model = fk.Sequential([fk.Input((3,)), layers.Dense(2, "softmax")])
    trainer = fk.Trainer("sgd", "sparse_categorical_crossentropy")
    run, labels = trainer.init(model, KEY), (X[:, 0] > 0).astype("int32")
    dataset = [(X[i : i + 8], labels[i : i + 8], Y[i : i + 8, 0] ** 2) for i in range(0, 44, 8)]
    options = {"class_weight": {0: 0.2, 1: 3.0}, "verbose": 0}
    one, _ = trainer.fit(run, dataset, **options)
    two, _ = trainer.fit(run, X, labels, 8, shuffle=False, sample_weight=Y[:, 0] ** 2, **options)
    chex.assert_trees_all_close(one.model, two.model, rtol=1e-5, atol=1e-6)


def test_a_mapped_file_is_read_row_by_row(tmp_path, monkeypatch):
    mapped = np.memmap(tmp_path / "x", "float64", "w+", shape=X.shape)
    mapped[:] = X
    monkeypatch.setattr(array_feed, "MEMORY", 64)  # it does not fit
    run, _ = TRAINER.fit(RUN, mapped, Y, 8, epochs=2, shuffle=False, verbose=0)
    chex.assert_trees_all_close(run.model, FITTED.model, rtol=1e-5, atol=1e-6)
    chunk = array_feed.feed_of((mapped, Y), 8)
    assert isinstance(chunk.tree[0], np.memmap)
    assert array_feed.placed(chunk).resident is None
    (rows, _), _ = chunk.epoch(None).take(2)
    assert rows[0].dtype == np.float32


def test_rows_are_kept_on_the_device_or_sent_with_the_same_result(monkeypatch):
    expected_run, first = TRAINER.fit(RUN, X, Y, 8, epochs=2, verbose=0)
    monkeypatch.setattr(array_feed, "MEMORY", 16)
    sent, second = TRAINER.fit(RUN, X, Y, 8, epochs=2, verbose=0)
    chex.assert_trees_all_close(expected_run, sent, rtol=1e-6)
    assert first.history["loss"] == pytest.approx(second.history["loss"], rel=1e-6)


def raising():
    yield batches()[0]
    raise OSError("the disk is gone")


def changed(**new):
    x, y = batches()[1]
    return [batches()[0], (new.get("x", x), new.get("y", y))]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (lambda: iter([]), {}, "received an empty source"),
        (lambda: iter(batches()), {"epochs": 2}, "exhausted after the first epoch"),
        (lambda: iter(batches()), {"steps_per_epoch": 9}, "ended after 6"),
        (lambda: lambda step: batches()[0], {}, "missing steps_per_epoch for a function"),
        (
            lambda: (X, Y),
            {"validation_data": lambda step: batches()[0]},
            "missing validation_steps for a function",
        ),
        (lambda: raising, {"steps_per_epoch": 1}, "received 'raising', a generator function"),
        (lambda: lambda: batches()[0], {"steps_per_epoch": 1}, "a function of other arguments"),
        (
            lambda: (X, Y),
            {"validation_data": raising, "validation_steps": 1},
            r"validation_data: .*pass its result, make_batches\(\)",
        ),
        (list, {}, r"a tuple \(x, y\) as batch 0, received an empty list"),
        (lambda: [list(batches()[0])], {}, "received list as batch 0"),
        (lambda: [None], {}, "received NoneType as batch 0"),
        (lambda: [(X[:8],)], {}, r"batch 1: expected \(x, y\)"),
        (lambda: iter([X[:8]]), {}, "received ndarray"),
        (lambda: changed(x=X[:8, :2]), {}, r"batch 2: expected x of shape \(8, 3\)"),
        (lambda: changed(x=X[:8].astype("int32")), {}, "received .* and int32"),
        (lambda: changed(x=X[:9], y=Y[:9]), {}, r"received \(9, 3\)"),
        (lambda: changed(x=X[:7]), {}, "y 8, the output 'dense' 7 for x 7"),
        (lambda: changed(y={"a": Y[:8]}), {}, "structure of the first batch"),
        (lambda: changed(x=X[:0], y=Y[:0]), {}, r"received \(0, 3\)"),
        (lambda: batches(), {"sample_weight": Y[:, 0]}, "either sample_weight or"),
        (lambda: batches(), {"validation_split": 0.2}, "either validation_split or"),
        (lambda: changed(y=np.asarray([["a"]] * 8)), {}, "batch 2: y: expected numbers"),
    ],
)
def test_wrong_sources_are_reported(source, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        data = source()
        data = data if isinstance(data, tuple) else (data,)
        _ = TRAINER.fit(RUN, *data, verbose=0, **options)


def with_none(number):
    found = batches()
    found[number] = None
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [0, 2])
def test_a_batch_that_is_none_is_an_error(number):
    message = f"batch {number + 1}: expected a batch, received None"
    sources = (lambda: iter(with_none(number)), lambda: Loader(with_none(number)))
    for source in sources:
        for options in ({}, {"steps_per_epoch": 4}):
            with pytest.raises(TypeError, match=message):
                _ = TRAINER.fit(RUN, source(), verbose=0, **options)
        with pytest.raises(TypeError, match=message):
            TRAINER.evaluate(RUN, source(), verbose=0)
    with pytest.raises(TypeError, match=message):
        _ = TRAINER.fit(RUN, lambda step: with_none(number)[step], steps_per_epoch=4, verbose=0)
    if number:  # a list that begins with a batch
        with pytest.raises(TypeError, match=message):
            _ = TRAINER.fit(RUN, with_none(number), verbose=0)


@pytest.mark.exhaustive
def test_numbers_that_are_not_finite_are_errors_in_evaluations_of_sources():
    found = [(x.copy(), y) for x, y in batches()]
    found[2][0][5] = np.nan
    for call in (
        lambda: TRAINER.evaluate(RUN, found, verbose=0),
        lambda: TRAINER.fit(RUN, X, Y, validation_data=found, verbose=0),
    ):
        with pytest.raises(ValueError, match="x, row 5: expected finite numbers") as caught:
            call()
        assert caught.value.__notes__[0].startswith("in batch 3 of Trainer.")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda source: TRAINER.fit(RUN, source, verbose=0), "steps_per_epoch"),
        (lambda source: TRAINER.evaluate(RUN, source, verbose=0), "steps"),
        (
            lambda source: TRAINER.fit(RUN, X, Y, validation_data=source, verbose=0),
            "validation_steps",
        ),
    ],
)
def test_a_source_that_does_not_end_is_told_once(call, name, monkeypatch):
    monkeypatch.setattr(stream_feed, "_LONG", 0.0)
    with pytest.warns(UserWarning, match=rf"has not ended. Without {name} the source") as caught:
        call(batch for batch in batches())
    assert len(caught) == 1


@pytest.mark.exhaustive
def test_sources_that_end_are_not_called_endless(monkeypatch):
    monkeypatch.setattr(stream_feed, "_LONG", 0.0)
    _ = TRAINER.fit(RUN, batches(), verbose=0)  # the length of a list is known
    _ = TRAINER.fit(RUN, iter(batches()), steps_per_epoch=6, verbose=0)


@pytest.mark.exhaustive
def test_lists_of_numbers_are_arrays():
    expected, _ = TRAINER.fit(RUN, X, Y, 8, shuffle=False, verbose=0)
    lists = X.tolist(), Y.tolist()
    for source in (lists, (X.astype(object), Y.astype(object)), ({"input_layer": X}, Y)):
        run, _ = TRAINER.fit(RUN, *source, 8, shuffle=False, verbose=0)
        chex.assert_trees_all_equal(run.model, expected.model)
    run, _ = TRAINER.fit(RUN, [tuple(a.tolist() for a in b) for b in batches()], verbose=0)
    chex.assert_trees_all_close(run.model, expected.model, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(TRAINER.predict(RUN, lists[0]), TRAINER.predict(RUN, X))
    stepped, _ = TRAINER.step(RUN, (lists[0][:8], lists[1][:8]))
    chex.assert_trees_all_equal(stepped.model, TRAINER.step(RUN, batches()[0])[0].model)


@pytest.mark.exhaustive
def test_steps_read_their_batch_before_they_return():
    # a caller may write the next batch into the same memory
    wide = fk.Sequential([fk.Input((64,)), layers.Dense(256, "relu"), layers.Dense(1)])
    start = TRAINER.init(wide, KEY)
    data = RNG.normal(size=(6, 500, 64)).astype("float32")
    targets, buffer = data[0, :, :1], np.empty_like(data[0])
    one, two = start, start
    for x in data:
        buffer[:] = x
        one, _ = TRAINER.step(one, (buffer, targets))
    for x in data:
        two, _ = TRAINER.step(two, (x, targets))
    chex.assert_trees_all_equal(one.model, two.model)


def test_an_error_of_the_source_names_the_batch():
    with pytest.raises(OSError, match="the disk is gone") as caught:
        _ = TRAINER.fit(RUN, raising(), verbose=0)
    assert caught.value.__notes__ == ["while batch 2 of Trainer.fit was read"]


def test_labels_and_ids_out_of_range_are_reported_in_later_batches():
    model = fk.Sequential([fk.Input((2,), dtype="int32"), layers.Embedding(5, 3), layers.Flatten()])
    trainer = fk.Trainer("sgd", "sparse_categorical_crossentropy")
    run = trainer.init(model, KEY)
    ids, labels = np.ones((4, 2), "int32"), np.zeros(4, "int32")
    with pytest.raises(ValueError, match=r"row 3: .*expected ids from 0 to 4, received 7"):
        _ = trainer.fit(
            run, [(ids, labels), (ids.copy() + [[0], [0], [0], [6]], labels)], verbose=0
        )
    with pytest.raises(ValueError, match="row 1") as caught:
        _ = trainer.fit(run, [(ids, labels), (ids, labels + np.asarray([0, 6, 0, 0]))], verbose=0)
    assert caught.value.__notes__ == ["in batch 2 of Trainer.fit"]


# numbers that are not finite


def poisoned(row=21):
    x = X.copy()
    x[row, 1] = np.inf
    return [(x[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("limit", [1 << 32, 16], ids=["made again", "guarded"])
def test_a_step_that_is_not_finite_is_not_applied(limit, monkeypatch):
    monkeypatch.setattr(array_feed, "MEMORY", limit)
    clean = [batch for number, batch in enumerate(poisoned()) if number != 2]
    expected_run, _ = TRAINER.fit(RUN, clean, verbose=0)
    skipping = fk.Trainer("sgd", "mse", on_nonfinite="skip")
    with pytest.warns(UserWarning, match=r"1 steps returned nan or infinity.*\(batch 3\)"):
        run, history = skipping.fit(RUN, poisoned(), verbose=0)
    chex.assert_trees_all_close(run.model, expected_run.model, rtol=1e-6)
    assert int(run.step) == 5
    assert np.isfinite(history.history["loss"][0])
    with pytest.raises(fk.training.NonFiniteError, match=r"epoch 1, batch 3.*8 rows") as caught:
        _ = TRAINER.fit(RUN, poisoned(), verbose=0)
    before, _ = TRAINER.fit(RUN, poisoned()[:2], verbose=0)
    np.testing.assert_array_equal(caught.value.batch[0], poisoned()[2][0])
    if limit > 16:
        chex.assert_trees_all_close(caught.value.run.model, before.model, rtol=1e-6)
        assert int(caught.value.run.step) == 2
    ignoring = fk.Trainer("sgd", "mse", on_nonfinite="ignore")
    run, _ = ignoring.fit(RUN, poisoned(), verbose=0)
    assert not np.isfinite(run.model.layers["dense"].kernel).all()


@pytest.mark.exhaustive
def test_gradients_that_are_not_finite_are_found_where_the_loss_is():
    root = layers.Lambda(lambda x: jax.numpy.sqrt(jax.numpy.abs(x)))  # its slope at 0 is infinite
    h = layers.Dense(1, use_bias=False)(x := fk.Input((3,)))
    run = TRAINER.init(fk.Model(x, root(h)), KEY)
    rows = X[:16].copy()
    rows[9] = 0
    with pytest.raises(fk.training.NonFiniteError, match="batch 2") as caught:
        _ = TRAINER.fit(run, rows, Y[:16], 8, shuffle=False, verbose=0)
    assert np.isfinite(caught.value.run.model.layers["dense"].kernel).all()


def test_on_nonfinite_rejects_unknown_values():
    with pytest.raises(ValueError, match="'raise', 'skip' or 'ignore', received 'stop'"):
        fk.Trainer("sgd", "mse", on_nonfinite="stop")


@pytest.mark.exhaustive
def test_labels_of_ctc_may_be_padded_by_minus_one():
    """Arrays and sources, with and without weights: the losses are those of labels padded by zero."""
    labels = np.array([[1, 2, 0], [3, 0, 0], [2, 2, 1], [1, 0, 0]], "int32")
    padded = np.where(labels == 0, -1, labels)
    frames, weights = X[:32].reshape(4, 8, 3), np.array([1.0, 0.5, 0.0, 2.0], "float32")
    trainer = fk.Trainer("sgd", "ctc")
    run = trainer.init(fk.Sequential([fk.Input((8, 3)), layers.Dense(4)]), KEY)
    each = fk.losses.ctc(labels, run.model(frames))
    for weighted, expected in (((), each.mean()), ((weights,), (each * weights).mean())):
        source = [tuple(a[i : i + 2] for a in (frames, padded, *weighted)) for i in (0, 2)]
        options = {"sample_weight": weighted[0]} if weighted else {}
        arrays, history = trainer.fit(run, frames, padded, 2, shuffle=False, verbose=0, **options)
        fitted, logs = trainer.fit(run, source, verbose=0)
        chex.assert_trees_all_equal(fitted.model, arrays.model)
        zeros, _ = trainer.fit(run, frames, labels, 2, shuffle=False, verbose=0, **options)
        chex.assert_trees_all_close(fitted.model, zeros.model, rtol=1e-6)
        assert logs.history == history.history
        for found in (
            trainer.evaluate(run, frames, padded, 2, verbose=0, **options),
            trainer.evaluate(run, source, verbose=0),
        ):
            assert found["loss"] == pytest.approx(float(expected), rel=1e-5)


# batches whose arrays have different numbers of rows


class Neighbours(fk.Layer):
    """Sums the features of the senders of each node's edges."""

    def call(self, nodes, senders, receivers):
        count = nodes.shape[0]
        return jax.ops.segment_sum(nodes[senders], receivers, num_segments=count)


def graph_model():
    nodes = fk.Input((3,), name="nodes")
    edges = [fk.Input((), dtype="int32", name=name) for name in ("senders", "receivers")]
    values = layers.Dense(1)(Neighbours()(nodes, *edges))
    return fk.Model({"nodes": nodes, "senders": edges[0], "receivers": edges[1]}, values)


def graph(nodes, edges):
    ends = RNG.integers(0, nodes, (2, edges)).astype("int32")
    x = {"nodes": X[:nodes], "senders": ends[0], "receivers": ends[1]}
    return x, RNG.normal(size=(nodes, 1)).astype("float32")


GRAPHS = [graph(*sizes) for sizes in [(9, 20), (9, 20), (12, 30), (7, 7), (9, 9), (3, 20), (9, 20)]]
GRAPH_RUN = TRAINER.init(graph_model(), KEY)


def graph_objective(model, state, batch, key, training):
    return fk.Output(((model(batch[0]) - batch[1]) ** 2).mean())


GRAPH_CALLS = {
    "list": (TRAINER, GRAPHS, {}),
    "function of the step": (TRAINER, lambda step: GRAPHS[step % 7], {"steps_per_epoch": 7}),
    "objective": (fk.Trainer("sgd", objective=graph_objective), GRAPHS, {}),
    "mesh": (fk.Trainer("sgd", "mse", mesh=jax.make_mesh((2,), ("data",))), GRAPHS, {}),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", GRAPH_CALLS)
def test_arrays_of_a_batch_may_have_different_numbers_of_rows(name):
    """The loss of an epoch and of an evaluation is the mean over all nodes, as for one graph of them."""
    trainer, source, options = GRAPH_CALLS[name]
    # an objective has no outputs: its first array counts, here the nodes
    fitted, history = trainer.fit(GRAPH_RUN, source, validation_data=GRAPHS, verbose=0, **options)
    run, losses, rows = GRAPH_RUN, [], [len(y) for _, y in GRAPHS]
    for batch in GRAPHS:
        run, logs = TRAINER.step(run, batch)
        losses.append(logs["loss"])
    chex.assert_trees_all_close(fitted.model, run.model, rtol=1e-5, atol=1e-6)
    assert history["loss"] == [pytest.approx(np.average(losses, weights=rows), rel=1e-5)]
    errors = [(np.asarray(fitted.model(x)) - y) ** 2 for x, y in GRAPHS]
    expected = pytest.approx(np.concatenate(errors).mean(), rel=1e-5)
    assert history["val_loss"] == [expected]
    assert trainer.evaluate(fitted, GRAPHS, verbose=0)["loss"] == expected


PREDICT_SOURCES = {
    "list": (lambda: GRAPHS, None),
    "inputs alone": (lambda: [(x,) for x, _ in GRAPHS], None),
    "bare inputs": (lambda: (x for x, _ in GRAPHS), None),
    "steps": (lambda: GRAPHS, 3),
    "endless": (lambda: itertools.cycle(GRAPHS), 9),
    "function of the step": (lambda: lambda step: GRAPHS[step % 7], 7),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PREDICT_SOURCES)
def test_predictions_of_graphs_are_joined(name):
    source, steps = PREDICT_SOURCES[name]
    expected = [
        np.asarray(GRAPH_RUN.model(x))
        for x, _ in itertools.islice(itertools.cycle(GRAPHS), steps or 7)
    ]
    found = TRAINER.predict(GRAPH_RUN, source(), steps=steps)
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_predictions_of_each_output_have_their_own_rows():
    """Neither the first array nor a common number of rows cuts an output."""
    model = graph_model()
    both = fk.Model(model.inputs, {"nodes": model.outputs, "ends": model.inputs["senders"] + 1})
    run = TRAINER.init(both, KEY)
    for trainer in (TRAINER, fk.Trainer("sgd", "mse", mesh=jax.make_mesh((2,), ("data",)))):
        found = trainer.predict(run, GRAPHS)
        assert found["nodes"].shape == (sum(len(y) for _, y in GRAPHS), 1)
        ends = np.concatenate([x["senders"] for x, _ in GRAPHS])
        np.testing.assert_array_equal(found["ends"], ends + 1)


class KerasBatches(keras.utils.PyDataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return (X[8 * index : 8 * index + 8],)


@pytest.mark.exhaustive
def test_predictions_of_sources_are_those_of_keras():
    theirs = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model = fk.Sequential([fk.Input((3,)), layers.Dense(2)])
    run = TRAINER.init(model, KEY)
    theirs.set_weights([np.asarray(leaf) for leaf in (run.model[0].kernel, run.model[0].bias)])
    rows = [X[:8], X[8:16], X[16:20]]
    for make, steps in (
        (KerasBatches, None),
        (KerasBatches, 2),
        (lambda: ((x,) for x in rows), None),
        (lambda: ((x, x, x[:, 0]) for x in rows), 2),
    ):
        with keras_rules():
            expected = theirs.predict(make(), steps=steps, verbose=0)
        found = TRAINER.predict(run, make(), steps=steps)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", ["arrays", "source"])
def test_predictions_may_have_other_numbers_of_rows_than_inputs(form):
    """Rows that the model multiplies or mixes are neither cut nor filled up."""
    x = fk.Input((4,))
    run = TRAINER.init(
        fk.Model(x, [fk.ops.reshape(x, (-1, 2)), x - fk.ops.mean(x, 0, keepdims=True)]), KEY
    )
    rows = np.arange(160, dtype="float32").reshape(40, 4)
    parts = [rows[:32], rows[32:]]
    halves, centred = TRAINER.predict(run, rows if form == "arrays" else iter(parts))
    np.testing.assert_array_equal(halves, rows.reshape(80, 2))
    np.testing.assert_allclose(centred, np.concatenate([a - a.mean(0) for a in parts]), rtol=1e-5)
    halves = TRAINER.predict(run, rows[:8])[0]
    np.testing.assert_array_equal(halves, rows[:8].reshape(16, 2))


@pytest.mark.exhaustive
def test_predictions_of_other_shapes_are_not_joined():
    x = fk.Input((4,))
    for value in (fk.ops.matmul(x, fk.ops.transpose(x)), fk.ops.mean(x)):
        run = TRAINER.init(fk.Model(x, value), KEY)
        one = np.ones((4, 4), "float32")
        np.testing.assert_allclose(TRAINER.predict(run, [(one,)]), run.model(one))
        with pytest.raises(ValueError, match=r"differ in their first axis only, .*one by one"):
            TRAINER.predict(run, iter([one, one[:3]]))


@pytest.mark.exhaustive
def test_lists_of_tuples_of_numbers_are_arrays():
    rows = [tuple(row) for row in X[:5].tolist()]
    np.testing.assert_array_equal(TRAINER.predict(RUN, rows), TRAINER.predict(RUN, X[:5]))


@pytest.mark.exhaustive
def test_a_training_on_graphs_is_resumed(tmp_path):
    options = {"epochs": 2, "verbose": 0, "steps_per_execution": 1}
    expected, logs = TRAINER.fit(GRAPH_RUN, GRAPHS, **options)

    def cut(step, run, logs):
        if step == 9:
            raise OSError("power cut")

    power = fk.callbacks.LambdaCallback(on_batch_end=cut)
    options["checkpoint"] = tmp_path
    with pytest.raises(OSError, match="power cut"):
        _ = TRAINER.fit(GRAPH_RUN, GRAPHS, callbacks=[power], **options)
    run, history = TRAINER.fit(GRAPH_RUN, GRAPHS, **options)
    chex.assert_trees_all_equal(run.model, expected.model)
    assert history.history == logs.history


@pytest.mark.exhaustive
def test_steps_on_graphs_that_are_not_finite_are_found():
    x, y = GRAPHS[2]
    poisoned_graphs = [*GRAPHS[:2], (x, y + np.float32(3e38)), *GRAPHS[3:]]
    with pytest.raises(fk.training.NonFiniteError, match="batch 3.* 12 rows") as caught:
        _ = TRAINER.fit(GRAPH_RUN, poisoned_graphs, verbose=0)
    chex.assert_trees_all_equal(caught.value.batch[0], x)
    x = {**x, "nodes": x["nodes"] * np.float32(np.nan)}
    with pytest.raises(ValueError, match=r"x\['nodes'\], row 0: expected finite"):
        TRAINER.evaluate(GRAPH_RUN, [GRAPHS[0], (x, y)], verbose=0)


@pytest.mark.parametrize("call", [TRAINER.fit, TRAINER.evaluate])
@pytest.mark.parametrize(
    ("run", "batch", "message"),
    [
        (GRAPH_RUN, (GRAPHS[0][0], GRAPHS[0][1][:1]), "y 1, the output 'dense' 9 for .*s'. 20"),
        (GRAPH_RUN, (*GRAPHS[0], np.ones(20, "float32")), "sample_weight 20, the output"),
        (GRAPH_RUN, (GRAPHS[0][0], GRAPHS[0][1][:0]), "data are empty"),
        # a loss would broadcast these
        (RUN, (X[:1], Y[:8]), "y 8, the output 'dense' 1 for x 1"),
        (RUN, (X[:8], Y[:1]), "y 1, the output 'dense' 8 for x 8"),
        (RUN, (X[:8], Y[0, 0]), "received a scalar"),
    ],
)
def test_targets_need_the_rows_of_their_output(call, run, batch, message):
    with pytest.raises(ValueError, match=message):
        _ = call(run, [batch], verbose=0)
    if "the output" in message and len(batch) == 2:
        first = GRAPHS[0] if run is GRAPH_RUN else batches()[0]
        with pytest.raises(ValueError, match=message):
            _ = call(run, [first, batch], verbose=0)


def test_arrays_that_fit_cuts_need_one_number_of_rows():
    for call in (
        lambda: TRAINER.fit(GRAPH_RUN, *GRAPHS[0], verbose=0),
        lambda: TRAINER.evaluate(GRAPH_RUN, *GRAPHS[0], verbose=0),
        lambda: TRAINER.predict(GRAPH_RUN, GRAPHS[0][0]),
    ):
        with pytest.raises(
            ValueError, match=r"20.* pass a list of batches: .*predict\(run, \[\(x,\)"
        ):
            call()


def test_datasets_of_grain_are_sources():
    grain = pytest.importorskip("grain")
    dataset = grain.MapDataset.source(np.arange(44)).map(lambda row: (X[row], Y[row])).batch(8)
    run, history = TRAINER.fit(RUN, dataset, epochs=2, verbose=0)
    chex.assert_trees_all_close(run.model, FITTED.model, rtol=1e-5, atol=1e-6)
    assert history.params["steps"] == 6


@pytest.mark.exhaustive
def test_a_grain_loader_resumes_at_its_position(tmp_path):
    grain = pytest.importorskip("grain")

    def made():
        rows = grain.MapDataset.source(np.arange(44)).shuffle(seed=3)
        return rows.map(lambda row: (X[row], Y[row])).batch(8).to_iter_dataset()

    expected, _ = TRAINER.fit(RUN, made(), epochs=2, verbose=0)
    plan = fk.Checkpoint(str(tmp_path), every=1)

    def cut(step, run, logs):
        if step == 4:
            raise OSError("power cut")

    power = fk.callbacks.LambdaCallback(on_batch_end=cut)
    options = {"epochs": 2, "verbose": 0, "checkpoint": plan, "steps_per_execution": 1}
    with pytest.raises(OSError, match="power cut"):
        _ = TRAINER.fit(RUN, made(), callbacks=[power], **options)
    run, _ = TRAINER.fit(RUN, made(), **options)
    chex.assert_trees_all_equal(run.model, expected.model)
