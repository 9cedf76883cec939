"""`RelativePositionBias`: buckets, caches' positions, arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers
from fkeras.layers.attention.relative_position import distance_buckets

KEY = jax.random.key(0)


def test_buckets_are_exact_at_powers():
    # computed by transformers 5.24 (T5Attention._relative_position_bucket, 16 buckets up to 128)
    starts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    buckets = distance_buckets(16, 128)
    assert [int(np.argmax(buckets == n)) for n in range(16)] == starts
    assert buckets[-1] == 15


@pytest.mark.exhaustive
@pytest.mark.parametrize("bidirectional", [True, False])
def test_bias_depends_on_positions_alone(bidirectional):
    layer = layers.RelativePositionBias(2, 8, 12, bidirectional=bidirectional)
    positions = jnp.arange(9)[None]
    layer = layer.build(KEY, positions)
    whole = layer(positions)
    # one token beside a ring of cached positions
    ring = jnp.array([[6, 7, 8, 3, 4, 5]])
    np.testing.assert_array_equal(layer(jnp.array([[8]]), ring), whole[:, :, 8:, ring[0]])
    # far apart: the last bucket; keys after the query have their own biases or those of distance 0
    far = layer(jnp.array([[0, 500]]), jnp.array([[0, 500]]))
    last = 3 if bidirectional else 7
    np.testing.assert_array_equal(far[0, :, 1, 0], layer.embeddings[last])
    np.testing.assert_array_equal(far[0, :, 0, 1], layer.embeddings[7 if bidirectional else 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, "num_heads.*0"),
        ({"num_buckets": 7}, "num_buckets: expected an even number of 4 or more, received 7"),
        ({"num_buckets": 2}, "even number of 4 or more, received 2"),
        ({"num_buckets": 1, "bidirectional": False}, "num_buckets.*1"),
        ({"max_distance": 10**12}, "1 to 1048576"),
        ({"max_distance": 8}, "max_distance: expected more than 8.*received 8"),
        ({"max_distance": 16, "bidirectional": False}, "more than 16.*received 16"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        layers.RelativePositionBias(**{"num_heads": 2, **options})
