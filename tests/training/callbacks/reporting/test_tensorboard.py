"""TensorBoard writes the events that Keras writes."""

import math
import os
import pathlib
import struct
import sys

import numpy as np
import pytest

import fkeras as fk
from fkeras.training.callbacks import (
    TensorBoard,
)
from fkeras.training.callbacks.reporting import events
from tests.support.callback_runs import KEY, RUN, drive, fit, shifted


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
    assert tags(read_events(tmp_path / "validation")) == [("epoch_loss", 0), ("epoch_loss", 1)]


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


def test_wrong_arguments_of_tensorboard(tmp_path, monkeypatch):
    assert TensorBoard(update_freq="batch").update_freq == 1
    assert not TensorBoard().watches_batches
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
