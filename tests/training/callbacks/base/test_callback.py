"""The base class of callbacks."""

import pytest

from fkeras.training import callbacks as hooks
from fkeras.training.callbacks import (
    Callback,
    LambdaCallback,
)
from tests.support.callback_runs import RUN, Counter, fit


def test_mistakes_in_subclasses_are_reported():
    with pytest.raises(
        ValueError, match=r"two named 'a'. Rename the second callback: Counter\(..., name='a_1'\)"
    ):
        hooks.check_callbacks([Counter(name="a"), Counter(name="a")])
    with pytest.raises(TypeError, match="Write Counter\\(\\)"):
        hooks.check_callbacks([Counter])
    with pytest.raises(TypeError, match="received <lambda>. Subclass Callback"):
        hooks.check_callbacks(lambda: None for _ in range(1))
    with pytest.raises(TypeError, match="'mine': expected arrays and numbers to remember.*'word'"):
        Callback(name="mine").remember(RUN, {"a": "word"})
    wrong = LambdaCallback(on_epoch_end=lambda epoch, run, logs: 3)
    with pytest.raises(TypeError, match="expected None, a TrainState or a Stop, returned int"):
        fit(wrong)
