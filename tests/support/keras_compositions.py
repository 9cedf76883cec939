"""Random compositions of Keras layers: nested, shared, masked, recurrent, wrapped, of several inputs.

`compose` draws a model from a `random.Random`. A tensor is a sequence (b, t, d) or a vector (b, d). Each
step takes one tensor, sometimes a second earlier one, and makes a new one. Layers that are random in
training have rate 0, so that both packages compute the same training step.
"""

import dataclasses

import numpy as np

from tests.support.keras_oracle import keras

STEPS, WIDTH, WORDS = 4, 3, 7
layers = keras.layers


@dataclasses.dataclass(frozen=True)
class Composition:
    """A Keras model and how its inputs are drawn: True for an input of ids, False for vectors."""

    model: object
    of_ids: tuple

    def inputs(self, batch, seed):
        """Arrays for the inputs, with padding: zeros at the end of most samples, one in the middle."""
        random = np.random.default_rng(seed)
        arrays = []
        for ids in self.of_ids:
            lengths = random.integers(1, STEPS + 1, batch)
            present = np.arange(STEPS) < lengths[:, None]
            if ids:
                array = random.integers(1, WORDS, (batch, STEPS)) * present
                arrays.append(array.astype("int32"))
            else:
                array = random.normal(size=(batch, STEPS, WIDTH)) * present[..., None]
                arrays.append(array.astype("float32"))
        return arrays if len(arrays) > 1 else arrays[0]


def compose(random):
    """A composition that `random` draws."""
    keras.utils.clear_session(free_memory=False)
    draw = _Draw(random)
    return draw.row() if random.random() < 0.25 else draw.graph()


