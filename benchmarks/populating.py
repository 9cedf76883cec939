"""What a population costs beside the `fit` of each of its members, after compilation.

64 small dense networks are trained at once; 8 convolution networks one after the other in one program,
since vmap makes grouped convolutions. Each member has its own seed, learning rate and order of the
rows, unless the order is shared. The weights of each member equal those of its own `fit`, and with a
shared order those of the first.

    python benchmarks/populating.py [rounds]
"""

import sys

import jax
import meter
import numpy as np

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)


def dense():
    hidden = [layers.Dense(16, "relu"), layers.Dense(16, "relu")]
    return fk.Sequential([fk.Input((16,)), *hidden, layers.Dense(4, "softmax")]), (16,)


def convolutional():
    hidden = [layers.Conv2D(16, 3, activation="relu"), layers.MaxPooling2D()]
    hidden += [layers.Conv2D(32, 3, activation="relu"), layers.Flatten()]
    return fk.Sequential([fk.Input((16, 16, 1)), *hidden, layers.Dense(4, "softmax")]), (16, 16, 1)


def contenders(make, members, rows, epochs=4, **options):
    model, shape = make()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, *shape)).astype("float32")
    y = rng.integers(0, 4, rows).astype("int32")
    trainer = fk.Trainer("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    values = [{"seed": n, "learning_rate": 1e-3 * (1 + n / members)} for n in range(members)]
    population = fk.populate(trainer, members=values, **options)
    start = population.init(model, KEY)
    starts = [population.member(start, number) for number in range(members)]

    def fits():
        return [trainer.fit(run, x, y, epochs=epochs, verbose=0) for run in starts]

    def together():
        runs, history = population.fit(start, x, y, epochs=epochs, verbose=0)
        return jax.block_until_ready(runs), history

    runs, _ = together()
    same_order = starts[:1] if population.order == "shared" else starts
    for number, run in enumerate(same_order):
        own, _ = trainer.fit(run, x, y, epochs=epochs, verbose=0)
        member = population.member(runs, number).model
        for one, two in zip(jax.tree.leaves(member), jax.tree.leaves(own.model), strict=True):
            np.testing.assert_allclose(one, two, rtol=2e-3, atol=1e-4)
    return {f"{members} fits": fits, "population": together}


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    times = meter.compare(contenders(dense, 64, 1024), rounds)
    meter.report("64 dense networks, 1,024 rows, an order each", times, ("population", 0.2))
    times = meter.compare(contenders(dense, 64, 1024, order="shared"), rounds)
    meter.report("64 dense networks, 1,024 rows, one order", times, ("population", 0.2))
    times = meter.compare(contenders(convolutional, 8, 512), rounds)
    meter.report("8 convolution networks, 512 rows", times, ("population", 1.1))
    times = meter.compare(contenders(convolutional, 8, 512, group_size=8), rounds)
    meter.report("8 convolution networks at once (group_size=8)", times)
