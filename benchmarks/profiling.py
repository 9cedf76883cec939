"""Profiles against the clock: the sum of the calls' times, and the time of a step without a trace.

    python benchmarks/profiling.py [rounds]

Prints the median ratio of the rounds for each model of `benchmarks/plan.py` that runs in less than a second.
Goal: the sum is within 10 % of the time of a step.
"""

import statistics
import sys

import jax
import numpy as np
from plan import autoencoder, lstm, mlp, resnet, transformer, vit

import fkeras as fk


def main(rounds=5):
    ratios = {}
    for make in (mlp, resnet, transformer, lstm, autoencoder, vit):
        case = make()
        run = case.trainer.init(case.model, jax.random.key(0))
        batch = jax.tree.map(lambda spec: np.zeros(spec.shape, spec.dtype), case.batch)
        profiles = [fk.profile(case.trainer, run, batch) for _ in range(rounds)]
        ratios[make] = statistics.median(each.seconds / each.step_seconds for each in profiles)
        idle = statistics.median(each.calls[-1].seconds / each.seconds for each in profiles)
        step = statistics.median(each.step_seconds for each in profiles)
        print(
            f"{make.__name__:14s} step {step * 1e3:7.1f} ms   sum of calls / step {ratios[make]:.3f}   "
            f"outside of operations {idle:.1%}",
            flush=True,
        )
    largest = max(abs(ratio - 1) for ratio in ratios.values())
    print(f"largest difference {largest:.1%}; goal 10 %: {'holds' if largest <= 0.1 else 'FAILS'}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
