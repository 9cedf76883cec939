"""Shares of a `Dataset`: blocks of the batches, and positions that are valid for all shares."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkeras as fk

pytest.importorskip("grain")


def _data(count, **options):
    return fk.utils.Dataset(count, lambda ids: ids, **options)


def _shares(data, shares):
    return [dataclasses.replace(data, shard=(index, shares)) for index in range(shares)]


def _together(passes):
    """Returns the batches of all shares: the rows of the shares after each other."""
    batches = []
    while blocks := [block for block in (next(rows, None) for rows in passes) if block is not None]:
        batches.append(np.concatenate(blocks).tolist())
    return batches


# batches as few lists, so that a failure shows the numbers
def _batches(data, step=0):
    return [batch.tolist() for batch in data.pass_at(step)]


@st.composite
def _datasets(draw):
    shares = draw(st.integers(1, 5))
    data = _data(
        draw(st.integers(1, 40)),
        batch_size=shares * draw(st.integers(1, 4)),
        shuffle=draw(st.booleans()),
        limit=draw(st.none() | st.integers(1, 6)),
    )
    return data, shares


@pytest.mark.exhaustive
@given(_datasets(), st.integers(0, 2))
@settings(max_examples=40, deadline=None)
def test_the_blocks_of_all_shares_are_the_batches(drawn, step):
    data, count = drawn
    shares = _shares(data, count)
    assert _together([share.pass_at(step) for share in shares]) == _batches(data, step)
    assert [len(share) for share in shares] == [len(list(share)) for share in shares]
    assert len(shares[0]) == len(data) and len(shares[-1]) >= len(data) - 1


def test_no_sample_is_left_out_and_the_last_batch_is_short():
    first, second, third = (_batches(share) for share in _shares(_data(14, batch_size=6), 3))
    assert first == [[0, 1], [6, 7], [12, 13]]
    assert second == [[2, 3], [8, 9]]
    assert third == [[4, 5], [10, 11]]


def test_a_share_may_have_no_batch():
    shares = _shares(_data(5, batch_size=8), 4)
    assert [_batches(share) for share in shares] == [[[0, 1]], [[2, 3]], [[4]], []]
    assert [len(share) for share in shares] == [1, 1, 1, 0]


@pytest.mark.exhaustive
@given(_datasets(), st.integers(0, 7), st.sampled_from([1, 2, 4]), st.data())
@settings(max_examples=40, deadline=None)
def test_a_position_continues_any_number_of_shares(drawn, stop, count, choose):
    data, saved_count = drawn
    data = dataclasses.replace(data, batch_size=data.batch_size * 4)
    passes = [share.pass_at(6) for share in _shares(data, saved_count)]
    for rows in passes:
        for _ in range(min(stop, len(data))):
            next(rows, None)
    # every share has the same position, also one that had no sample of the last batch
    states = [json.loads(json.dumps(rows.get_state())) for rows in passes]
    assert all(state == states[0] for state in states)
    continued = [iter(share) for share in _shares(data, count)]
    for rows in continued:
        assert rows.moves_between_shares
        rows.set_state(choose.draw(st.sampled_from(states)))
    assert _together(continued) == _batches(data, 6)[stop:]


def test_the_last_position_is_the_end_of_a_share_with_fewer_batches():
    first, second = (iter(share) for share in _shares(_data(9, batch_size=4), 2))
    assert len(list(first)) == 3
    second.set_state(first.get_state())
    assert list(second) == []


@pytest.mark.exhaustive
def test_checkpoints_of_datasets_without_shares_stay_valid():
    data = _data(44, batch_size=8, shuffle=True, seed=3)
    assert data.fingerprint() == 3194503101
    assert {share.fingerprint() for share in _shares(data, 4)} == {3194503101}
    rows = iter(data)
    rows.set_state({"pass": 0, "data": 3194503101, "position": {"next_index": 5}})
    assert [batch.tolist() for batch in rows] == _batches(data)[5:]


@pytest.mark.exhaustive
def test_shares_of_a_repeated_grain_dataset_have_the_order_of_each_repetition():
    data = _data(10, batch_size=4, shuffle=True)
    whole = [batch.tolist() for batch in data.to_grain().repeat(3)]
    shares = [share.to_grain().repeat(3) for share in _shares(data, 2)]
    assert [len(share) for share in shares] == [9, 9]
    for number, batch in enumerate(whole):
        blocks = [share[number] for share in shares]
        assert [row for block in blocks if block is not None for row in block] == batch
    assert shares[1][2] is None and whole[:3] != whole[3:6]


def test_functions_receive_the_rows_of_the_share():
    data = _data(8, batch_size=4, shard=(1, 2)).map(lambda ids: ids * 10)
    assert _batches(data) == [[20, 30], [60, 70]]
    windows = fk.utils.timeseries_dataset_from_array(
        np.arange(6), None, 2, batch_size=4, shard=(1, 2)
    )
    assert [batch.tolist() for batch in windows] == [[[2, 3], [3, 4]]]


@pytest.mark.parametrize(
    ("batch_size", "shares", "fitting"), [(32, 3, 33), (2, 4, 4), (None, 2, 2)]
)
def test_a_batch_that_the_shares_cannot_divide_is_reported(batch_size, shares, fitting):
    message = (
        rf"expected a multiple of the {shares} shares.* received batch_size={batch_size} with "
        rf"shard=\(1, {shares}\). Write batch_size={fitting}\."
    )
    with pytest.raises(ValueError, match=message):
        _data(44, batch_size=batch_size, shard=(1, shares))
    assert len(_data(44, batch_size=fitting, shard=(1, shares))) > 0
