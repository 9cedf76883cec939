"""Summaries: FLOPs, and a width of at most 100 columns without truncation."""

import re

import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.network.summary import number_text


def test_a_summary_shows_flops_per_layer_and_in_total():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2, use_bias=False)(layers.Dense(4)(x)))
    text = model.summary(show=False)
    assert re.search(r"dense \(Dense\) .* 28 +input_layer", text)  # 2 * 3 * 4 + 4
    assert "FLOPs per sample in inference: 44\n" in text
    fixed = fk.Input(batch_shape=(2, 3))
    assert "FLOPs per call in inference: 12\n" in fk.Model(
        fixed, layers.Dense(1, use_bias=False)(fixed)
    ).summary(show=False)


@pytest.mark.exhaustive
def test_unknown_flops_are_shown_as_unknown():
    x = fk.Input((None, 3))
    text = fk.Model(x, layers.Dense(1)(layers.LSTM(2)(x))).summary(show=False)
    assert "at least 5 (unknown for 1 of 3 layers)" in text
    assert re.search(r"lstm \(LSTM\) .* \?  input_layer", text)


def test_long_names_are_wrapped_at_100_columns_and_never_truncated():
    x = fk.Input((3,), name="x")
    names = [f"part_{number}_of_a_network_with_a_very_long_name_" + "y" * 60 for number in range(3)]
    towers = [layers.Dense(2, name=name)(x) for name in names]
    model = fk.Model(x, layers.Concatenate(name="all")(towers))
    outer = fk.Model(x, fk.Sequential([fk.Input((3,)), model], name="inner")(x))
    for network in (model, outer):
        lines = network.summary(show=False).splitlines()
        assert max(map(len, lines)) <= 100
    assert sum(line.count("y") for line in model.summary(show=False).splitlines()) >= 6 * 60


def test_numbers_have_three_digits():
    texts = [number_text(n) for n in (0, 12, 999, 1000, 99_960, 1_234_567, 7.449e9, 2e15)]
    assert texts == ["0", "12", "999", "1 k", "100 k", "1.23 M", "7.45 G", "2 P"]
