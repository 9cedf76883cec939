"""`Group`: the processes of a mesh in one joint call, and what they exchange.

Every process makes the same calls of a trainer in the same order. Within a call, the processes exchange
small JSON values at fixed places: whether to stop, whether a signal arrived, how many batches the next
device call has. All processes then take the same decision from the same values.

A process that waits never waits in silence: it reads the signs of life of the others, and raises a
`ProcessError` that names the process that has ended, left the call with an exception, or makes
another call.
"""

from __future__ import annotations

import contextlib
import functools
import json
import time
from typing import Any

import jax
from jax.errors import JaxRuntimeError

from fkeras.training.processes import pulse
from fkeras.training.processes.service import ProcessError, Service
from fkeras.training.records.compare import compare

# Seconds without a sign of life after which a process counts as ended.
_SILENCE = 20.0
# Seconds to wait for a process that lives but does not make the call.
_PATIENCE = 600.0
# Seconds after which two processes that wait for different things are an error.
_DEADLOCK = 6.0
_SLICE = 1.0
# Words in the errors of JAX for a connection to a process that has ended.
_LOST = ("gloo", "connection", "unavailable", "socket", "timed out", "deadline")


class Alone:
    """The group of a single process: nothing is exchanged.

    Attributes:
        index: position of this process in the group.
        count: number of processes.
    """

    index, count = 0, 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and prints for the group."""
        return self.index == 0

    def agree(self, value: Any, what: str = "") -> list[Any]:
        """Returns the values that all processes pass, in the order of the processes.

        Args:
            value: JSON data.
            what: the subject of the exchange, for messages.
        """
        return [value]

    def require_equal(self, what: str, facts: Any) -> None:
        """Raises a `ProcessError` with the differences if the processes pass different facts."""

    def wait(self, tree: Any) -> None:
        """Waits until the arrays of a tree are computed."""
        jax.block_until_ready(tree)

    def is_computed(self, array: jax.Array, seconds: float = 2.0) -> bool:
        """Returns whether an array is computed, or will be within some seconds.

        Args:
            array: the result of a dispatched computation.
            seconds: longest time to wait, in a group; a single process waits until the end.
        """
        return True

    def tell_failure(self, error: BaseException) -> None:
        """Tells the other processes that this process leaves the call with an exception."""

    def channel(self, name: str) -> Alone:
        """Returns the group with exchanges of their own, for a second thread or a rescue."""
        return self


#: the group of a trainer without a mesh of several processes
ALONE = Alone()


class Group(Alone):
    """The processes of a mesh in one joint call; `together` returns the group.

    Args:
        members: numbers of the processes.
        call: name of the call, for messages.
        path: prefix of the keys of the call.
        service: the texts of all processes.
        beats: the pulse of this process.
        channel: name of the sequence of exchanges.
    """

    def __init__(
        self,
        members: tuple[int, ...],
        call: str,
        path: str,
        service: Service,
        beats: pulse.Pulse,
        channel: str = "main",
    ):
        self.members, self.call, self.path = members, call, path
        self.index, self.count = members.index(jax.process_index()), len(members)
        self._service, self._beats, self._channel = service, beats, channel
        self._number = 0
        self._seen: dict[int, tuple[int, float]] = {}

    def channel(self, name: str) -> Group:
        group = Group(self.members, self.call, self.path, self._service, self._beats, name)
        group._seen = self._seen
        return group

    def agree(self, value: Any, what: str = "") -> list[Any]:
        self._number += 1
        key = f"{self.path}/{self._channel}/{self._number}"
        self._service.put(f"{key}/{self.members[self.index]}", json.dumps([what, value]))
        entries = [json.loads(self._get(key, member)) for member in self.members]
        for member, (subject, _) in zip(self.members, entries, strict=True):
            if subject != what:
                raise ProcessError(
                    f"{self.call}: process {self._own} exchanges {what!r}, but process "
                    f"{member} exchanges {subject!r}. Every process must run the same program.",
                    member,
                )
        # Every process has finished the exchange before the last one.
        if self._number > 2:
            old_key = f"{self.path}/{self._channel}/{self._number - 2}/{self.members[self.index]}"
            self._service.remove(old_key)
        return [value for _, value in entries]

    def require_equal(self, what: str, facts: Any) -> None:
        all_facts = self.agree(facts, what)
        for member, other in zip(self.members, all_facts, strict=True):
            differences = [] if other == all_facts[0] else _differences(all_facts[0], other)
            if differences:
                lines = "".join(f"  {line}\n" for line in differences)
                raise ProcessError(
                    f"{self.call}: expected the same {what} in every process; process "
                    f"{self.members[0]} (was) and process {member} (is) differ:\n{lines}Every "
                    "process must make the same call with the same values.",
                    member,
                )

    def wait(self, tree: Any) -> None:
        # A computation waits forever for a process that has ended, and Python cannot interrupt
        # JAX's own waiting.
        pause, start, checked = 2e-5, time.monotonic(), time.monotonic()
        for leaf in jax.tree.leaves(tree):
            while isinstance(leaf, jax.Array) and not leaf.is_ready():
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
        while not array.is_ready() and time.monotonic() < deadline:
            time.sleep(0.01)
        return array.is_ready()

    def tell_failure(self, error: BaseException) -> None:
        # the other processes find the reason of such an error themselves
        if isinstance(error, ProcessError):
            return
        text = f"{type(error).__name__}: {error}"
        with contextlib.suppress(ProcessError):
            self._service.put(f"{self.path}/failed/{self._own}", text[:2000])

    def opened(self) -> None:
        """Marks that this process is in the call, whose keys must then stay."""
        self._beats.calls.append(self.path)

    def closed(self) -> None:
        """Marks that this process has left the call."""
        self._beats.calls.remove(self.path)

    @property
    def _own(self) -> int:
        return self.members[self.index]

    def _get(self, key: str, member: int) -> str:
        text = self._service.get(f"{key}/{member}", _SLICE)
        if text is not None:
            return text
        start = time.monotonic()
        main = self._channel == "main"
        if main:
            self._beats.waits_for = key
        try:
            while text is None:
                self._check_failures()
                self.check_alive()
                waited = time.monotonic() - start
                if main and waited > _DEADLOCK:
                    self._check_waiting(key, member)
                if waited > _PATIENCE:
                    raise ProcessError(
                        f"{self.call}: process {member} did not make this call within "
                        f"{_PATIENCE:.0f} s. Every process must make the same calls.",
                        member,
                    )
                text = self._service.get(f"{key}/{member}", _SLICE)
            return text
        finally:
            if main:
                self._beats.waits_for = None

    def _check_failures(self) -> None:
        for member in self.members:
            text = None
            # a rescue, and a save that is under way, exchange values after a failure
            if member != self._own and self._channel == "main":
                text = self._service.peek(f"{self.path}/failed/{member}")
            if text is not None:
                raise ProcessError(
                    f"{self.call}: process {member} left the call with an exception: {text}",
                    member,
                )

    def check_alive(self) -> None:
        """Raises a `ProcessError` if a process of the group has ended."""
        now = time.monotonic()
        for member in self.members:
            if member == self._own:
                continue
            text = self._service.peek(pulse.key_of(member))
            facts = {"beat": 0, "space": None} if text is None else json.loads(text)
            beat, since = self._seen.get(member, (-1, now))
            if facts["beat"] != beat:
                self._seen[member] = (facts["beat"], now)
                since = now
            # without a first sign of life the process may not have started yet
            if text is not None and (now - since > _SILENCE or pulse.has_ended(facts)):
                raise ProcessError(
                    f"{self.call}: process {member} (pid {facts['pid']} on "
                    f"{facts['host']}) has ended, or shows no sign of life for {_SILENCE:.0f} s. "
                    "Start all processes again; with checkpoint=, fit continues from the last save.",
                    member,
                )

    def _check_waiting(self, key: str, member: int) -> None:
        """Raises an error if a process waits for another exchange, which can never end."""
        text = self._service.peek(pulse.key_of(member))
        other = None if text is None else json.loads(text)["waits_for"]
        if other is None or other == key or self._service.peek(f"{key}/{member}") is not None:
            return
        name = self._service.peek(f"{other.rsplit('/', 2)[0]}/name/{member}") or "another call"
        raise ProcessError(
            f"{self.call}: process {self._own} waits for process {member}, which waits in "
            f"{name}. Every process must make the same calls in the same order.",
            member,
        )


def _differences(first: Any, other: Any) -> list[str]:
    if isinstance(first, dict) and isinstance(other, dict):
        return compare(first, other)
    return [f"was {first!r:.200}, is {other!r:.200}"]


@functools.lru_cache(maxsize=64)
def members_of(mesh: jax.sharding.Mesh | None) -> tuple[int, ...]:
    """Returns the numbers of the processes whose devices are in a mesh."""
    if mesh is None:
        return ()
    return tuple(sorted({device.process_index for device in mesh.devices.flat}))


def together(mesh: jax.sharding.Mesh | None, call: str) -> Together:
    """Returns a context in which all processes of a mesh make a call; yields their group.

    Args:
        mesh: the mesh of a trainer, or None.
        call: name of the call.

    Raises:
        ProcessError: if another process makes another call, has ended or leaves with an exception.
    """
    return Together(members_of(mesh), call)


class Together:
    """Context of a joint call; see `together`."""

    # not a generator, which would set attributes of an exception that passes

    def __init__(self, members: tuple[int, ...], call: str):
        self._members, self._call = members, call
        self._group: Alone = ALONE

    def __enter__(self) -> Alone:
        if len(self._members) > 1:
            self._group = group = _enter(self._members, self._call)
            group.opened()
        return self._group

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(self._group, Group):
            return
        self._group.closed()
        if error is None:
            return
        ended = _ended_process(self._group, error) if isinstance(error, JaxRuntimeError) else None
        if ended is not None:
            raise ended from error
        self._group.tell_failure(error)


def _enter(members: tuple[int, ...], call: str) -> Group:
    process = jax.process_index()
    if process not in members:
        raise ProcessError(
            f"{call}: expected a mesh with devices of this process, {process}, received a "
            f"mesh of the processes {', '.join(map(str, members))}. Make the call in those only."
        )
    service = Service()
    root = f"fkeras/{'-'.join(map(str, members))}"
    # The number of the call is kept by the service: a call counts even if an exception left it.
    counter = f"{root}/calls/{process}"
    number = int(service.peek(counter) or 0) + 1
    service.put(counter, str(number))
    beats = pulse.start_pulse(service, process)
    group = Group(members, call, f"{root}/{number}", service, beats)
    service.put(f"{group.path}/name/{process}", call)
    calls = group.agree(call, "the name of the call")
    for member, name in zip(members, calls, strict=True):
        if name != call:
            raise ProcessError(
                f"{call}: process {member} calls {name} while process {process} calls "
                f"{call}. Every process must make the same calls in the same order.",
                member,
            )
    # Every process has left the call before the last one, unless that call contains this one.
    if number > 2 and f"{root}/{number - 2}" not in beats.calls:
        service.remove(f"{root}/{number - 2}")
    return group


def _ended_process(group: Group, error: JaxRuntimeError) -> ProcessError | None:
    """Returns the error for a process that has ended, if an error of JAX reports a lost connection."""
    text = str(error).lower()
    if not any(word in text for word in _LOST):
        return None
    # the error of the connection arrives before the silence of the process is long enough
    deadline = time.monotonic() + _SILENCE + 2
    while time.monotonic() < deadline:
        try:
            group.check_alive()
        except ProcessError as ended:
            return ended
        time.sleep(0.2)
    return None
