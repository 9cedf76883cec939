"""Side-by-side timing: CPU time of the process, contenders in turn, one ratio for each round.

On a shared machine wall time depends on other processes; CPU time does not. Import this module before
jax, so that XLA uses one thread and CPU time equals work.
"""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import contextlib
import statistics
import time


class Seconds(float):
    """CPU seconds of another process."""


def compare(contenders, rounds=15):
    """CPU seconds of each contender in each round, run A B C then C B A.

    Args:
        contenders: functions without arguments by name; the first is the divisor. A function that
            computes in another process returns the `Seconds` of that process.
        rounds: how often all run.
    """
    times = {name: [] for name in contenders}
    for round_number in range(rounds):
        order = list(contenders) if round_number % 2 == 0 else list(reversed(contenders))
        for name in order:
            start = time.process_time()
            result = contenders[name]()
            seconds = time.process_time() - start
            times[name].append(result if isinstance(result, Seconds) else seconds)
    return times


def report(title, times, limit=None):
    """Prints medians and ratios with quartiles; returns the median ratio of each contender."""
    names = list(times)
    base, medians = times[names[0]], {}
    print(f"\n{title}")
    for name in names:
        ratios = sorted(t / b for t, b in zip(times[name], base, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        medians[name] = statistics.median(ratios)
        ms = statistics.median(times[name]) * 1e3
        print(f"  {name:28s} {ms:10.2f} ms CPU   ratio {medians[name]:.3f} [{low:.3f}, {high:.3f}]")
    if limit is not None:
        name, most = limit
        verdict = "holds" if medians[name] <= most else "FAILS"
        print(f"  goal: {name} at most {most} times {names[0]}: {verdict}")
    return medians


@contextlib.contextmanager
def count_compiles():
    """Yields a list with one entry for each program that XLA compiles inside the block."""
    import jax.monitoring

    events = []
    counting = True

    def listen(event, duration, **_):
        if counting and event.endswith("backend_compile_duration"):
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    counting = False
    # JAX 0.7.2 has no public function that removes one listener: a silent one stays registered
    unregister = getattr(jax.monitoring, "unregister_event_duration_listener", None)
    if unregister is not None:
        unregister(listen)
