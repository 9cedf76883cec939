"""`History`: what `fit` returns beside the run."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class History:
    """The logs of all epochs.

    Attributes:
        history: for each name the value of each epoch; "val_" stands before validation's names.
        epoch: the numbers of the epochs, from 0.
        params: how `fit` was called: epochs, steps, batch_size, samples.

    Example:
        >>> from fkeras.training import History
        >>> History({"loss": [2.0, 1.0]}, [0, 1], {"epochs": 2}).history["loss"]
        [2.0, 1.0]
    """

    history: dict[str, list[float]]
    epoch: list[int]
    params: dict[str, Any]
