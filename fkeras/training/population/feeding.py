"""Batches of an epoch for all members, which share the order of the rows or have one each."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fkeras.authoring.training import Batches, Feed
from fkeras.training import TrainState


class MemberEpoch:
    """Batches of an epoch in which each member has its own order of the rows.

    Args:
        feed: the rows, resident on the device.
        orders: the order of each lane, int32 of shape (lanes, rows).
    """

    def __init__(self, feed: Feed, orders: Any):
        self.feed, self.orders, self.done = feed, orders, 0

    def take(self, number: int) -> tuple[tuple, int] | None:
        """Returns `(rows, taken)` for `program.train`, or None at the end of the epoch."""
        feed, start, total = self.feed, self.done, len(self.feed)
        number = min(number, feed.steps - start)
        if number <= 0:
            return None
        whole = (total // feed.size if feed.exact else feed.steps) - start
        if whole <= 0:  # the last batch has only the remaining rows
            self.done += 1
            rest = total - start * feed.size
            last = self.orders[:, start * feed.size : total]
            places = np.arange(rest, dtype="int32")
            return (feed.resident, last, places, np.int32(0), np.int32(rest)), 1
        number = min(number, whole)
        self.done += number
        places = np.arange(feed.size, dtype="int32")
        return (feed.resident, self.orders, places, np.int32(start), np.int32(total)), number


def orders_of(feed: Feed, runs: TrainState, lanes: np.ndarray, step: int) -> np.ndarray:
    """Returns the order of the rows for the key of each lane, as in the `fit` of that member."""
    keys, places = np.unique(np.asarray(runs.key_data)[lanes], axis=0, return_inverse=True)
    # without resident rows the orders stay on the host, where those of equal keys are copied
    feed = dataclasses.replace(feed, resident=None)
    return np.asarray(feed.order(runs.replace(key_data=keys), step))[places.reshape(-1)]


def share_order(order: str, feed: Feed | Batches, runs: TrainState, shuffle: bool) -> bool:
    """Returns whether the members see the same batches in the same order.

    Raises:
        ValueError: if each member needs its own order of rows that are not on the device.
    """
    keys = np.asarray(runs.key_data)
    if order == "shared" or not shuffle or not isinstance(feed, Feed) or (keys == keys[0]).all():
        return True
    if feed.resident is None:
        raise ValueError(
            "Population.fit: the rows do not fit on the device, so the members cannot have an order "
            'of the rows each. Write fk.populate(..., order="shared"), or shuffle=False.'
        )
    return False
