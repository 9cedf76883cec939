"""Arguments of functions of users: numbers and names."""

import functools
import math

import jax
import pytest

from fkeras.engine.values.callables import accepts, argument_names


class Called:
    def __call__(self, epoch):
        return epoch

    def rate(self, epoch, rate):
        return rate


@pytest.mark.parametrize(
    ("function", "counts"),
    [
        (lambda: 0, {0}),
        (lambda epoch: 0, {1}),
        (lambda epoch, rate=1: 0, {1, 2}),
        (lambda *values: 0, {0, 1, 2}),
        (lambda epoch, *values: 0, {1, 2}),
        (lambda epoch, *, rate=1: 0, {1}),
        (lambda epoch, *, rate: 0, set()),
        (Called(), {1}),
        (Called().rate, {2}),
        (jax.jit(lambda epoch: epoch), {1}),
        (Called, {0, 1, 2}),
        (math.sqrt, {0, 1, 2}),
        (functools.partial(lambda epoch: 0), {0, 1, 2}),
    ],
)
def test_counts_of_arguments(function, counts):
    assert {count for count in range(3) if accepts(function, count)} == counts


def test_names_of_arguments():
    assert argument_names(jax.jit(lambda x, y=1, *, training=False: x)) == ("x", "y", "training")
    assert argument_names(Called().rate) == ("self", "epoch", "rate")
    assert argument_names(math.exp) == argument_names(None) == ()
