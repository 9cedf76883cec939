"""SwapEMAWeights averages as Keras does."""

import chex
import jax
import keras
import numpy as np
import pytest

import fkeras as fk
from fkeras.training.callbacks import (
    LambdaCallback,
    SwapEMAWeights,
)
from tests.support.callback_runs import RUN, X, Y, fit, pickled, shifted
from tests.support.keras_oracle import keras_rules


def keras_twin():
    with keras_rules():
        x = keras.Input((3,))
        h = keras.layers.BatchNormalization()(keras.layers.Dense(2)(x))
        model = keras.Model(x, keras.layers.Dense(1)(h))
    model.set_weights(RUN.model.get_weights(RUN.state))
    return model


def test_the_average_is_that_of_keras():
    model = keras_twin()
    with keras_rules():
        optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.8)
        model.compile(optimizer, "mse")
        model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        theirs = model.get_weights()
    swap = SwapEMAWeights(0.8)
    run, _ = fit(swap, epochs=2, steps_per_execution=1)
    for one, other in zip(run.model.get_weights(run.state), theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    # training goes on from the weights, in one fit or two
    plain, _ = fit(epochs=4)
    half, _ = fit(swap, run=pickled(run), epochs=2, steps_per_execution=1)
    full_run, _ = fit(swap, epochs=4, steps_per_execution=1)
    memory = full_run.memory["swap_ema_weights"]
    chex.assert_trees_all_close(half.model, full_run.model, rtol=1e-5)
    trained = fk.engine.trainable_weights(plain.model)
    chex.assert_trees_all_close(dict(memory["weights"]), trained, rtol=1e-5, atol=1e-7)


def test_the_average_replaces_the_weights_for_evaluation():
    seen = {}
    early = LambdaCallback(on_epoch_begin=lambda e, run: seen.__setitem__(("begin", e), run))
    late = LambdaCallback(on_epoch_end=lambda e, run, logs: seen.__setitem__(("end", e), run))
    swap = SwapEMAWeights(0.5, swap_on_epoch=True, update_freq="epoch")
    assert not swap._watches_batches
    run, _ = fit(early, swap, late, epochs=2)
    memory = run.memory["swap_ema_weights"]
    chex.assert_trees_all_close(fk.engine.trainable_weights(run.model), dict(memory["average"]))
    first, second = (seen["end", e].memory["swap_ema_weights"] for e in (0, 1))
    expected = jax.tree.map(lambda a, w: (a + w) / 2, first["weights"], second["weights"])
    chex.assert_trees_all_close(dict(second["average"]), dict(expected), rtol=1e-5)
    plain, _ = fit(epochs=2)
    trained = fk.engine.trainable_weights(plain.model)
    chex.assert_trees_all_close(dict(memory["weights"]), trained, rtol=1e-5)
    # a validation sees the average, and nothing else does
    middle = swap.on_epoch_begin(1, seen["end", 0])
    tested = swap.on_test_begin(middle)
    weights = fk.engine.trainable_weights
    chex.assert_trees_all_close(weights(tested.model), dict(first["average"]))
    chex.assert_trees_all_equal(weights(middle.model), dict(first["weights"]))
    assert swap.on_test_begin(run) is None


@pytest.mark.exhaustive
def test_the_average_and_a_model_that_changed():
    swap = SwapEMAWeights(0.5)
    run, _ = fit(swap, epochs=1)
    # other weights were put in: they stay
    changed = shifted(run, 1.0)
    begun = swap.on_train_begin(changed)
    chex.assert_trees_all_equal(begun.model, changed.model)
    assert int(begun.memory["swap_ema_weights"]["updates"]) == 0
    frozen = run.replace(model=fk.freeze(run.model, "body"))
    fitted, _ = fit(swap, run=frozen, epochs=1)
    assert sorted(fitted.memory["swap_ema_weights"]["average"]) == [
        "head/bias",
        "head/kernel",
        "norm/beta",
        "norm/gamma",
    ]
    # n steps in one call count as n
    two = SwapEMAWeights(0.5, name="two")
    begun = two.on_train_begin(RUN)
    one = two.on_batch_end(1, shifted(begun, 1.0), {})
    jump = two.on_batch_end(3, shifted(one, 1.0), {})
    gap = float(jump.memory["two"]["average"]["head/bias"][0] - RUN.model.layers["head"].bias[0])
    assert gap == pytest.approx(0.25 * 1 + 0.75 * 2, rel=1e-5)


@pytest.mark.exhaustive
def test_the_average_of_half_precision():
    run = RUN.replace(model=jax.tree.map(lambda a: a.astype("bfloat16"), RUN.model))
    swap = SwapEMAWeights(0.5, name="s")
    run = swap.on_train_end(swap.on_batch_end(1, swap.on_train_begin(run), {}))
    assert run.memory["s"]["average"]["head/bias"].dtype == "float32"
    assert run.model.layers["head"].bias.dtype == "bfloat16"
    assert "weights" not in swap.on_train_begin(run).memory["s"]


def test_wrong_arguments_of_average():
    with pytest.raises(ValueError, match="momentum: expected a number from 0 to 1, received 1.5"):
        SwapEMAWeights(1.5)
    with pytest.raises(
        ValueError, match="update_freq: expected 'batch' or 'epoch', received 'step'"
    ):
        SwapEMAWeights(update_freq="step")
