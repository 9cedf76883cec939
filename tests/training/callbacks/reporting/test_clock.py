"""Durations between hooks."""

import numpy as np

from fkeras.training.callbacks.reporting import clock


def test_seconds_since_a_time_before_and_after():
    then = clock.now()
    assert then.dtype == np.int32
    assert 0 <= clock.seconds_since(then) < 60
    assert clock.seconds_since(then - np.asarray([100, 0], "int32")) >= 100
    # of another process, whose clock was ahead
    assert clock.seconds_since(then + np.asarray([100, 0], "int32")) == 0
