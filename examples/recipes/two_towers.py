"""Two towers recommend items: the other items of a batch are the negatives (InfoNCE)."""

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

rng = np.random.default_rng(0)
affinity = rng.normal(size=(200, 4)) @ rng.normal(size=(4, 100))
liked = rng.permuted(affinity.argsort(axis=1)[:, -10:], axis=1)  # 10 of 100 items for each user
users = np.repeat(np.arange(200), 8).astype("int32")
items = liked[:, :8].ravel().astype("int32")  # two items of each user are held out


def tower(count):
    number = fk.Input((), dtype="int32")
    vector = layers.Dense(16)(layers.Embedding(count, 32)(number))
    return fk.Model(number, layers.UnitNormalization()(vector))


inputs = [fk.Input((), dtype="int32"), fk.Input((), dtype="int32")]
model = fk.Model(inputs, [tower(200)(inputs[0]), tower(100)(inputs[1])])


def objective(model, state, batch, key, training):
    users, items = model(batch)
    logits = users @ items.T / 0.1
    equal = batch[1][:, None] == batch[1][None]  # an item that occurs again is no negative
    logits = jnp.where(equal & ~np.eye(len(logits), dtype=bool), -1e9, logits)
    return fk.Output(-jnp.diagonal(jax.nn.log_softmax(logits)).mean())


trainer = fk.Trainer(fk.optimizers.Adam(0.01), objective=objective)
run = trainer.init(model, jax.random.key(0))
run, _ = trainer.run(run, [users, items], epochs=20, batch_size=160)


everyone = np.arange(200, dtype="int32")
user, item = (np.asarray(vectors) for vectors in run.model([everyone, everyone % 100]))
score = user @ item[:100].T
np.put_along_axis(score, liked[:, :8], -np.inf, axis=1)  # recommend only new items
top = score.argsort(axis=1)[:, -10:]
found = np.mean([np.isin(liked[u, 8:], top[u]) for u in everyone])
assert found > 0.6, found  # 0.11 by chance

# the loss of a batch, row by row: items that are equal to that of the row are left out
u, i = user[users[::40]], item[items[::40]]
other = items[::40] != items[::40, None]
rows = [
    u[n] @ i[n] / 0.1 - np.log(np.exp(u[n] @ i[n] / 0.1) + np.exp(i @ u[n] / 0.1)[other[n]].sum())
    for n in range(40)
]
loss = objective(run.model, {}, [users[::40], items[::40]], None, False).value
np.testing.assert_allclose(loss, -np.mean(rows), rtol=1e-4)
