"""Reads batches ahead of the training in background threads: `workers=` of `fit`."""

from __future__ import annotations

import collections
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np


class ReadAhead:
    """Calls a function of consecutive numbers in threads, before the results are needed.

    The threads are daemons: a source that waits forever, such as a network connection, must not keep
    the program alive. A call with another number than the next begins again at that number.

    Args:
        read: the function; several threads call it.
        workers: number of threads.
        end: the first number that is not read; None for no end.
        depth: number of results to hold; 2 for each thread by default, so that a thread is not idle
            while an earlier number is slow.

    Example:
        >>> squares = ReadAhead(lambda number: number**2, workers=2, end=4)
        >>> [squares(number) for number in range(4)]
        [0, 1, 4, 9]
    """

    def __init__(
        self,
        read: Callable[[int], Any],
        workers: int,
        end: int | None = None,
        depth: int | None = None,
    ):
        self._read, self._workers, self._end = read, workers, end
        self._depth = depth or 2 * workers
        self._first = 0
        self._futures: collections.deque[Future] = collections.deque()
        self._jobs: queue.SimpleQueue | None = None

    def __call__(self, number: int) -> Any:
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            for _ in range(self._workers):
                threading.Thread(target=_work, args=(self._jobs, self._read), daemon=True).start()
            weakref.finalize(self, _stop, self._jobs, self._workers)
        if number != self._first:
            for future in self._futures:
                future.cancel()
            self._futures.clear()
            self._first = number
        while len(self._futures) < self._depth:
            wanted = self._first + len(self._futures)
            if self._end is not None and wanted >= self._end:
                break
            self._futures.append(Future())
            self._jobs.put((self._futures[-1], wanted))
        self._first += 1
        return self._futures.popleft().result()


def ahead_of(iterator: Iterator[Any], workers: int, end: object) -> Iterator[Any]:
    """Returns an iterator whose entries one thread reads ahead; `workers` is the number of entries.

    NumPy arrays are copied, because an iterator may write its next batch into the same memory.

    Args:
        end: returned by the thread after the last entry.
    """

    def read(number: int) -> Any:
        batch = next(iterator, end)
        return jax.tree.map(lambda a: a.copy() if isinstance(a, np.ndarray) else a, batch)

    ahead = ReadAhead(read, 1, depth=workers)
    numbers = iter(range(1 << 62))
    return iter(lambda: ahead(next(numbers)), end)


def _work(jobs: queue.SimpleQueue, read: Callable[[int], Any]) -> None:
    while (job := jobs.get()) is not None:
        future, number = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(read(number))
            except BaseException as error:  # raised again where the result is taken
                future.set_exception(error)
        del job, future


def _stop(jobs: queue.SimpleQueue, workers: int) -> None:
    for _ in range(workers):
        jobs.put(None)
