import equinox as eqx
import jax
import jax.numpy as jnp
from tasks import KEY, OPTIMIZER, cross_entropy


class MLP(eqx.Module):
    hidden: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.hidden = eqx.nn.Linear(32, 256, key=keys[0])
        self.head = eqx.nn.Linear(256, 10, key=keys[1])

    def __call__(self, x, state):
        return self.head(jax.nn.relu(self.hidden(x))), state


def mlp():
    return eqx.nn.make_with_state(MLP)(KEY)


class ConvNet(eqx.Module):
    convolutions: list
    norms: list
    pool: eqx.nn.MaxPool2d
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        sizes = [(3, 16, keys[0]), (16, 32, keys[1])]
        self.convolutions = [
            eqx.nn.Conv2d(n, m, 3, padding="SAME", use_bias=False, key=k) for n, m, k in sizes
        ]
        self.norms = [eqx.nn.BatchNorm(m, "batch", momentum=0.9, mode="batch") for _, m, _ in sizes]
        self.pool = eqx.nn.MaxPool2d(2, 2)
        self.head = eqx.nn.Linear(32, 10, key=keys[2])

    def __call__(self, x, state):
        x = jnp.moveaxis(x, -1, 0)  # channels first
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x, state = norm(convolution(x), state)
            x = self.pool(jax.nn.relu(x))
        return self.head(x.mean((1, 2))), state


def convnet():
    return eqx.nn.make_with_state(ConvNet)(KEY)


class LSTM(eqx.Module):
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(16, 64, key=keys[0])
        self.head = eqx.nn.Linear(64, 10, key=keys[1])

    def __call__(self, x, state):
        zeros = jnp.zeros(64), jnp.zeros(64)
        (h, _), _ = jax.lax.scan(lambda carry, x: (self.cell(x, carry), None), zeros, x)
        return self.head(h), state


def lstm():
    return eqx.nn.make_with_state(LSTM)(KEY)


class Block(eqx.Module):
    norms: list
    attention: eqx.nn.MultiheadAttention
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.norms = [eqx.nn.LayerNorm(64), eqx.nn.LayerNorm(64)]
        biases = {f"use_{name}_bias": True for name in ("query", "key", "value", "output")}
        self.attention = eqx.nn.MultiheadAttention(4, 64, **biases, key=keys[0])
        self.up = eqx.nn.Linear(64, 256, key=keys[1])
        self.down = eqx.nn.Linear(256, 64, key=keys[2])

    def __call__(self, x):
        y = jax.vmap(self.norms[0])(x)
        x += self.attention(y, y, y)
        y = jax.vmap(self.up)(jax.vmap(self.norms[1])(x))
        return x + jax.vmap(self.down)(jax.nn.gelu(y, approximate=False))


class Transformer(eqx.Module):
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.blocks = [Block(key) for key in keys[:2]]
        self.head = eqx.nn.Linear(64, 10, key=keys[2])

    def __call__(self, x, state):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(0)), state


def transformer():
    return eqx.nn.make_with_state(Transformer)(KEY)


class Siamese(eqx.Module):
    tower: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key)
        self.tower = eqx.nn.Linear(32, 256, key=keys[0])
        self.head = eqx.nn.Linear(256, 10, key=keys[1])

    def __call__(self, pair, state):
        first, second = jax.nn.relu(jax.vmap(self.tower)(pair))
        return self.head(first - second), state


def siamese():
    return eqx.nn.make_with_state(Siamese)(KEY)


def training(network):
    model, state = network

    @eqx.filter_jit
    def step(carry, x, y):
        def loss_fn(model):
            batched = jax.vmap(model, in_axes=(0, None), out_axes=(0, None), axis_name="batch")
            logits, new_state = batched(x, state)
            return cross_entropy(logits, y), new_state

        model, state, opt_state = carry
        (loss, state), grads = eqx.filter_value_and_grad(loss_fn, has_aux=True)(model)
        params = eqx.filter(model, eqx.is_inexact_array)
        deltas, opt_state = OPTIMIZER.update(grads, opt_state, params)
        return (eqx.apply_updates(model, deltas), state, opt_state), loss

    return (model, state, OPTIMIZER.init(eqx.filter(model, eqx.is_inexact_array))), step


def fast_training(network):
    """The same step on a list of arrays, which `jax.jit` takes faster than modules."""
    carry, whole_step = training(network)
    arrays, static = eqx.partition(carry, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)

    @jax.jit
    def step(leaves, x, y):
        carry = eqx.combine(jax.tree.unflatten(structure, leaves), static)
        carry, loss = whole_step(carry, x, y)
        return jax.tree.leaves(eqx.filter(carry, eqx.is_array)), loss

    return leaves, step


def training_of_the_head(network):
    model, state = network
    nothing = jax.tree.map(lambda _: False, model)
    mask = eqx.tree_at(lambda m: (m.head.weight, m.head.bias), nothing, replace=(True, True))
    trained, frozen = eqx.partition(model, mask)

    @eqx.filter_jit
    def step(carry, x, y):
        def loss_fn(trained):
            model = eqx.combine(trained, frozen)
            return cross_entropy(jax.vmap(lambda x: model(x, state)[0])(x), y)

        trained, opt_state = carry
        loss, grads = eqx.filter_value_and_grad(loss_fn)(trained)
        deltas, opt_state = OPTIMIZER.update(grads, opt_state, trained)
        return (eqx.apply_updates(trained, deltas), opt_state), loss

    return (trained, OPTIMIZER.init(trained)), step


def features(network, x):
    # the call is Python code: its first part is written again
    return jax.nn.relu(jax.vmap(network[0].hidden)(x))


def ensemble(network):
    model, state = network
    params, static = eqx.partition(model, eqx.is_inexact_array)
    stacked = jax.tree.map(lambda w: jnp.stack([w * (1 + i / 8) for i in range(8)]), params)
    members = eqx.combine(stacked, static)
    _, step = training((model, state))
    opt_state = eqx.filter_vmap(OPTIMIZER.init)(stacked)
    return (members, state, opt_state), eqx.filter_jit(
        eqx.filter_vmap(step, in_axes=((eqx.if_array(0), None, eqx.if_array(0)), None, None))
    )


def saved_and_loaded(network, folder):
    eqx.tree_serialise_leaves(f"{folder}/m.eqx", network)
    return eqx.tree_deserialise_leaves(f"{folder}/m.eqx", mlp())  # the code makes the structure


def filled(network, fill):
    model, state = network
    params, static = eqx.partition(model, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(fill, params), static), state


def predict(network, x):
    model, state = network
    model = eqx.nn.inference_mode(model)
    return jax.vmap(lambda x: model(x, state)[0])(x)
