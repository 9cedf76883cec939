"""Repeated blocks: each kind is recorded once, and blocks of one kind have equal layers."""

import itertools

import pytest

import fkeras as fk
from fkeras.pretrained.blocks.repeated import repeated
from fkeras.pretrained.families.table import FAMILIES


def test_each_kind_is_recorded_once():
    recorded = []

    def block(i):
        recorded.append(i)
        x = fk.Input((3,))
        return fk.Model(x, fk.layers.Dense(3, name=f"dense_of_{i}")(x))

    models = list(repeated(block, "abab"))
    assert recorded == [0, 1]
    assert [model.name for model in models] == ["block_0", "block_1", "block_2", "block_3"]
    assert [list(model.layers)[-1] for model in models] == ["dense_of_0", "dense_of_1"] * 2


@pytest.mark.one_in(16)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.config.__name__)
def test_equal_blocks_of_a_model_share_their_layers(family):
    stacks = [
        one for _, one in fk.engine.sublayers(family.build(family.tiny)) if hasattr(one, "graph")
    ]
    pairs = [
        pair
        for stack in stacks
        for pair in itertools.combinations(
            [layer for name, layer in stack.layers.items() if name.startswith("block_")], 2
        )
    ]
    assert pairs
    for first, second in pairs:
        same = first.layers is second.layers
        assert same == (first.replace(name="block") == second.replace(name="block"))
