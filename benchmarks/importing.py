"""CPU time of `import fkeras` beyond `import jax, optax`, each in fresh processes, in turn.

    python benchmarks/importing.py [rounds]

Measures user and system time of whole processes, with bytecode files beside the sources, as an
installed package has them, and without. Goal: at most half of `import jax` with bytecode files.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile

STATEMENTS = ("import jax", "import jax, optax", "import jax, optax, fkeras")
GOAL = 0.5


def measure(statement, environment):
    """CPU seconds of a fresh process that runs the statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(rounds, environment):
    """CPU seconds of each statement in each round, after a round that fills the caches."""
    times = {statement: [] for statement in STATEMENTS}
    for number in range(rounds + 1):
        for statement in STATEMENTS if number % 2 == 0 else reversed(STATEMENTS):
            seconds = measure(statement, environment)
            if number > 0:
                times[statement].append(seconds)
    return times


def report(title, times, goal=None):
    print(title)
    for statement, values in times.items():
        shown = " / ".join(f"{f(values):.3f}" for f in (min, statistics.median, max))
        print(f"  {statement:28s} {shown} s")
    empty = measure("pass", None)
    rounds = list(zip(*times.values(), strict=True))
    shares = sorted((full - base) / (jax - empty) for jax, base, full in rounds)
    share = statistics.median(shares)
    print(
        f"  fkeras: {statistics.median(full - base for _, base, full in rounds):.3f} s, "
        f"{share:.2f} [{shares[0]:.2f}, {shares[-1]:.2f}] of `import jax`"
    )
    if goal is not None:
        print(f"  goal: at most {goal}: {'holds' if share <= goal else 'FAILS'}")


def main(rounds):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    report("bytecode files", compare(rounds, environment), GOAL)
    # an empty folder of bytecode that is never written: all packages are compiled, jax included
    with tempfile.TemporaryDirectory() as folder:
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": folder}
        report("no bytecode files", compare(max(2, rounds // 3), environment))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
