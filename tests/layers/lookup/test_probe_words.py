"""Recording a lookup that takes the words of its vocabulary only."""

import numpy as np
import pytest

import fkeras as fk
from fkeras import layers


@pytest.mark.parametrize("options", [{}, {"output_mode": "multi_hot"}, {"mask_token": ""}])
def test_a_lookup_without_unknown_words_is_recorded(options):
    layer = layers.StringLookup(vocabulary=["a", "b"], num_oov_indices=0, **options)
    x = fk.Input((1,), dtype="string")
    words = np.array([["a"], ["b"]])
    assert (fk.Model(x, layer(x))(words) == layer(words)).all()
    with pytest.raises(ValueError, match="received 'c'"):
        layer(np.array([["c"]]))


@pytest.mark.exhaustive
def test_a_feature_space_without_unknown_words():
    kind = fk.utils.FeatureSpace.string_categorical(num_oov_indices=0)
    table = {"word": ["p", "q"]}
    space = fk.utils.FeatureSpace({"word": kind}, output_mode="concat").adapt(table)
    assert sorted(np.asarray(space(table)).argmax(-1).tolist()) == [0, 1]
