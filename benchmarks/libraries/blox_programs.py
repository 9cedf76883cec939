import blox as bx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from tasks import OPTIMIZER, SHAPES, cross_entropy


class MLP(bx.Module):
    def __init__(self, graph, rng):
        super().__init__(graph)
        self.hidden = bx.Linear(graph.child("hidden"), 256, rng=rng)
        self.head = bx.Linear(graph.child("head"), 10, rng=rng)

    def __call__(self, params, x, is_training=True):
        x, params = self.hidden(params, x)
        return self.head(params, jax.nn.relu(x))


def mlp():
    return start(MLP, "mlp")


class ConvNet(bx.Module):
    def __init__(self, graph, rng):
        super().__init__(graph)
        self.convolutions = [
            bx.Conv(graph.child(f"conv{m}"), (3, 3), m, rng=rng, use_bias=False) for m in (16, 32)
        ]
        self.norms = [bx.BatchNorm(graph.child(f"norm{m}")) for m in (16, 32)]
        self.head = bx.Linear(graph.child("head"), 10, rng=rng)

    def __call__(self, params, x, is_training=True):
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x, params = convolution(params, x)
            x, params = norm(params, x, is_training)
            x = bx.max_pool(jax.nn.relu(x), (2, 2))
        return self.head(params, x.mean((1, 2)))


def convnet():
    return start(ConvNet, "convnet")


class LSTM(bx.Module):
    def __init__(self, graph, rng):
        super().__init__(graph)
        self.lstm = bx.LSTM(graph.child("lstm"), 64, rng=rng)
        self.head = bx.Linear(graph.child("head"), 10, rng=rng)

    def __call__(self, params, x, is_training=True):
        (h, _), params = self.lstm.apply(params, x)
        return self.head(params, h[:, -1])


def lstm():
    return start(LSTM, "lstm")


class Block(bx.Module):
    def __init__(self, graph, rng):
        super().__init__(graph)
        self.norms = [bx.LayerNorm(graph.child(f"norm{i}")) for i in range(2)]
        self.projections = [bx.Linear(graph.child(n), 64, rng=rng) for n in ("q", "k", "v", "o")]
        self.up = bx.Linear(graph.child("up"), 256, rng=rng)
        self.down = bx.Linear(graph.child("down"), 64, rng=rng)

    def __call__(self, params, x):
        y, params = self.norms[0](params, x)
        heads = []
        for projection in self.projections[:3]:
            head, params = projection(params, y)
            heads.append(head.reshape(*head.shape[:2], 4, 16))
        mixed = jax.nn.dot_product_attention(*heads)
        y, params = self.projections[3](params, mixed.reshape(x.shape))
        x = x + y
        y, params = self.norms[1](params, x)
        y, params = self.up(params, y)
        y, params = self.down(params, jax.nn.gelu(y, approximate=False))
        return x + y, params


class Transformer(bx.Module):
    def __init__(self, graph, rng):
        super().__init__(graph)
        self.blocks = [Block(graph.child(f"block{i}"), rng) for i in range(2)]
        self.head = bx.Linear(graph.child("head"), 10, rng=rng)

    def __call__(self, params, x, is_training=True):
        for block in self.blocks:
            x, params = block(params, x)
        return self.head(params, x.mean(1))


def transformer():
    return start(Transformer, "transformer")


class Siamese(bx.Module):
    def __init__(self, graph, rng):
        super().__init__(graph)
        self.tower = bx.Linear(graph.child("tower"), 256, rng=rng)
        self.head = bx.Linear(graph.child("head"), 10, rng=rng)

    def __call__(self, params, pair, is_training=True):
        first, params = self.tower(params, pair[:, 0])
        second, params = self.tower(params, pair[:, 1])
        return self.head(params, jax.nn.relu(first) - jax.nn.relu(second))


def siamese():
    return start(Siamese, "siamese")


def start(module, task):
    graph = bx.Graph("net")
    rng = bx.Rng(graph.child("rng"))
    model = module(graph.child("model"), rng)
    params = rng.seed(bx.Params(), seed=0)
    # the first call makes the parameters; in training it would change the statistics
    _, params = model(params, jnp.zeros(SHAPES[task]), is_training=False)
    return model, params.locked()


def training(network):
    model, params = network

    @jax.jit
    def step(carry, x, y):
        def loss_fn(trainable):
            logits, new = model(trainable.merge(others), x)
            return cross_entropy(logits, y), new.split()[1]

        params, opt_state = carry
        trainable, others = params.split()
        (loss, others), grads = jax.value_and_grad(loss_fn, has_aux=True)(trainable)
        deltas, opt_state = OPTIMIZER.update(grads, opt_state, trainable)
        return (optax.apply_updates(trainable, deltas).merge(others), opt_state), loss

    return (params, OPTIMIZER.init(params.split()[0])), step


def training_of_the_head(network):
    model, params = network
    trained, frozen = params.split(lambda path, p: p.trainable and "head" in path)

    @jax.jit
    def step(carry, x, y):
        def loss_fn(trained):
            return cross_entropy(model(trained.merge(frozen), x)[0], y)

        trained, opt_state = carry
        loss, grads = jax.value_and_grad(loss_fn)(trained)
        deltas, opt_state = OPTIMIZER.update(grads, opt_state, trained)
        return (optax.apply_updates(trained, deltas), opt_state), loss

    return (trained, OPTIMIZER.init(trained)), step


def features(network, x):
    # the call is Python code: its first part is written again
    model, params = network
    return jax.nn.relu(model.hidden(params, x)[0])


def ensemble(network):
    trainable, others = network[1].split()
    stacked = jax.tree.map(lambda w: np.stack([w * (1 + i / 8) for i in range(8)]), trainable)
    copies = jax.tree.map(lambda a: jnp.stack([a] * 8), others)
    _, step = training(network)
    carry = (stacked.merge(copies), jax.vmap(OPTIMIZER.init)(stacked))
    return carry, jax.jit(jax.vmap(step, in_axes=(0, None, None)))


def saved_and_loaded(network, folder):
    model, params = network
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{folder}/m", params)
        checkpointer.wait_until_finished()
        return model, checkpointer.restore(f"{folder}/m", mlp()[1])  # the code makes the structure


def filled(network, fill):
    model, params = network
    trainable, others = params.split()
    return model, jax.tree.map(fill, trainable).merge(others)


def predict(network, x):
    model, params = network
    return model(params, x, is_training=False)[0]