class _Draw:
    def __init__(self, random):
        self.random = random
        self.shared = {}

    def choose(self, options):
        return options[self.random.randrange(len(options))]

    def chance(self, p):
        return self.random.random() < p

    # -- whole models ---------------------------------------------------------------------------

    def row(self):
        """A `Sequential`, with an input or built by its first call."""
        members, sequence, ids = [], True, self.chance(0.6)
        if ids:
            members.append(self.embedding())
        elif self.chance(0.7):
            members.append(layers.Masking())
        width = WIDTH
        for _ in range(self.random.randrange(1, 5)):
            layer, width, sequence = self.member(width, sequence, 0)
            members.append(layer)
        if self.chance(0.7):
            members.append(layers.Dense(2))
        if self.chance(0.5):
            shape = (STEPS,) if ids else (STEPS, WIDTH)
            members.insert(0, keras.Input(shape, dtype="int32" if ids else "float32"))
        return Composition(keras.Sequential(members), (ids,))

    def graph(self):
        """A functional model of one or two inputs and one or two outputs."""
        inputs, of_ids, pool = [], [], []
        for _ in range(1 + self.chance(0.35)):
            ids = self.chance(0.65)
            shape = (STEPS,) if ids else (STEPS, WIDTH)
            x = keras.Input(shape, dtype="int32" if ids else "float32")
            inputs.append(x)
            of_ids.append(ids)
            if ids:
                x = self.embedding()(x)
            elif self.chance(0.7):
                x = layers.Masking()(x)
            pool.append(x)
        x = pool[0]
        for number in range(self.random.randrange(2, 8)):
            if number == 0 and len(pool) > 1:
                x = self.join(x, pool[1])
            else:
                x = self.step(x, pool, 0)
            pool.append(x)
        outputs = [x]
        if self.chance(0.15):
            outputs.append(self.step(self.choose(pool), pool, 0))
        outputs = [layers.Dense(2)(y) if self.chance(0.7) else y for y in outputs]
        is_single = len(outputs) == 1 and self.chance(0.9)
        model = keras.Model(
            inputs if len(inputs) > 1 else inputs[0], outputs[0] if is_single else outputs
        )
        return Composition(model, tuple(of_ids))

    def embedding(self):
        kind = layers.ReversibleEmbedding if self.chance(0.15) else layers.Embedding
        return kind(WORDS, WIDTH, mask_zero=self.chance(0.85))

    # -- steps of a graph -----------------------------------------------------------------------

    def step(self, x, pool, depth):
        """A tensor computed from `x` and sometimes from other tensors of the pool."""
        if len(x.shape) == 2:
            return self.choose([self.dense, self.from_vector, self.vector_state])(x, pool, depth)
        if len(x.shape) > 3:
            return layers.Flatten()(x)
        choices = [
            *[self.by_layer] * 5,
            *[self.by_operation] * 2,
            *[self.by_network] * 4,
            *[self.by_merge] * 3,
            *[self.by_attention] * 2,
            *[self.by_recurrent] * 3,
            self.by_slice,
            self.to_vector,
        ]
        return self.choose(choices)(x, pool, depth)

    def dense(self, x, pool, depth):
        return layers.Dense(WIDTH, activation="tanh")(x)

    def from_vector(self, x, pool, depth):
        x = layers.Dense(WIDTH)(x)
        return self.choose([layers.RepeatVector(STEPS), layers.BatchNormalization()])(x)

    def vector_state(self, x, pool, depth):
        """A sequence computed with a vector as the initial state, as in decoders."""
        sequences = [y for y in pool if len(y.shape) == 3]
        state = layers.Dense(WIDTH, activation="tanh")(x)
        return self.decode(self.choose(sequences), state) if sequences else state

    def decode(self, y, state):
        kind = self.choose([layers.LSTM, layers.GRU, layers.SimpleRNN])
        states = [state, state] if kind is layers.LSTM else [state]
        layer = kind(WIDTH, return_sequences=self.chance(0.6))
        if self.chance(0.2):
            return layers.Bidirectional(layer)(y, initial_state=states + states)
        if len(states) == 1 and self.chance(0.5):
            return layer(y, initial_state=state)
        return layer(y, initial_state=states)

    def by_layer(self, x, pool, depth):
        layer, _, _ = self.member(x.shape[-1], True, 2, x.shape[1])
        y = layer(x)
        # a loss of a layer that is called twice differs on purpose, see test_keras_differences
        twice = not isinstance(layer, layers.ActivityRegularization)
        if twice and self.chance(0.15):  # a shared layer: called on another tensor as well
            candidates = [z for z in pool if z.shape == x.shape]
            if candidates:
                return layers.Add()([y, layer(self.choose(candidates))])
        return y

    def by_operation(self, x, pool, depth):
        ops = keras.ops
        candidates = [y for y in pool if y.shape == x.shape] or [x]
        choices = [
            lambda: x * 2.0,
            lambda: ops.tanh(x),
            lambda: x + self.choose(candidates),
            lambda: ops.maximum(x, self.choose(candidates)),
            lambda: ops.concatenate([x, self.choose(candidates)], axis=-1),
            lambda: ops.cast(x, "float32"),
            lambda: ops.reshape(x, (-1, *x.shape[1:])),
            lambda: ops.transpose(x, (0, 1, 2)),
            lambda: ops.squeeze(ops.expand_dims(x, 1), 1),
            lambda: x[:, :, :],
            lambda: x[..., :2],
            lambda: x[:, ::-1],
            lambda: ops.relu(x),
        ]
        return self.choose(choices)()

    def by_slice(self, x, pool, depth):
        if x.shape[1] < 2:
            return x[:, 0]
        return self.choose([lambda: x[:, -1], lambda: x[:, 1:], lambda: x[:, :-1]])()

    def by_merge(self, x, pool, depth):
        candidates = [y for y in pool if y.shape == x.shape]
        return self.join(x, self.choose(candidates or [x]))

    def join(self, x, y):
        if len(x.shape) != len(y.shape):
            return x
        if x.shape != y.shape:
            if x.shape[1] == y.shape[1]:
                return layers.Concatenate()([x, y])
            if x.shape[-1] == y.shape[-1] and len(x.shape) == 3:
                return layers.Concatenate(axis=1)([x, y])
            return x
        kinds = [
            *[layers.Add] * 2,
            layers.Multiply,
            layers.Maximum,
            layers.Minimum,
            layers.Average,
            layers.Subtract,
            *[layers.Concatenate] * 2,
        ]
        if len(x.shape) == 3:
            kinds.append(lambda: layers.Concatenate(axis=1))
            kinds.append(lambda: layers.Dot(axes=(2, 2)))
        return self.choose(kinds)()([x, y])

    def by_attention(self, x, pool, depth):
        candidates = [y for y in pool if len(y.shape) == 3]
        y = self.choose(candidates) if candidates and self.chance(0.5) else x
        choices = [
            lambda: layers.MultiHeadAttention(1, 2)(x, y),
            lambda: layers.MultiHeadAttention(2, 2)(x, y, x if y.shape == x.shape else y),
            lambda: layers.MultiHeadAttention(2, 2, use_bias=False)(
                x, y, use_causal_mask=self.chance(0.5)
            ),
            lambda: layers.MultiHeadAttention(1, 2)(query=x, value=y),
            lambda: layers.GroupQueryAttention(2, 2, 1)(x, y),
        ]
        if y.shape[-1] == x.shape[-1]:
            choices.append(lambda: layers.Attention()([x, y]))
            choices.append(lambda: layers.AdditiveAttention()([x, y]))
        z = self.choose(choices)()
        if z.shape == x.shape and self.chance(0.6):  # a residual
            z = layers.Add()([x, z]) if self.chance(0.7) else x + z
        return z

    def by_recurrent(self, x, pool, depth):
        if self.chance(0.4):  # encoder and decoder
            reader = self.choose([layers.LSTM, layers.GRU])(
                WIDTH, return_state=True, return_sequences=self.chance(0.3)
            )
            _, *states = reader(self.choose([y for y in pool if len(y.shape) == 3] or [x]))
            kind = layers.LSTM if len(states) == 2 else layers.GRU
            decoder = kind(WIDTH, return_sequences=self.chance(0.7))
            return decoder(x, initial_state=states)
        vectors = [y for y in pool if len(y.shape) == 2]
        if vectors and self.chance(0.4):
            return self.decode(x, layers.Dense(WIDTH)(self.choose(vectors)))
        return self.recurrent()(x)

    def recurrent(self):
        sequences, zeros = self.chance(0.6), self.chance(0.2)
        options = {"return_sequences": sequences, "zero_output_for_mask": zeros and sequences}
        kind = self.choose([layers.LSTM, layers.GRU, layers.SimpleRNN])
        way = self.random.randrange(6)
        if way == 0:
            return layers.Bidirectional(kind(2, return_sequences=sequences))
        if way == 1:
            cells = [layers.GRUCell(2), layers.SimpleRNNCell(WIDTH)]
            return layers.RNN(cells, return_sequences=sequences)
        if way == 2:
            options["go_backwards"] = True
        return kind(WIDTH, **options)

    def to_vector(self, x, pool, depth):
        return self.choose([*self.reductions(), lambda y: keras.ops.mean(y, axis=1)])(x)

    def reductions(self):
        return [
            layers.GlobalAveragePooling1D(),
            layers.GlobalMaxPooling1D(),
            layers.Flatten(),
            layers.LSTM(WIDTH),
        ]

    # -- nested networks ------------------------------------------------------------------------

    def by_network(self, x, pool, depth):
        if depth >= 2:
            return self.by_layer(x, pool, depth)
        if self.chance(0.45):
            network = self.nested_row(x.shape[-1], x.shape[1], depth + 1)
        else:
            network = self.nested_graph(x.shape, depth + 1)
        has_two_inputs = (
            isinstance(network.inputs, list) and len(network.inputs) > 1 if network.built else False
        )
        if has_two_inputs:
            candidates = [y for y in pool if y.shape == x.shape]
            y = network([x, self.choose(candidates or [x])])
        else:
            y = network(x)
        if not has_two_inputs and not _has_losses(network) and self.chance(0.2):  # a shared network
            candidates = [z for z in pool if z.shape == x.shape]
            if candidates:
                z = network(self.choose(candidates))
                return self.join(_first(y), _first(z))
        return _first(y)

    def nested_row(self, width, steps, depth):
        members, sequence, lazy = [], True, self.chance(0.5)
        if not lazy:
            members.append(keras.Input((steps, width)))
        if self.chance(0.15):
            members.append(layers.Masking())
        for _ in range(self.random.randrange(1, 4)):
            layer, width, sequence = self.member(width, sequence, depth, steps)
            members.append(layer)
        return keras.Sequential(members)

    def nested_graph(self, shape, depth):
        inputs = [keras.Input(shape[1:]) for _ in range(1 + self.chance(0.25))]
        pool = list(inputs)
        x = inputs[0]
        if len(inputs) > 1:
            x = self.join(*inputs)
            pool.append(x)
        for _ in range(self.random.randrange(1, 4)):
            x = self.step(x, pool, depth)
            pool.append(x)
        outputs = [x, pool[-2]] if self.chance(0.1) else x
        return keras.Model(inputs if len(inputs) > 1 else inputs[0], outputs)

    # -- layers in a row ------------------------------------------------------------------------

    def member(self, width, sequence, depth, steps=STEPS):
        """`(layer, width, sequence)`: a layer of one input, the width of its output, and whether the output is a sequence."""
        if not sequence:
            options = [layers.Dense(WIDTH), layers.BatchNormalization(), layers.Activation("tanh")]
            layer = self.choose(options)
            return layer, WIDTH if isinstance(layer, layers.Dense) else width, False
        kind = self.random.randrange(20)
        if kind < 3:
            layer = self.recurrent()
            is_bidirectional = isinstance(layer, layers.Bidirectional)
            return layer, 4 if is_bidirectional else WIDTH, layer.return_sequences
        if kind == 3:
            kinds = [layers.GlobalAveragePooling1D, layers.GlobalMaxPooling1D]
            return self.choose(kinds)(), width, False
        if kind == 4:
            return layers.Flatten(), steps * width, False
        if kind < 7 and depth < 2:
            network = self.nested_row(width, steps, depth + 1)
            if network.built:
                shape = network.output_shape
                return network, shape[-1], len(shape) == 3
            inner = keras.Sequential([keras.Input((steps, width)), *network.layers])
            shape = inner.output_shape
            lazy = keras.Sequential([type(m).from_config(m.get_config()) for m in network.layers])
            return lazy, shape[-1], len(shape) == 3
        if kind == 7:
            return layers.Dense(WIDTH, activation="relu"), WIDTH, True
        if kind == 8:
            return layers.Conv1D(WIDTH, 2, padding="same"), WIDTH, True
        if kind == 9:
            return self.wrapped(width, depth), WIDTH, True
        if kind == 10:
            return layers.EinsumDense("btd,df->btf", (None, WIDTH)), WIDTH, True
        return self.pointwise(width, steps), width, True

    def wrapped(self, width, depth):
        choices = [
            lambda: layers.TimeDistributed(layers.Dense(WIDTH)),
            lambda: layers.TimeDistributed(
                keras.Sequential([keras.Input((width,)), layers.Dense(WIDTH), layers.ReLU()])
            ),
            lambda: layers.SpectralNormalization(layers.Dense(WIDTH)),
            lambda: layers.SpectralNormalization(layers.Conv1D(WIDTH, 1)),
        ]
        return self.choose(choices)()

    def pointwise(self, width, steps):
        choices = [
            lambda: layers.LayerNormalization(),
            lambda: layers.RMSNormalization(),
            lambda: layers.BatchNormalization(momentum=0.5),
            lambda: layers.BatchNormalization(momentum=0.5),
            lambda: layers.UnitNormalization(),
            lambda: layers.GroupNormalization(groups=1),
            lambda: layers.Activation("tanh"),
            lambda: layers.Activation("linear"),
            lambda: layers.ReLU(),
            lambda: layers.LeakyReLU(),
            lambda: layers.ELU(),
            lambda: layers.PReLU(shared_axes=[1]),
            lambda: layers.Dropout(0.0),
            lambda: layers.SpatialDropout1D(0.0),
            lambda: layers.GaussianNoise(0.0),
            lambda: layers.Identity(),
            lambda: layers.Rescaling(0.5, 0.1),
            lambda: layers.Permute((1, 2)),
            lambda: layers.Reshape((steps, width)),
            lambda: layers.Masking(),
            lambda: layers.ActivityRegularization(l2=0.01),
            lambda: layers.UpSampling1D(1),
            lambda: layers.ZeroPadding1D(0),
            lambda: layers.Cropping1D(0),
            lambda: layers.AveragePooling1D(1),
            lambda: layers.TimeDistributed(layers.BatchNormalization()),
            lambda: layers.TimeDistributed(layers.LayerNormalization()),
        ]
        return self.choose(choices)()


def _has_losses(network):
    """Whether a layer inside returns a loss: Keras on JAX counts the last call of a network only."""
    return any(isinstance(x, layers.ActivityRegularization) for x in network._flatten_layers())


def _first(value):
    return value[0] if isinstance(value, list | tuple) else value
