"""Processes that wait for each other in different exchanges, which can never end."""

from __future__ import annotations

import json
from typing import NamedTuple

from fkeras.host.processes import heartbeat
from fkeras.host.processes.service import Service


class Waiting(NamedTuple):
    """A process that waits.

    Attributes:
        process: number of the process.
        key: key of the text that the process waits for; the last part is the number of the process
            that stores the text.
        beat: number of the heartbeat that reported the waiting.
    """

    process: int
    key: str
    beat: int

    @property
    def awaited(self) -> int:
        """The process that stores the text."""
        return int(self.key.rpartition("/")[2])

    @property
    def path(self) -> str:
        """The path of the call in which the process waits."""
        return self.key.rsplit("/", 3)[0]


def find_cycle(service: Service, process: int, key: str) -> list[Waiting] | None:
    """Returns the processes that seem to wait for each other; None if one of them is at work."""
    cycle = [Waiting(process, key, 0)]
    while service.peek(cycle[-1].key) is None:
        follower = cycle[-1].awaited
        if follower in [waiting.process for waiting in cycle]:
            return cycle
        text = service.peek(heartbeat.key_of(follower))
        if text is None or (facts := json.loads(text))["waits_for"] is None:
            return None
        cycle.append(Waiting(follower, facts["waits_for"], facts["beat"]))
    return None


def is_deadlock(earlier: list[Waiting] | None, cycle: list[Waiting] | None) -> bool:
    """Returns whether processes waited for each other all the time between two results."""
    if earlier is None or cycle is None or not same_cycle(earlier, cycle):
        return False
    # A heartbeat is up to a second old: only the second heartbeat after the earlier result shows that
    # the process waited at the time of the earlier result, and still does.
    return all(now.beat >= then.beat + 2 for now, then in zip(cycle[1:], earlier[1:], strict=True))


def same_cycle(one: list[Waiting], other: list[Waiting]) -> bool:
    """Returns whether the same processes wait for the same texts."""
    return [waiting[:2] for waiting in one] == [waiting[:2] for waiting in other]
