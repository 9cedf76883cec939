"""CSVLogger writes Keras's files and appends to its own."""

import csv
import io

import keras
import pytest

from fkeras.training.callbacks import (
    CSVLogger,
)
from tests.support.callback_runs import RUN, drive, drive_keras, pickled
from tests.support.keras_oracle import keras_rules


@pytest.mark.one_in(4)
@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize("separator", [",", ";"])
def test_csv_files_are_those_of_keras(tmp_path, append, separator):
    options = {"append": append, "separator": separator}
    for sequence in (
        [{"loss": 0.5, "b": 2.0}, {"loss": 0.25, "b": 1.0, "val_loss": 3.0, "val_b": 1e-9}],
        [{"loss": 0.125, "b": 0.5}],
    ):
        with keras_rules():
            drive_keras(keras.callbacks.CSVLogger(tmp_path / "theirs.csv", **options), sequence)
        drive(CSVLogger(tmp_path / "ours.csv", **options), sequence)
        ours, theirs = ((tmp_path / name).read_bytes() for name in ("ours.csv", "theirs.csv"))
        assert ours == theirs


@pytest.mark.parametrize("append", [False, True])
def test_a_resumed_run_appends_to_its_csv_file(tmp_path, append):
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss,val_loss\r\n0,9.0,NA\r\n")
    runs = []
    logger = CSVLogger(path, append=append)
    sequence = [{"loss": float(epoch)} for epoch in range(5)]

    def through(run):
        runs.append(pickled(run))
        return run

    drive(logger, sequence[:4], through=through)
    # the file knows four epochs and half a row, the run only two
    with path.open("a") as file:
        file.write("4,1")
    drive(logger, sequence[2:], run=runs[1], first=2)
    rows = list(csv.reader(io.StringIO(path.read_text())))
    before = ["0"] if append else []
    assert [row[0] for row in rows] == ["epoch", *before, "0", "1", "2", "3", "4"]
    assert [float(row[1]) for row in rows[1 + len(before) :]] == [0.0, 1.0, 2.0, 3.0, 4.0]
    # the file was taken away meanwhile
    path.unlink()
    drive(logger, sequence[2:3], run=runs[1], first=2)
    assert path.read_text().splitlines() == ["epoch,loss,val_loss", "2,2.0,NA"]


def test_wrong_arguments_of_csv_logger(tmp_path):
    path = tmp_path / "log.csv"
    drive(CSVLogger(path), [{"loss": 1.0, "f1": [0.5, 0.25]}])
    assert path.read_text().splitlines()[1] == '0,"[0.5, 0.25]",1.0,NA,NA'
    with pytest.raises(ValueError, match="columns epoch, auc, but .* has epoch, f1.*append=False"):
        drive(CSVLogger(path, append=True), [{"auc": 1.0}])
    with pytest.raises(ValueError, match="expected a single character as separator, received '--'"):
        CSVLogger(path, "--")
    with pytest.raises(OSError, match="CSVLogger: expected filename in a writable folder"):
        CSVLogger(path / "a.csv").on_train_begin(RUN)
