import jax
import numpy as np
import optax
from tasks import KEY, OPTIMIZER, cross_entropy

import fkeras as fk
from fkeras import layers


def mlp():
    x = fk.Input((32,))
    h = layers.Dense(256, activation="relu", name="hidden")(x)
    return start(fk.Model(x, layers.Dense(10, name="head")(h)))


def convnet():
    x = h = fk.Input((16, 16, 3))
    for filters in (16, 32):
        h = layers.Conv2D(filters, 3, padding="same", use_bias=False)(h)
        h = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(h)
        h = layers.MaxPooling2D()(layers.ReLU()(h))
    return start(fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h))))


def lstm():
    x = fk.Input((32, 16))
    return start(fk.Model(x, layers.Dense(10)(layers.LSTM(64, unit_forget_bias=False)(x))))


def transformer():
    x = h = fk.Input((64, 64))
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-5)(h)
        h += layers.MultiHeadAttention(4, 16)(y, y)
        y = layers.Dense(256, activation="gelu")(layers.LayerNormalization(epsilon=1e-5)(h))
        h += layers.Dense(64)(y)
    return start(fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling1D()(h))))


def siamese():
    pair = fk.Input((2, 32))
    tower = layers.Dense(256, activation="relu")
    difference = tower(pair[:, 0]) - tower(pair[:, 1])
    return start(fk.Model(pair, layers.Dense(10)(difference)))


def start(model):
    model = model.build(KEY)
    return model, model.init_state()


def training(network):
    model, state = network

    @jax.jit
    def step(carry, x, y):
        def loss_fn(model):
            out = model.apply(x, state=state, training=True)
            return cross_entropy(out.value, y), out.updates

        model, state, opt_state = carry
        (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(model)
        deltas, opt_state = OPTIMIZER.update(grads, opt_state, model)
        return (optax.apply_updates(model, deltas), state | updates, opt_state), loss

    return (model, state, OPTIMIZER.init(model)), step


def training_of_the_head(network):
    trained, frozen = fk.partition(fk.freeze(network[0], "hidden"))

    @jax.jit
    def step(carry, x, y):
        def loss_fn(trained):
            return cross_entropy(fk.combine(trained, frozen)(x), y)

        trained, opt_state = carry
        loss, grads = jax.value_and_grad(loss_fn)(trained)
        deltas, opt_state = OPTIMIZER.update(grads, opt_state, trained)
        return (optax.apply_updates(trained, deltas), opt_state), loss

    return (trained, OPTIMIZER.init(trained)), step


def features(network, x):
    return fk.transforms.cut(network[0], outputs="hidden")(x)


def ensemble(network):
    model, state = network
    members = jax.tree.map(lambda w: np.stack([w * (1 + i / 8) for i in range(8)]), model)
    _, step = training((model, state))
    carry = (members, state, jax.vmap(OPTIMIZER.init)(members))
    return carry, jax.jit(jax.vmap(step, in_axes=(0, None, None)))


def saved_and_loaded(network, folder):
    fk.save_model(f"{folder}/m.keras", *network)
    return fk.load_model(f"{folder}/m.keras")


def filled(network, fill):
    return jax.tree.map(fill, network[0]), network[1]


def predict(network, x):
    return network[0](x, state=network[1])
