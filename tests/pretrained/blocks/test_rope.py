"""Scalings of rotary positions, by the keys of both versions of the format."""

import pytest

from fkeras.layers import rotary
from fkeras.pretrained.blocks.rope import flat, scaling_of


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (None, None),
        ({"rope_type": "linear", "factor": 4}, rotary.Linear(4.0)),
        ({"rope_type": "dynamic", "factor": 2.0}, rotary.Dynamic(2.0, 64)),
        (
            {"rope_type": "llama3", "factor": 32.0, "original_max_position_embeddings": 16},
            rotary.Llama3(32.0, original_max_position_embeddings=16),
        ),
        ({"rope_type": "yarn", "original_max_position_embeddings": 16}, rotary.Yarn(4.0, 16)),
        (
            {"rope_type": "yarn", "factor": 4.0, "beta_slow": 2.0, "truncate": False},
            rotary.Yarn(4.0, 64, beta_slow=2.0, truncate=False),
        ),
        (
            {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0], "factor": 2.0},
            rotary.LongRope([1.0], [2.0], 64, 128),
        ),
    ],
)
def test_each_kind_gives_its_value(scaling, expected):
    assert scaling_of(scaling, 64) == expected


def test_the_length_of_the_configuration_precedes_that_of_the_scaling():
    scaling = {"rope_type": "yarn", "original_max_position_embeddings": 16}
    assert scaling_of(scaling, 64, 32) == rotary.Yarn(2.0, 32)


def test_both_versions_are_read():
    old = {"rope_theta": 5.0, "rope_scaling": {"type": "su", "factor": 2.0}, "x": 1}
    new = {"rope_parameters": {"rope_theta": 5.0, "rope_type": "longrope", "factor": 2.0}, "x": 1}
    assert flat(old) == flat(new)
    assert flat({"rope_scaling": None}) == {"rope_scaling": None}
    assert flat({"rope_parameters": {"rope_type": "default"}}) == {"rope_scaling": None}


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "ntk"}, "type among linear"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "llama3", "factor": 8.0, "faktor": 1.0}, "faktor"),
        ({"rope_type": "yarn", "factor": -1.0}, "factor"),
    ],
)
def test_wrong_scalings_are_rejected(scaling, message):
    with pytest.raises((ValueError, TypeError), match=message):
        scaling_of(scaling, 64)
