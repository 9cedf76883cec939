"""Different optimizers for different weights."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fkeras import optimizers


def test_optimizers_by_pattern():
    multi = optimizers.MultiOptimizer(
        {"encoder/*": "sgd", "re:.*/(bias|beta)": optax.sgd(0.5), "*": optimizers.Adam(1e-4)}
    )
    same = optimizers.MultiOptimizer(multi.optimizer_map)
    weights = {
        "encoder/bias": jnp.ones(2),
        "head": {"bias": jnp.ones(2), "kernel": jnp.ones((2, 2)), "hole": None},
    }
    assert same == multi
    assert hash(same) == hash(multi)
    reordered = optimizers.MultiOptimizer(tuple(reversed(multi.optimizer_map)))
    assert reordered != multi
    tx = multi.transformation()
    gradients = jax.tree.map(jnp.ones_like, weights)
    deltas, state = tx.update(gradients, tx.init(weights), weights)
    assert jax.tree.structure(deltas) == jax.tree.structure(weights)
    values = [float(d.ravel()[0]) for d in jax.tree.leaves(deltas)]
    np.testing.assert_allclose(values, [-0.01, -0.5, -1e-4], rtol=1e-5)
    assert int(state.states["encoder/*"].count) == 1
    assert list(tx.update(gradients, state)[1].states) == ["encoder/*", "re:.*/(bias|beta)", "*"]
    final_weights = multi.finalize(state, weights)
    assert final_weights["head"]["bias"] is weights["head"]["bias"]
    for outer in (multi, optimizers.LossScaleOptimizer(optax.sgd(0.1))):
        with pytest.raises(TypeError, match="optax transformation has no JSON form"):
            outer.get_config()
    with pytest.raises(ValueError, match="two at 'a/b'"):
        tx.init({"a": {"b": jnp.ones(1)}, "a/b": jnp.ones(1)})
