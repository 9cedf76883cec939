"""TensorBoard writes the events that Keras writes."""

import dataclasses
import inspect
import math
import os
import pathlib
import struct
import sys
from typing import Any

import jax
import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras.training.callbacks import LambdaCallback, TensorBoard
from fkeras.training.callbacks.reporting import events
from tests.support.callback_runs import KEY, RUN, X, drive, fit, shifted


def read_events(folder):
    """The events of a folder's only file, their checksums verified."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    (path,) = pathlib.Path(folder).iterdir()
    data, found = path.read_bytes(), []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert events._checksum(data[:8]) == data[8:12]
        body, data = data[12 : 12 + length], data[12 + length :]
        assert events._checksum(body) == data[:4]
        found.append(event_pb2.Event.FromString(body))
        data = data[4:]
    return found


def tags(found):
    return [(value.tag, event.step) for event in found for value in event.summary.value]


@pytest.mark.exhaustive
def test_tensorboard_writes_the_events_of_keras(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, histogram_freq=2, update_freq=2)
    _, history = fit(board, epochs=2, validation_split=0.25, steps_per_execution=1)
    assert sorted(os.listdir(tmp_path)) == ["train", "validation"]
    found = read_events(tmp_path / "train")
    assert found[0].file_version == "brain.Event:2"
    names = tags(found)
    assert names[0] == ("graph/text_summary", 0)
    assert ("batch_loss", 2) in names
    assert ("epoch_loss", 0) in names
    assert ("epoch_learning_rate", 1) in names
    assert ("body/kernel/histogram", 0) in names
    assert ("body/kernel/histogram", 1) not in names
    graph = found[1].summary.value[0].tensor.string_val[0].decode()
    assert "flowchart" in graph or "graph" in graph
    losses = [v.simple_value for e in found for v in e.summary.value if v.tag == "epoch_loss"]
    np.testing.assert_allclose(losses, history.history["loss"], rtol=1e-6)
    steps = 3  # of an epoch
    assert ("batch_loss", 2 * steps) in names
    assert tags(read_events(tmp_path / "validation")) == [
        ("epoch_loss", 0),
        ("evaluation_loss_vs_iterations", steps),
        ("epoch_loss", 1),
        ("evaluation_loss_vs_iterations", 2 * steps),
    ]


def test_tensorboard_appends_to_its_file(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, write_graph=False)
    drive(board, [{"loss": 1.0, "f1": [0.5, 0.25]}, {"loss": 2.0}])
    scheduled = fk.Trainer(fk.optimizers.SGD(lambda step: 0.1), "mse").init(RUN.model, KEY)
    drive(board, [{"loss": 3.0}], run=scheduled, first=1)
    found = read_events(tmp_path / "train")
    assert tags(found)[:4] == [
        ("epoch_loss", 0),
        ("epoch_f1_0", 0),
        ("epoch_f1_1", 0),
        ("epoch_learning_rate", 0),
    ]
    assert tags(found)[4:] == [("epoch_loss", 1), ("epoch_learning_rate", 1), ("epoch_loss", 1)]
    # what stood at an epoch that is written again is hidden
    assert [e.step for e in found if e.HasField("session_log")] == [0, 1, 1]
    broken = shifted(RUN, math.nan)
    drive(TensorBoard(tmp_path / "b", histogram_freq=1), [{"loss": 1.0}], run=broken)


@pytest.mark.parametrize("update_freq", ["epoch", 1])
def test_curves_over_steps_and_rates_of_schedules(update_freq, tmp_path):
    pytest.importorskip("tensorboardX")
    scheduled = fk.Trainer(fk.optimizers.SGD(lambda step: 0.1), "mse").init(RUN.model, KEY)
    board = TensorBoard(tmp_path, update_freq=update_freq, write_graph=False)
    drive(board, [{"loss": 1.0, "val_loss": 2.0}], run=scheduled)
    assert tags(read_events(tmp_path / "train")) == [("epoch_loss", 0)]
    by_step = [] if update_freq == "epoch" else [("evaluation_loss_vs_iterations", 0)]
    assert tags(read_events(tmp_path / "validation")) == [("epoch_loss", 0), *by_step]


def test_wrong_arguments_of_tensorboard(tmp_path, monkeypatch):
    assert TensorBoard(update_freq="batch").update_freq == 1
    assert not TensorBoard()._watches_batches
    with pytest.raises(
        ValueError, match="'epoch' or 'batch', or a positive integer, received 'step'"
    ):
        TensorBoard(update_freq="step")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "tensorboardX", None)
        without.setitem(sys.modules, "tensorboardX.summary", None)
        with pytest.raises(ImportError, match="pip install tensorboardX`"):
            TensorBoard(tmp_path).on_train_begin(RUN)
    pytest.importorskip("tensorboardX")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="TensorBoard: expected log_dir in a writable folder"):
        TensorBoard(tmp_path / "file").on_train_begin(RUN)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("probes", "names"),
    [
        ("body", ["body_ib-0/output"]),
        (("head", 0), ["head_ib-0/output"]),
        (["norm", ("head", 0)], ["head_ib-0/output", "norm_ib-0/output"]),
    ],
)
def test_probes_are_histograms_of_the_samples(probes: Any, names, tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, histogram_freq=2, write_graph=False, probes=probes, samples=X[:7])
    assert board == dataclasses.replace(board) and hash(board) == hash(dataclasses.replace(board))
    run, _ = fit(board, epochs=3)
    found = [
        (value.tag, event.step, value.histo)
        for event in read_events(tmp_path / "train")
        for value in event.summary.value
        if value.tag.endswith("/output")
    ]
    assert sorted({tag for tag, *_ in found}) == names
    assert sorted({step for _, step, _ in found}) == [0, 2]
    _, values = fk.transforms.probe(run.model, probes)(X[:7], state=run.state)
    for tag, step, histogram in found:
        if step == 2:
            value = values[tag.removesuffix("/output")]
            assert histogram.num == value.size
            np.testing.assert_allclose(histogram.sum, np.sum(value), rtol=1e-4, atol=1e-4)


def test_samples_have_the_structure_of_the_inputs(tmp_path):
    pytest.importorskip("tensorboardX")
    a, b = fk.Input((3,), name="a"), fk.Input((2,), name="b")
    model = fk.Model(
        {"a": a, "b": b}, fk.layers.Dense(1)(fk.layers.Concatenate(name="both")([a, b]))
    )
    run = fk.Trainer("sgd", "mse").init(model, KEY)
    samples = {"a": np.ones((2, 3)), "b": np.zeros((2, 2), "float32")}
    board = TensorBoard(tmp_path, 1, probes="both", samples=samples)
    assert board._probed(run)["both_ib-0"].shape == (2, 5)


def test_wrong_probes_fail_before_the_first_step(tmp_path):
    pytest.importorskip("tensorboardX")
    with pytest.raises(ValueError, match="probes has no effect without histogram_freq"):
        TensorBoard(probes="body", samples=X)
    arguments: Any
    for arguments, alone in (({"probes": "body"}, "probes"), ({"samples": X}, "samples")):
        with pytest.raises(
            ValueError, match=f"probes and samples together, received {alone} alone"
        ):
            TensorBoard(histogram_freq=1, **arguments)
    for arguments, message in (
        ({"probes": "boddy", "samples": X}, "no layer matches 'boddy'"),
        ({"probes": "body", "samples": X[:, :2]}, "expected shape .*received"),
    ):
        board = TensorBoard(tmp_path, histogram_freq=1, **arguments)
        with pytest.raises(ValueError, match=message) as caught:
            fit(board, epochs=1)
        run = fk.training.run_of(caught.value)
        assert run is not None and int(run.step) == 0


@pytest.mark.exhaustive
def test_steps_per_second(tmp_path):
    pytest.importorskip("tensorboardX")
    board = TensorBoard(tmp_path, write_steps_per_second=True, update_freq=2)
    fit(board, epochs=2, steps_per_execution=1)
    found = read_events(tmp_path / "train")
    speeds = {
        (value.tag, event.step): value.simple_value
        for event in found
        for value in event.summary.value
        if value.tag.endswith("steps_per_second")
    }
    # an epoch has 3 steps, and the clock starts anew with each epoch
    assert list(speeds) == [
        ("batch_steps_per_second", 2),
        ("epoch_steps_per_second", 0),
        ("batch_steps_per_second", 4),
        ("batch_steps_per_second", 6),
        ("epoch_steps_per_second", 1),
    ]
    assert all(0 < speed < 1e6 for speed in speeds.values())


def test_the_memory_of_an_older_version_is_read(tmp_path):
    pytest.importorskip("tensorboardX")
    (board,) = fk.training.callbacks.check_callbacks(
        TensorBoard(tmp_path, update_freq=2, write_steps_per_second=True)
    )
    fit(board, run=board.remember(RUN, 0), epochs=1, steps_per_execution=1)
    assert ("batch_loss", 2) in tags(read_events(tmp_path / "train"))


def test_profile_batch_records_as_the_profiler(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    calls = []
    monkeypatch.setattr(jax.profiler, "start_trace", lambda folder: calls.append(folder))
    monkeypatch.setattr(jax.profiler, "stop_trace", lambda: calls.append("stop"))
    steps = LambdaCallback(on_batch_end=lambda step, run, logs: calls.append(step))
    board = TensorBoard(tmp_path, profile_batch=(2, 3))
    fit(steps, board, epochs=2, steps_per_execution=1)
    assert calls == [1, str(tmp_path), 2, 3, "stop", 4, 5, 6]


PERIODS = ((0, 0), (5, (5, 5)), ((2, 4), (2, 4)), ([2, 4], (2, 4)), ("2,4", (2, 4)), ("7", (7, 7)))


@pytest.mark.parametrize(("value", "expected"), PERIODS)
def test_values_of_profile_batch(value, expected):
    board = TensorBoard(profile_batch=value)
    assert board.profile_batch == expected == dataclasses.replace(board).profile_batch
    assert board._watches_batches == (value != 0)


WRONG = (
    *(
        ({"profile_batch": value}, ValueError, "profile_batch: expected a number of a batch")
        for value in (-1, (0, 3), (4, 2), (1, 2, 3), (), "a", "1,b", 1.5, True, None)
    ),
    ({"write_images": True}, ValueError, "write_images has no effect without histogram_freq"),
    (
        {"embeddings_metadata": "a.tsv"},
        ValueError,
        "embeddings_metadata has no effect without embeddings_freq",
    ),
    ({"embeddings_freq": -1}, ValueError, "embeddings_freq: expected"),
    ({"embeddings_freq": 1, "embeddings_metadata": 3}, TypeError, "expected a path, a dictionary"),
    ({"embeddings_freq": 1, "embeddings_metadata": {"a": 3}}, TypeError, "expected a"),
    ({"write_images": "yes", "histogram_freq": 1}, (TypeError, ValueError), "write_images"),
    ({"write_steps_per_second": 2}, (TypeError, ValueError), "write_steps_per_second"),
)


@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_other_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        TensorBoard(**arguments)


def test_the_arguments_are_those_of_keras():
    expected = list(inspect.signature(keras.callbacks.TensorBoard).parameters.values())
    fields = [field for field in dataclasses.fields(TensorBoard) if not field.kw_only]
    defaults = TensorBoard()
    for parameter, field in zip(expected, fields, strict=True):
        assert parameter.name == field.name
        assert parameter.default == getattr(defaults, field.name)
