"""Training steps and predictions of networks beside PyTorch, in one process with one thread each.

    python benchmarks/pytorch_networks.py [--rounds N] [network ...]

Both sides begin with the same weights and see the same batch in each step: `trainer.step` with donation,
and PyTorch's usual loop with Adam. The losses of three steps must agree. A ratio below 1 means that fkeras
takes less CPU time. Goals: transformer at most 1.0, ConvNet at most 1.3.
"""

import meter  # isort: skip

import argparse
import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import fkeras as fk
from fkeras import layers
from fkeras.engine import trainable_weights

RNG = np.random.default_rng(0)
ROWS, TIME, WIDTH, HEADS, WORDS = 32, 128, 128, 4, 1000
GOALS = {"transformer": 1.0, "ConvNet": 1.3}


def tensor(array):
    return nn.Parameter(torch.from_numpy(np.array(array)))


class Weights(nn.Module):
    """Weights of fkeras by path: `w["dense/kernel"]`."""

    def __init__(self, model):
        super().__init__()
        self.paths = nn.ParameterDict(
            {path.replace("/", "|"): tensor(w) for path, w in trainable_weights(model).items()}
        )

    def __getitem__(self, path):
        return self.paths[path.replace("/", "|")]

    def dense(self, x, name):
        return x @ self[f"{name}/kernel"] + self[f"{name}/bias"]


# networks: a model of fkeras, and a function of PyTorch of weights and a batch


def mlp():
    h = x = fk.Input((32,))
    for _ in range(4):
        h = layers.Dense(64, activation="relu")(h)
    data = RNG.normal(size=(32, 32)).astype("float32"), RNG.integers(0, 10, 32)
    return fk.Model(x, layers.Dense(10)(h)), data


def torch_mlp(w, x):
    for name in ("dense", "dense_1", "dense_2", "dense_3"):
        x = torch.relu(w.dense(x, name))
    return w.dense(x, "dense_4")


def lstm():
    ids = fk.Input((64,), dtype="int32")
    h = layers.Embedding(200, 32, mask_zero=True)(ids)
    lengths = RNG.integers(20, 65, 32)
    words = RNG.integers(1, 200, (32, 64)) * (np.arange(64) < lengths[:, None])
    return fk.Model(ids, layers.Dense(10)(layers.LSTM(64)(h))), (words, RNG.integers(0, 10, 32))


def torch_lstm(w, ids):
    x = w["embedding/embeddings"][ids]
    # PyTorch orders the gates as fkeras: input, forget, cell, output
    kernels = [w["lstm/kernel"].T, w["lstm/recurrent_kernel"].T, w["lstm/bias"]]
    zeros = torch.zeros_like(w["lstm/bias"])
    packed = nn.utils.rnn.pack_padded_sequence(
        x, (ids != 0).sum(1), batch_first=True, enforce_sorted=False
    )
    start = torch.zeros(1, len(ids), 64)
    _, hidden, _ = torch._VF.lstm(
        packed.data,
        packed.batch_sizes,
        (start, start),
        [*kernels, zeros],
        True,
        1,
        0.0,
        True,
        False,
    )
    return w.dense(hidden[0][packed.unsorted_indices], "dense")


def transformer():
    ids = fk.Input((TIME,), dtype="int32")
    h = layers.Embedding(WORDS, WIDTH)(ids)
    for n in range(6):
        a = layers.LayerNormalization(epsilon=1e-5, name=f"norm{n}")(h)
        h = layers.Add()(
            [h, layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name=f"attention{n}")(a, a)]
        )
        a = layers.LayerNormalization(epsilon=1e-5, name=f"second_norm{n}")(h)
        up = layers.Dense(4 * WIDTH, activation="relu", name=f"up{n}")(a)
        h = layers.Add()([h, layers.Dense(WIDTH, name=f"down{n}")(up)])
    data = tuple(RNG.integers(0, WORDS, (ROWS, TIME)) for _ in range(2))
    return fk.Model(ids, layers.Dense(WORDS, name="logits")(h)), data


