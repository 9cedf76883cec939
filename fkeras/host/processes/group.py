"""`Group`: the processes of a mesh in a joint call, and their exchanges of JSON values.

Every process makes the same calls of a trainer in the same order. Within a call, the processes exchange
small JSON values at fixed places: whether to stop, whether a signal arrived, how many batches the next
device call has. All processes then take the same decision from the same values.

A process that waits never waits in silence: it reads the heartbeats of the others, and raises a
`ProcessError` that names the process that has ended, left the call with an exception, or makes
another call.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any

import jax

from fkeras.host.processes import deadlock, heartbeat
from fkeras.host.processes.alone import Alone
from fkeras.host.processes.compare import compare
from fkeras.host.processes.service import ProcessError

#: seconds without a heartbeat after which a process counts as ended.
SILENCE = 20.0
# Seconds to wait for a process that lives but does not make the call: a callback or a file may take long.
_PATIENCE = 3600.0
# Seconds after which two processes that wait for different things are an error.
_DEADLOCK = 6.0
_SLICE = 1.0


class Group(Alone):
    """The processes of a mesh in one joint call; `together` returns the group.

    Keys of the service, below the path of the call: `name/0` is the name of the call in process 0,
    `main/3/0` is the value of process 0 in the third exchange of the channel "main", and `end/0` states
    how process 0 left the call. The calls within a call have their paths below its path: if one
    process alone makes such a call, the next calls of all processes still match.

    Args:
        members: numbers of the processes.
        call: name of the call, for messages.
        path: prefix of the keys of the call.
        beats: the heartbeat of this process.
        outer: the call that this call is a part of.
        channel: name of the sequence of exchanges.
        channels: the groups of the call by channel.
    """

    def __init__(
        self,
        members: tuple[int, ...],
        call: str,
        path: str,
        beats: heartbeat.Heartbeat,
        outer: Group | None = None,
        channel: str = "main",
        channels: dict[str, Group] | None = None,
    ):
        self.members, self.call, self.path, self.outer = members, call, path, outer
        self.index, self.count = members.index(jax.process_index()), len(members)
        self.thread = threading.get_ident()
        self._service, self._beats, self._channel = beats.service, beats, channel
        self._channels = {} if channels is None else channels
        self._channels[channel] = self
        self._number = 0
        self._seen: dict[int, tuple[int, float]] = {}

    def channel(self, name: str) -> Group:
        # A second group of a channel would count from 1 again, and read old values.
        if name in self._channels:
            return self._channels[name]
        group = Group(
            self.members, self.call, self.path, self._beats, self.outer, name, self._channels
        )
        group.thread, group._seen = self.thread, self._seen
        return group

    def agree(self, value: object, what: str = "") -> list[Any]:
        self._number += 1
        key = f"{self.path}/{self._channel}/{self._number}"
        text = json.dumps([what, value])
        self._service.put(f"{key}/{self._own}", text)
        entries = [
            json.loads(text if member == self._own else self._get(key, member))
            for member in self.members
        ]
        for member, (subject, _) in zip(self.members, entries, strict=True):
            if subject != what:
                raise ProcessError(
                    f"{self.call}: process {self._own} exchanges {what!r}, but process "
                    f"{member} exchanges {subject!r}. Every process must run the same program.",
                    member,
                )
        # Every process has finished the exchange before the last one.
        if self._number > 2:
            self._service.remove(f"{self.path}/{self._channel}/{self._number - 2}/{self._own}")
        return [value for _, value in entries]

    def require_equal(self, what: str, facts: object) -> None:
        all_facts = self.agree(facts, what)
        for member, other in zip(self.members, all_facts, strict=True):
            differences = _differences(all_facts[0], other)
            if differences:
                lines = "".join(f"  {line}\n" for line in differences)
                raise ProcessError(
                    f"{self.call}: expected the same {what} in every process; process "
                    f"{self.members[0]} (was) and process {member} (is) differ:\n{lines}Every "
                    "process must make the same call with the same values.",
                    member,
                )

    def wait(self, tree: object) -> None:
        # A computation waits forever for a process that has ended, and Python cannot interrupt
        # JAX's own waiting.
        pause, start, checked = 2e-5, time.monotonic(), time.monotonic()
        arrays: list[Any] = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
        for array in arrays:
            while not array.is_ready():
                time.sleep(pause)
                pause = min(pause * 1.3, 2e-3)
                now = time.monotonic()
                if now - checked >= _SLICE:
                    checked = now
                    self.check_alive()
                    if now - start > _DEADLOCK:
                        self._check_failures()

    def is_computed(self, array: jax.Array, seconds: float = 2.0) -> bool:
        deadline = time.monotonic() + seconds
        ready: Any = array
        while not ready.is_ready() and time.monotonic() < deadline:
            time.sleep(0.01)
        return ready.is_ready()

    def report_failure(self, error: BaseException) -> None:
        self._report(error, left=False)

    def begin(self) -> None:
        """Makes sure that all processes make this call.

        Raises:
            ProcessError: if a process makes another call, or has left this call already.
        """
        self._check_failures()
        self._service.put(f"{self.path}/name/{self._own}", self.call)
        calls = self.agree(self.call, "the name of the call")
        for member, name in zip(self.members, calls, strict=True):
            if name != self.call:
                raise ProcessError(
                    f"{self.call}: process {member} calls {name} while process {self._own} "
                    f"calls {self.call}. Every process must make the same calls in the same order.",
                    member,
                )
        # Every process has left the call before the last one.
        parent, _, number = self.path.rpartition("/")
        if int(number) > 2:
            self._service.remove(f"{parent}/{int(number) - 2}")

    def leave(self, error: BaseException | None) -> None:
        """Reports to the other processes that this process leaves the call."""
        self._report(error, left=True)

    def _report(self, error: BaseException | None, left: bool) -> None:
        text = None if error is None else f"{type(error).__name__}: {error}"[:2000]
        cause = None
        if isinstance(error, ProcessError):
            text, cause = str(error), error.process
        with contextlib.suppress(ProcessError):
            end = json.dumps({"text": text, "cause": cause, "left": left})
            self._service.put(f"{self.path}/end/{self._own}", end)

    @property
    def _own(self) -> int:
        return self.members[self.index]

    def _get(self, key: str, member: int) -> str:
        key = f"{key}/{member}"
        text: str | None = self._service.get(key, _SLICE)
        start, cycle = time.monotonic(), None
        # a background thread waits while the program continues
        main = threading.get_ident() == self.thread
        if main and text is None:
            self._beats.waits_for = key
        try:
            while text is None:
                try:
                    self._check_failures(member)
                    self.check_alive()
                    if main:
                        cycle = self._check_waiting(key, cycle, time.monotonic() - start)
                    self._check_patience(member, time.monotonic() - start)
                except ProcessError:
                    # a process that has left the call may have stored the text before
                    text = self._service.peek(key)
                    if text is None:
                        raise
                else:
                    text = self._service.get(key, _SLICE)
            return text
        finally:
            if main:
                self._beats.waits_for = None

    def _check_failures(self, awaited: int | None = None) -> None:
        """Raises an error if a process has failed, or if the process that is waited for has left."""
        group = self
        while group is not None:
            texts = self._service.entries(f"{group.path}/end")
            ends = {int(member): json.loads(text) for member, text in texts.items()}
            ends.pop(self._own, None)
            # A process that fails because another has failed reports a ProcessError: the other is
            # the reason.
            for member in sorted(
                ends, key=lambda member: (ends[member]["cause"] is not None, member)
            ):
                text, cause, left = (ends[member][name] for name in ("text", "cause", "left"))
                if text is not None and (left or self._channel == "main"):
                    if cause not in (None, self._own):
                        raise ProcessError(text, cause)
                    raise ProcessError(
                        f"{self.call}: process {member} left the call with an exception: {text}",
                        member,
                    )
                if left and member == awaited:
                    raise ProcessError(
                        f"{self.call}: process {member} has finished the call, "
                        f"while process {self._own} waits for it. Every process must run the same "
                        "program.",
                        member,
                    )
            group = group.outer

    def check_alive(self) -> None:
        """Raises a `ProcessError` if a process of the group has ended."""
        now = time.monotonic()
        for member in self.members:
            if member == self._own:
                continue
            text = self._service.peek(heartbeat.key_of(member))
            # without a first heartbeat the process may not have started yet
            if text is None:
                continue
            facts = json.loads(text)
            beat, since = self._seen.get(member, (-1, now))
            if facts["beat"] != beat:
                self._seen[member] = (facts["beat"], now)
                since = now
            if now - since > SILENCE or heartbeat.has_ended(facts):
                raise ProcessError(
                    f"{self.call}: process {member} (pid {facts['pid']} on "
                    f"{facts['host']}) has ended, or has sent no heartbeat for {SILENCE:.0f} s. "
                    "Start all processes again; with checkpoint=, fit continues from the last save.",
                    member,
                )

    def _check_waiting(
        self, key: str, earlier: list[deadlock.Waiting] | None, waited: float
    ) -> list[deadlock.Waiting] | None:
        """Raises an error if processes wait for each other in different exchanges.

        Returns:
            The processes that seem to wait for each other, when they first did; or None.
        """
        cycle = deadlock.find_cycle(self._service, self._own, key)
        if waited < _DEADLOCK or not deadlock.is_deadlock(earlier, cycle):
            same = cycle and earlier and deadlock.same_cycle(earlier, cycle)
            return earlier if same else cycle
        member = int(key.rpartition("/")[2])
        path = next(waiting.path for waiting in cycle or () if waiting.process == member)
        name = self._service.peek(f"{path}/name/{member}") or "another call"
        processes = path.split("/")[-2].replace("-", ", ")
        if processes != ", ".join(map(str, self.members)):
            name += f" with a mesh of the processes {processes}"
        text = (
            f"{self.call}: process {self._own} waits for process {member}, which waits in {name}. "
            "Every process must make the same calls in the same order."
        )
        for waiting in cycle or ():
            # The others may check after this process has ceased to wait.
            end = {"text": text, "cause": waiting.awaited}
            end_key = f"{waiting.path}/end/{waiting.awaited}"
            if self._service.peek(end_key) is None:
                self._service.put(end_key, json.dumps({**end, "left": True}))
        raise ProcessError(text, member)

    def _check_patience(self, member: int, waited: float) -> None:
        if waited > _PATIENCE:
            raise ProcessError(
                f"{self.call}: process {member} did not make this call within "
                f"{_PATIENCE:.0f} s. Every process must make the same calls.",
                member,
            )


def _differences(first: object, other: object) -> list[str]:
    # as text, NaN equals NaN
    if json.dumps(first, sort_keys=True) == json.dumps(other, sort_keys=True):
        return []
    if isinstance(first, dict) and isinstance(other, dict):
        return compare(first, other)
    return [f"was {first!r:.200}, is {other!r:.200}"]
