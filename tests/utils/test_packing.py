"""Packing of sequences into rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, masks
from fkeras.utils import pack_sequences

RNG = np.random.default_rng(0)
SEQUENCES = [RNG.integers(1, 9, size=n).tolist() for n in (3, 7, 2, 2, 5, 1, 12)]


@pytest.mark.exhaustive
def test_every_id_is_in_one_row():
    packed = pack_sequences(SEQUENCES, 8)
    pieces = []
    for ids, segments in zip(packed.ids, packed.segments, strict=True):
        assert segments.tolist() == [
            *sorted(s for s in segments if s),
            *[0] * (segments == 0).sum(),
        ]
        pieces += [tuple(ids[segments == s]) for s in range(1, segments.max() + 1)]
    # the sequence of 12 ids is in two pieces
    whole = [tuple(s) for s in SEQUENCES[:-1]]
    assert sorted(pieces) == sorted([*whole, tuple(SEQUENCES[-1][:8]), tuple(SEQUENCES[-1][8:])])
    assert len(packed.ids) == 4
    assert (packed.ids[packed.segments == 0] == 0).all()


def test_labels_are_the_next_ids_of_the_sequence():
    packed = pack_sequences([[5, 6, 7], [8, 9]], 6)
    assert packed.labels.tolist() == [[6, 7, -1, 9, -1, -1]]
    assert all(array.dtype == np.int32 for array in packed)
    long = pack_sequences([[1, 2, 3, 4, 5]], 2)
    assert sorted(zip(long.ids.tolist(), long.labels.tolist(), strict=True)) == [
        ([1, 2], [2, 3]),
        ([3, 4], [4, 5]),
        ([5, 0], [-1, -1]),
    ]


def test_answers_alone_are_learned():
    packed = pack_sequences([[1, 2, 3, 4]], 5, masks=[[True, False, True, True]], ignore_class=-7)
    assert packed.labels.tolist() == [[-7, 3, 4, -7, -7]]


def test_no_sequences():
    assert pack_sequences([], 4).ids.shape == (0, 4)


@pytest.mark.exhaustive
def test_packed_rows_compute_what_single_sequences_compute():
    ids = fk.Input((None,), dtype="int32", name="ids")
    segments = fk.Input((None,), dtype="int32", name="segments", optional=True)
    positions = layers.Positions()(ids, segments)
    x = layers.Embedding(9, 4)(ids)
    x = layers.Reshape((-1, 2, 2))(x)
    q, k = layers.RotaryEmbedding()([x, x], positions)
    y = layers.DotProductAttention(mask=masks.Causal())(q, k, x, positions)
    model = fk.Model([ids, segments], y).build(jax.random.key(0))
    packed = pack_sequences(SEQUENCES[:5], 12)
    rows = model([jnp.asarray(packed.ids), jnp.asarray(packed.segments)])
    for row, segment in ((0, 1), (0, 2), (1, 1)):
        inside = packed.segments[row] == segment
        alone = model(jnp.asarray(packed.ids[row][inside])[None])
        np.testing.assert_allclose(rows[row][inside], alone[0], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1]], 1), "length"),
        (([[]], 4), "sequence 0.*Leave empty texts out"),
        (([[1.5]], 4), "expected integers"),
        ((["ab"], 4), "encode texts first"),
        (([[[1]]], 4), "one axis"),
        (([[1, -1]], 4), "Cut padding off"),
        (([[1 << 40]], 4), "2\\*\\*31"),
        (([[1, 2]], 4, []), "a mask for each of 1 sequences"),
        (([[1, 2]], 4, [[True]]), "a mask of 2 booleans"),
        (([[1, 2]], 4, [[1, 0]]), "a mask of 2 booleans"),
        (([[1, 2]], 4, None, 0.5), "ignore_class"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pack_sequences(*arguments)