def torch_transformer(w, ids):
    h = w["embedding/embeddings"][ids]
    rows, time = ids.shape

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), w[f"{name}/gamma"], w[f"{name}/beta"], 1e-5)

    def heads(x, name):
        y = x @ w[f"{name}/kernel"].reshape(WIDTH, WIDTH) + w[f"{name}/bias"].reshape(WIDTH)
        return y.reshape(rows, time, HEADS, WIDTH // HEADS).transpose(1, 2)

    for n in range(6):
        a = norm(h, f"norm{n}")
        q, k, v = (heads(a, f"attention{n}/{part}_dense") for part in ("query", "key", "value"))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, time, WIDTH)
        kernel = w[f"attention{n}/output_dense/kernel"].reshape(WIDTH, WIDTH)
        h = h + y @ kernel + w[f"attention{n}/output_dense/bias"]
        h = h + w.dense(torch.relu(w.dense(norm(h, f"second_norm{n}"), f"up{n}")), f"down{n}")
    return w.dense(h, "logits")


def convnet():
    x = fk.Input((32, 32, 3))
    h = layers.Conv2D(32, 3, padding="same", name="first")(x)
    for n, filters in enumerate((32, 32, 64, 64)):
        if n == 2:
            h = layers.Conv2D(64, 2, strides=2, name="half")(h)
        y = h
        for part in "ab":
            y = layers.Conv2D(filters, 3, padding="same", use_bias=False, name=f"conv{n}{part}")(y)
            y = layers.BatchNormalization(epsilon=1e-5, name=f"norm{n}{part}")(y)
            y = layers.ReLU()(y) if part == "a" else y
        h = layers.ReLU()(layers.Add()([h, y]))
    model = fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))
    return model, (RNG.normal(size=(64, 32, 32, 3)).astype("float32"), RNG.integers(0, 10, 64))


def torch_convnet(w, x):
    def conv(x, name, **options):
        return F.conv2d(x, w[f"{name}/kernel"].permute(3, 2, 0, 1), **options)

    h = conv(x.permute(0, 3, 1, 2), "first", bias=w["first/bias"], padding=1)
    for n in range(4):
        if n == 2:
            h = conv(h, "half", bias=w["half/bias"], stride=2)
        y = h
        for part in "ab":
            y = conv(y, f"conv{n}{part}", padding=1)
            scale, shift = w[f"norm{n}{part}/gamma"], w[f"norm{n}{part}/beta"]
            y = F.batch_norm(y, None, None, scale, shift, training=True, eps=1e-5)
            y = torch.relu(y) if part == "a" else y
        h = torch.relu(h + y)
    return w.dense(h.mean((2, 3)), "dense")


TABLE = {
    "MLP": (mlp, torch_mlp),
    "LSTM, mask": (lstm, torch_lstm),
    "transformer": (transformer, torch_transformer),
    "ConvNet": (convnet, torch_convnet),
}


class Sides:
    """Both sides of a network; each method returns the loss of a step."""

    def __init__(self, name):
        make, self.forward = TABLE[name]
        model, (x, y) = make()
        x = x if x.dtype == np.float32 else x.astype("int32")
        loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.trainer = fk.Trainer(fk.optimizers.Adam(1e-3, epsilon=1e-8), loss)
        self.run = self.trainer.init(model, jax.random.key(0))
        self.weights = Weights(self.run.model)
        self.optimizer = torch.optim.Adam(self.weights.parameters(), 1e-3, eps=1e-8)
        self.batch = jnp.asarray(x), jnp.asarray(y.astype("int32"))
        long = x if x.dtype == np.float32 else x.astype("int64")
        self.tensors = torch.from_numpy(long), torch.from_numpy(y.astype("int64"))

    def fkeras(self):
        self.run, logs = self.trainer.step(self.run, self.batch, donate=True)
        return float(logs["loss"])

    def pytorch(self):
        x, y = self.tensors
        self.optimizer.zero_grad()
        logits = self.forward(self.weights, x)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=list(TABLE))
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.networks:
        sides = Sides(name)
        # Adam divides a gradient by its size, so that rounding decides the sign of small gradients
        for tolerance in (1e-6, 1e-4, 1e-3):
            ours, theirs = sides.fkeras(), sides.pytorch()
            assert math.isclose(ours, theirs, rel_tol=tolerance), (name, ours, theirs)
        contenders = {"PyTorch": sides.pytorch, "fkeras": sides.fkeras}
        limit = ("fkeras", GOALS[name]) if name in GOALS else None
        meter.report(f"{name}: a training step", meter.compare(contenders, options.rounds), limit)


if __name__ == "__main__":
    main()
