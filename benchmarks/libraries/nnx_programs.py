import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from flax import nnx
from tasks import OPTIMIZER, cross_entropy


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(32, 256, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


def mlp():
    return MLP(nnx.Rngs(0))


class ConvNet(nnx.Module):
    def __init__(self, rngs):
        sizes = (3, 16), (16, 32)
        self.convolutions = nnx.List(
            nnx.Conv(n, m, (3, 3), use_bias=False, rngs=rngs) for n, m in sizes
        )
        self.norms = nnx.List(nnx.BatchNorm(m, momentum=0.9, rngs=rngs) for _, m in sizes)
        self.head = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = nnx.max_pool(nnx.relu(norm(convolution(x))), (2, 2), (2, 2))
        return self.head(x.mean((1, 2)))


def convnet():
    return ConvNet(nnx.Rngs(0))


class LSTM(nnx.Module):
    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.LSTMCell(16, 64, rngs=rngs))
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        return self.head(self.rnn(x)[:, -1])


def lstm():
    return LSTM(nnx.Rngs(0))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.norms = nnx.List(nnx.LayerNorm(64, epsilon=1e-5, rngs=rngs) for _ in range(2))
        self.attention = nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)
        self.up = nnx.Linear(64, 256, rngs=rngs)
        self.down = nnx.Linear(256, 64, rngs=rngs)

    def __call__(self, x):
        x += self.attention(self.norms[0](x))
        return x + self.down(nnx.gelu(self.up(self.norms[1](x)), approximate=False))


class Transformer(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List(Block(rngs) for _ in range(2))
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def transformer():
    return Transformer(nnx.Rngs(0))


class Siamese(nnx.Module):
    def __init__(self, rngs):
        self.tower = nnx.Linear(32, 256, rngs=rngs)
        self.head = nnx.Linear(256, 10, rngs=rngs)

    def __call__(self, pair):
        encoded = nnx.relu(self.tower(pair))
        return self.head(encoded[:, 0] - encoded[:, 1])


def siamese():
    return Siamese(nnx.Rngs(0))


def update(model, optimizer, x, y):
    loss, grads = nnx.value_and_grad(lambda model: cross_entropy(model(x), y))(model)
    optimizer.update(model, grads)
    return loss


def training(model):
    jitted = nnx.jit(update)

    def step(carry, x, y):
        return carry, jitted(*carry, x, y)  # model and optimizer change in place

    return (model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)), step


def fast_training(model):
    """The same step on the split state, which `jax.jit` takes faster than objects."""
    graph, state = nnx.split((model, nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)))

    @jax.jit
    def step(state, x, y):
        model, optimizer = nnx.merge(graph, state)
        loss = update(model, optimizer, x, y)
        return nnx.state((model, optimizer)), loss

    return state, step


def training_of_the_head(model):
    head = nnx.All(nnx.Param, nnx.PathContains("head"))

    @nnx.jit
    def update(model, optimizer, x, y):
        wrt = nnx.DiffState(0, head)
        loss, grads = nnx.value_and_grad(lambda m: cross_entropy(m(x), y), argnums=wrt)(model)
        optimizer.update(model, grads)
        return loss

    def step(carry, x, y):
        return carry, update(*carry, x, y)

    return (model, nnx.Optimizer(model, OPTIMIZER, wrt=head)), step


def features(model, x):
    # the call is Python code: its first part is written again; or `self.sow` inside of the call
    return nnx.relu(model.hidden(x))


def ensemble(model):
    graph, state = nnx.split(model)
    stacked = jax.tree.map(lambda w: jnp.stack([w * (1 + i / 8) for i in range(8)]), state)

    @jax.jit
    def step(carry, x, y):
        def one(state, opt_state):
            def loss_fn(state):
                return cross_entropy(nnx.merge(graph, state)(x), y)

            loss, grads = jax.value_and_grad(loss_fn)(state)
            deltas, opt_state = OPTIMIZER.update(grads, opt_state, state)
            return (optax.apply_updates(state, deltas), opt_state), loss

        return jax.vmap(one)(*carry)

    return (stacked, jax.vmap(OPTIMIZER.init)(stacked)), step


def saved_and_loaded(model, folder):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{folder}/m", nnx.state(model))
        checkpointer.wait_until_finished()
        other = mlp()  # the code makes the structure
        nnx.update(other, checkpointer.restore(f"{folder}/m", nnx.state(other)))
        return other


def filled(model, fill):
    nnx.update(model, jax.tree.map(fill, nnx.state(model, nnx.Param)))
    return model


def predict(model, x):
    model.eval()  # changes the model
    y = model(x)
    model.train()
    return y
