"""`Alone`: the group of a single process, which exchanges nothing."""

from __future__ import annotations

from typing import Any

import jax


class Alone:
    """The group of a single process: nothing is exchanged.

    Attributes:
        index: position of this process in the group.
        count: number of processes.
        members: numbers of the processes; (0,) for a single process.
    """

    index, count = 0, 1
    members: tuple[int, ...] = (0,)

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints for the group."""
        return self.index == 0

    def agree(self, value: object, what: str = "") -> list[Any]:
        """Returns the values that all processes pass, in the order of the processes."""
        return [value]

    def require_equal(self, what: str, facts: object) -> None:
        """Raises a `ProcessError` with the differences if the processes pass different facts."""

    def wait(self, tree: object) -> None:
        """Waits until the arrays of a tree are computed."""
        jax.block_until_ready(tree)

    def is_computed(self, array: jax.Array, seconds: float = 2.0) -> bool:
        """Returns whether an array is computed, or will be within some seconds.

        Args:
            seconds: longest time to wait, in a group; a single process waits until the end.
        """
        return True

    def report_failure(self, error: BaseException) -> None:
        """Reports to the other processes that this process makes no more exchanges of the main channel.

        The exchanges of other channels, for a rescue or for a save in progress, continue until the
        process leaves the call.
        """

    def channel(self, name: str) -> Alone:
        """Returns the group with exchanges of their own, for a second thread or a rescue."""
        return self


#: the group of a trainer without a mesh of several processes
ALONE = Alone()
