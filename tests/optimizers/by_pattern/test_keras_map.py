"""Maps of optimizers in Keras's form."""

import jax.numpy as jnp
import numpy as np

from fkeras import optimizers
from tests.support.keras_oracle import keras, keras_rules


def test_a_map_of_keras_is_read():
    with keras_rules():
        keras_optimizer = keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(
                keras.optimizers.Adam(),
                {"encoder/.*": keras.optimizers.SGD(0.1), "a/b": keras.optimizers.SGD(0.2)},
            )
        )
        config = dict(keras_optimizer.get_config(), name=None)
    read = optimizers.MultiOptimizer.from_config(config)
    assert [pattern for pattern, _ in read.optimizer_map] == ["re:a/b", "re:encoder/.*", "*"]
    assert read.optimizer_map[0][1].learning_rate == 0.2


def test_maps_in_the_form_of_keras():
    """As in Keras, an exact path goes first, then regular expressions of whole paths."""
    parts = {"encoder/.*": optimizers.SGD(0.1), "encoder/bias": optimizers.SGD(0.2)}
    chosen = optimizers.OptimizerMap("adam", parts)
    assert (len(chosen), list(chosen)) == (2, list(parts))
    paths = ("encoder/bias", "encoder/kernel", "head/kernel")
    with keras_rules():
        theirs = keras.optimizers.deserialize(optimizers.serialize(chosen))
        names = [float(theirs[path].learning_rate) for path in paths]
    np.testing.assert_allclose([chosen[path].learning_rate for path in paths], names, rtol=1e-6)
    multi = optimizers.MultiOptimizer(chosen)
    weights = {path: jnp.ones(2) for path in paths}
    tx = multi.transformation()
    deltas, _ = tx.update(weights, tx.init(weights), weights)
    values = [float(deltas[path][0]) for path in paths]
    np.testing.assert_allclose(values, [-0.2, -0.1, -1e-3], rtol=1e-4)
    assert optimizers.deserialize(optimizers.serialize(chosen)) == chosen
    assert hash(optimizers.MultiOptimizer(chosen)) == hash(multi)
