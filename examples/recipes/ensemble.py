"""A deep ensemble: eight members train in one program, and their disagreement is the uncertainty."""

import jax
import numpy as np

import fkeras as fk
from fkeras import layers

rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (64, 1)).astype("float32")
y = (np.sin(3 * x) + rng.normal(0, 0.1, x.shape)).astype("float32")
inputs = fk.Input((1,))
model = fk.Model(inputs, layers.Dense(1)(layers.Dense(32, activation="tanh")(inputs)))
trainer = fk.Trainer(fk.optimizers.Adam(0.02), "mse")
population = fk.populate(trainer, {"seed": range(8)})
runs, _ = population.fit(
    population.init(model, jax.random.key(0)), x, y, epochs=60, batch_size=32, verbose=0
)


test = np.array([[0.0], [3.0]], "float32")  # inside and outside of the data
predictions = jax.vmap(lambda run: run.model(test)[:, 0])(runs)
disagreement = predictions.std(axis=0)
assert disagreement[1] > 5 * disagreement[0], disagreement

# a member alone computes the same training
alone = trainer.init(model, jax.random.fold_in(jax.random.key(0), 3))
alone, _ = trainer.fit(alone, x, y, epochs=60, batch_size=32, verbose=0)
np.testing.assert_allclose(predictions[3], alone.model(test)[:, 0], atol=1e-3)
