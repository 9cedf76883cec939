"""Prediction of one image by folded models, against the models before `transforms.fold`.

    python benchmarks/folding.py [rounds]

Both sides call one compiled program whose arguments are weights and state, with statistics other than
the initial ones. The outputs are compared first.
"""

import sys
import time

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import numpy as np

import fkeras as fk
from fkeras import transforms

NAMES = ("ResNet50", "DenseNet121", "MobileNetV2")
SIZE = 224


def statistics(state):
    """A state with other moving means and variances."""
    rng = np.random.default_rng(0)

    def draw(path, array):
        low = 0.5 if "variance" in path[-1].key else -0.1
        return rng.uniform(low, low + 0.2, array.shape).astype(array.dtype)

    return jax.tree_util.tree_map_with_path(draw, state)


def side(model, state, x):
    call = jax.jit(lambda model, state, x: model(x, state=state))
    return lambda: jax.block_until_ready(call(model, state, x))


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    x = np.random.default_rng(0).normal(size=(1, SIZE, SIZE, 3)).astype("float32")
    for name in NAMES:
        model = getattr(fk.applications, name)(weights=None, classifier_activation=None)
        model = model.build(jax.random.key(0))
        state = statistics(model.init_state())
        start = time.process_time()
        folded, rest = transforms.fold(model, state)
        spent = time.process_time() - start
        sides = {"folded": side(folded, rest, x), "as built": side(model, state, x)}
        one, other = (np.asarray(run()) for run in sides.values())
        apart = float(np.abs(one - other).max() / np.abs(other).max())
        assert apart < 1e-4, f"{name}: {apart}"
        calls = f"{len(model.graph.calls)} calls, {len(folded.graph.calls)} folded"
        title = f"{name}: {calls}, made in {spent:.2f} s, {apart:.0e} apart"
        meter.report(title, meter.compare(sides, rounds))


if __name__ == "__main__":
    main()
