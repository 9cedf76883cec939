"""CPU time of `import fkeras` beyond `import jax`, each in fresh processes, in turn.

    python benchmarks/importing.py [rounds]

Goal: at most 0.3 s.
"""

import os
import statistics
import subprocess
import sys

CODE = "import time; {}; print(time.process_time())"


def measure(statement):
    command = [sys.executable, "-c", CODE.format(statement)]
    # installed packages have their bytecode beside them; so does every contender here
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(found.stdout)


def main(rounds):
    statements = ["import jax", "import jax, optax", "import fkeras"]
    times = {s: [] for s in statements}
    for number in range(rounds + 1):
        for statement in statements if number % 2 == 0 else reversed(statements):
            spent = measure(statement)
            if number > 0:  # the first round fills the caches of the disk
                times[statement].append(spent)
    for statement, values in times.items():
        print(
            f"{statement:22s} {min(values):.3f} / {statistics.median(values):.3f} / {max(values):.3f} s"
        )
    beyond = sorted(b - a for a, b in zip(times["import jax"], times["import fkeras"], strict=True))
    middle = statistics.median(beyond)
    verdict = "holds" if middle <= 0.3 else "FAILS"
    print(
        f"fkeras beyond jax: {middle:.3f} s [{beyond[0]:.3f}, {beyond[-1]:.3f}]; goal 0.3 s: {verdict}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
