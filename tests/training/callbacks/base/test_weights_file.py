"""Weights in the files of ModelCheckpoint."""

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.callbacks import (
    load_weights,
    save_weights,
)
from tests.support.callback_runs import KEY, RUN, network


def test_wrong_weights_files_are_reported(tmp_path):
    path = tmp_path / "best.npz"
    save_weights(path, RUN, weights_only=False)
    with pytest.raises(
        FileNotFoundError, match="Did you mean 'best.npz'. Files in its folder: best.npz"
    ):
        load_weights(tmp_path / "bst.npz", RUN)
    (tmp_path / "half.npz").write_bytes(path.read_bytes()[:300])
    with pytest.raises(
        ValueError, match="complete file written by ModelCheckpoint, but .*half.npz"
    ):
        load_weights(tmp_path / "half.npz", RUN)
    np.savez(tmp_path / "other.npz", a=np.ones(2))
    with pytest.raises(ValueError, match=r"complete file written by ModelCheckpoint.*about"):
        load_weights(tmp_path / "other.npz", RUN)
    np.savez(tmp_path / "new.npz", about=np.asarray('{"format": "fkeras weights", "version": 9}'))
    with pytest.raises(ValueError, match="version 1, received 'fkeras weights', version 9"):
        load_weights(tmp_path / "new.npz", RUN)

    def run_of(model, optimizer="sgd"):
        return fk.Trainer(optimizer, "mse").init(model, KEY)

    x = fk.Input((3,))
    other = fk.Model(x, layers.Dense(1, name="heads")(x))
    with pytest.raises(
        ValueError, match="missing weight 'heads/kernel'.*Did you mean 'head/kernel'"
    ):
        load_weights(path, run_of(other))
    h = layers.BatchNormalization(name="norm")(layers.Dense(4, name="body")(x))
    wide = fk.Model(x, layers.Dense(1, name="head")(h))
    with pytest.raises(ValueError, match=r"'body/kernel' of shape \(3, 4\), received \(3, 2\)"):
        load_weights(path, run_of(wide))
    save_weights(tmp_path / "wide.npz", run_of(wide))
    small = fk.Model(x, layers.Dense(1, name="head")(x))
    with pytest.raises(
        ValueError, match="unexpected weight 'body/kernel'|unexpected weight 'body/bias'"
    ):
        load_weights(tmp_path / "wide.npz", run_of(small))
    with pytest.raises(ValueError, match="weights_only=True leaves the optimizer as it is"):
        load_weights(path, run_of(network(), "adam"))
