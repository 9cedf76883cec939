"""K-fold cross-validation: the trainings of all folds are one program."""

import jax
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import KFold

import fkeras as fk
from fkeras import layers

x, y = load_wine(return_X_y=True)
x = ((x - x.mean(0)) / x.std(0)).astype("float32")[:175]  # 7 folds of 25 rows
y = y.astype("int32")[:175]
folds = KFold(7, shuffle=True, random_state=0).split(x)
train, held = (np.stack(rows) for rows in zip(*folds, strict=True))

inputs = fk.Input((13,))
model = fk.Model(inputs, layers.Dense(3)(layers.Dense(16, activation="relu")(inputs)))
loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
trainer = fk.Trainer(fk.optimizers.Adam(0.01), loss)
start = trainer.init(model, jax.random.key(0))


@jax.jit
@jax.vmap
def runs_of(x, y):
    return trainer.run(start, (x, y), epochs=15, batch_size=30)[0]


runs = runs_of(x[train], y[train])
logits = jax.vmap(lambda run, x: run.model(x))(runs, x[held])
accuracy = (logits.argmax(-1) == y[held]).mean(axis=1)
assert accuracy.mean() > 0.9, accuracy

# the third fold by `fit`
alone, _ = trainer.fit(start, x[train[2]], y[train[2]], epochs=15, batch_size=30, verbose=0)
np.testing.assert_allclose(logits[2], alone.model(x[held[2]]), atol=1e-3)
