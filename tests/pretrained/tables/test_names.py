"""Rows of the tables of names: each operation is undone bit by bit, and states the shapes in the file."""

import numpy as np
import pytest

from fkeras.pretrained.tables.names import (
    Add,
    Convolution,
    HeadBias,
    Heads,
    HeadsIn,
    Permuted,
    Reshape,
    Row,
    Same,
    Split,
    Stack,
    Then,
    Transpose,
    in_blocks,
)

# operation, shapes in the file, shapes in the graph
CASES = {
    "Same": (Same(), [(3, 4)], [(3, 4)]),
    "Transpose": (Transpose(), [(3, 4)], [(4, 3)]),
    "Heads": (Heads(2, 5), [(10, 3)], [(3, 2, 5)]),
    "HeadsIn": (HeadsIn(2, 5), [(3, 10)], [(2, 5, 3)]),
    "HeadBias": (HeadBias(2, 5), [(10,)], [(2, 5)]),
    "Reshape": (Reshape((1, 1, 6), (6,)), [(1, 1, 6)], [(6,)]),
    "Convolution of images": (Convolution(), [(8, 3, 5, 6)], [(5, 6, 3, 8)]),
    "Convolution of sounds": (Convolution(), [(8, 3, 5)], [(5, 3, 8)]),
    "Permuted": (Permuted(2), [(12, 3)], [(12, 3)]),
    "Permuted bias": (Permuted(3), [(12,)], [(12,)]),
    "Then": (Then(Permuted(2), Heads(2, 6)), [(12, 3)], [(3, 2, 6)]),
    "Split": (
        Split((4, 2), then=(Heads(2, 2), Transpose())),
        [(6, 3)],
        [(3, 2, 2), (3, 2)],
    ),
    "Split in groups": (
        Split((4, 2), then=(Heads(2, 2), Transpose()), groups=2),
        [(6, 3)],
        [(3, 2, 2), (3, 2)],
    ),
    "Split along columns in groups": (Split((4, 2), axis=1, groups=2), [(3, 6)], [(3, 4), (3, 2)]),
    "Split along columns": (Split((4, 4, 4), axis=1), [(3, 12)], [(3, 4)] * 3),
    "Stack": (Stack(Transpose()), [(3, 4)] * 5, [(5, 4, 3)]),
}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_operations_are_undone_and_know_their_shapes(name, dtype):
    operation, tensor_shapes, weight_shapes = CASES[name]
    numbers = np.random.default_rng(0)
    tensors = tuple(numbers.normal(size=shape).astype(dtype) for shape in tensor_shapes)
    weights = operation.read_all(tensors)
    assert [weight.shape for weight in weights] == weight_shapes
    assert list(operation.tensor_shapes(weight_shapes)) == tensor_shapes
    for tensor, written in zip(tensors, operation.write_all(weights), strict=True):
        assert written.dtype == dtype
        assert np.array_equal(tensor, written)


def test_heads_are_those_of_the_rows():
    tensor = np.arange(2 * 5 * 3).reshape(10, 3)
    weight = Heads(2, 5).read(tensor)
    x = np.arange(3)
    assert np.array_equal(np.einsum("c,cde->de", x, weight), (tensor @ x).reshape(2, 5))
    output = np.arange(30).reshape(3, 10)
    heads = np.arange(10).reshape(2, 5)
    assert np.array_equal(
        np.einsum("cd,cde->e", heads, HeadsIn(2, 5).read(output)), output @ heads.reshape(-1)
    )


def test_groups_hold_their_share_of_each_part():
    rows = np.array([[10, 11, 20, 12, 13, 21]])
    weights = Split((4, 2), axis=1, groups=2).read_all((rows,))
    assert [weight.tolist() for weight in weights] == [[[10, 11, 12, 13]], [[20, 21]]]


def test_the_permutation_is_the_inverse_of_that_of_the_writer():
    # a head size other than 4, for which reshaping as the writer does would be right by accident
    rows = np.arange(2 * 6)
    written = rows.reshape(2, 2, 3).swapaxes(1, 2).reshape(-1)
    assert Permuted(2).read(written).tolist() == rows.tolist()
    assert not np.array_equal(written.reshape(2, 2, 3).swapaxes(1, 2).reshape(-1), rows)


def test_add_is_undone_within_rounding():
    weight = np.array([0.25, -1.5], "float32")
    assert np.array_equal(Add(1.0).read(Add(1.0).write(weight)), weight)


@pytest.mark.exhaustive
def test_a_row_is_repeated_for_blocks_and_experts():
    row = Row("m.{i}.experts.{e}.w1", "block_{i}/gate", Stack(), experts=2)
    matches = [match for row in in_blocks((0, 3), row) for match in row.matches()]
    assert [match.tensors for match in matches] == [
        ("m.0.experts.0.w1", "m.0.experts.1.w1"),
        ("m.3.experts.0.w1", "m.3.experts.1.w1"),
    ]
    assert [match.weights for match in matches] == [("block_0/gate",), ("block_3/gate",)]
