"""The rows of `accelerators.py`: programs with fkeras, and the same programs by hand.

Both sides of a row begin with the same weights and the same data. With `small`, the sizes are those of
the check on the CPU, which compares values: of layers the score and all gradients, of training the loss
after two steps of SGD, of `fk.generate` the tokens.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import accelerator_by_hand as by_hand
import accelerator_decoding as decoding
import jax
import jax.numpy as jnp
import networks
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import layers
from fkeras.training.step import blocks, changes, sharding, step

LOGITS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)


@dataclasses.dataclass(frozen=True)
class Side:
    """One program.

    Attributes:
        function: the function to compile.
        arguments: makes the arguments; traced for shapes alone.
        donate: the arguments that the function may overwrite.
        carries: whether the result is `(new first argument, loss)`.
        specs: makes the shapes with layouts on several devices, or None.
        seen: the part of the result that the check compares, if the function carries nothing.
    """

    function: Callable
    arguments: Callable[[], tuple]
    donate: tuple = ()
    carries: bool = False
    specs: Callable[[], tuple] | None = None
    seen: Callable = lambda result: result


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        ours: the program with fkeras.
        by_hand: the programs by hand, by library.
        tolerance: of the check, relative to the largest value; None: the sides compute other values.
        trips: the number of steps of loops whose number the program does not state.
    """

    ours: Side
    by_hand: dict[str, Side]
    tolerance: float | None = 1e-4
    trips: int = 1


@dataclasses.dataclass(frozen=True)
class Network:
    """A model, and shapes of its data.

    Attributes:
        model: the unbuilt model, which returns logits.
        x: the shape of the inputs, or `(shape, number of ids)`.
        y: the shape of the labels, and the number of classes.
        small: whether these are the sizes of the check.
        policy: the dtype policy of the layers.
    """

    model: Any
    x: tuple
    y: tuple
    small: bool
    policy: str = "float32"

    @property
    def tolerance(self):
        return 1e-4 if self.policy == "float32" else 5e-2

    @property
    def optimizer(self):
        # the loss after a step of SGD shows the gradient itself, that of Adam its sign
        return optax.sgd(0.1) if self.small else optax.adam(1e-3)

    def data(self):
        x = integers(*self.x) if isinstance(self.x[0], tuple) else normal(self.x)
        return x, integers(*self.y, 3)

    def start(self):
        """Returns a run, and the carry `(weights, state, slots)` of the program by hand."""
        run = fk.Trainer(self.optimizer, LOGITS).init(self.model, jax.random.key(0))
        weights, state = weights_of(run.model), {n: dict(s) for n, s in run.state.items()}
        return run, (weights, state, self.optimizer.init(weights))

    def forward(self, library, weights, state, x):
        return by_hand.forward(self.model, weights, state, library, x)


def normal(shape, dtype="float32", seed=1):
    return jax.random.normal(jax.random.key(seed), shape, dtype)


def integers(shape, limit, seed=2):
    return jax.random.randint(jax.random.key(seed), shape, 0, limit)


def weights_of(model):
    return dict(fk.engine.trainable_weights(model))


def in_libraries(make):
    """Returns a side for each library: `make` of its name."""
    return {library: make(library) for library in by_hand.LIBRARIES}


# networks


def mlp(small):
    width = 16 if small else 512
    x = h = fk.Input((width,))
    for i in range(5):
        h = layers.Dense(width, "relu" if i < 4 else None)(h)
    return Network(fk.Model(x, h), (width, width), ((width,), width), small)


def convnet(small, policy="float32"):
    rows, size, width = (4, 8, 8) if small else (64, 32, 64)

    def normalized(h, filters, strides=1, kernel=3):
        conv = layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False, dtype=policy)
        return layers.BatchNormalization(dtype=policy)(conv(h))

    relu = functools.partial(layers.Activation, "relu", dtype=policy)
    inputs = fk.Input((size, size, 3))
    h = relu()(normalized(inputs, width))
    for filters, strides in ((width, 1), (2 * width, 2), (2 * width, 1)):
        y = normalized(relu()(normalized(h, filters, strides)), filters)
        short = h if strides == 1 else normalized(h, filters, strides, 1)
        h = relu()(layers.Add(dtype=policy)([y, short]))
    h = layers.GlobalAveragePooling2D(dtype=policy)(h)
    model = fk.Model(inputs, layers.Dense(10, dtype=policy)(h))
    return Network(model, (rows, size, size, 3), ((rows,), 10), small, policy)


def block(x, width, heads, activation, policy):
    """A transformer block, normalized first."""
    options = {"dtype": policy}
    h = layers.LayerNormalization(**options)(x)
    h = layers.MultiHeadAttention(heads, width // heads, **options)(h, h)
    x = layers.Add(**options)([x, h])
    h = layers.LayerNormalization(**options)(x)
    h = layers.Dense(4 * width, activation, **options)(h)
    return layers.Add(**options)([x, layers.Dense(width, **options)(h)])


def transformer(small, policy="float32", rows=4, time=512, blocks=2):
    rows, time, width, heads = (8, 8, 16, 2) if small else (rows, time, 512, 8)
    words = 64 if small else 1024
    ids = fk.Input((time,), dtype="int32")
    x = layers.Embedding(words, width, dtype=policy)(ids)
    for _ in range(blocks):
        x = block(x, width, heads, "relu", policy)
    model = fk.Model(ids, layers.Dense(words, dtype=policy, name="logits")(x))
    return Network(model, ((rows, time), words), ((rows, time), words), small, policy)


def vit(small):
    rows, time, width, heads = (2, 9, 16, 2) if small else (32, 196, 384, 6)
    x = fk.Input((time, width))
    h = layers.GlobalAveragePooling1D()(block(x, width, heads, "gelu", "float32"))
    model = fk.Model(x, layers.Dense(10)(h))
    return Network(model, (rows, time, width), ((rows,), 10), small)


def unet(small):
    rows = 1 if small else 8
    return Network(networks.unet(), (rows, 64, 64, 3), ((rows, 64, 64), 4), small)


def application(name, small):
    # the last normalizations see one pixel a row: over few rows, rounding would decide the logits
    rows, size = (16, 32) if small else (16, 64)
    return Network(networks.application(name, size), (rows, size, size, 3), ((rows,), 10), small)


def words(small):
    rows, time, words, width = (4, 8, 50, 8) if small else (64, 128, 100_000, 128)
    ids = fk.Input((time,), dtype="int32")
    h = layers.GlobalAveragePooling1D()(layers.Embedding(words, width)(ids))
    return Network(fk.Model(ids, layers.Dense(10)(h)), ((rows, time), words), ((rows,), 10), small)


# training


def cross_entropy(logits, y):
    logits = logits.astype("float32")
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def stepping(optimizer, forward):
    """Returns `(carry, x, y) -> (carry, loss)` for a forward `(weights, state, x) -> (logits, updates)`."""

    def one(carry, x, y):
        weights, state, slots = carry

        def loss_fn(weights):
            logits, updates = forward(weights, state, x)
            return cross_entropy(logits, y), updates

        (loss, updates), grads = jax.value_and_grad(loss_fn, has_aux=True)(weights)
        deltas, slots = optimizer.update(grads, slots, weights)
        return (optax.apply_updates(weights, deltas), state | updates, slots), loss

    return one


def steps_by_hand(net):
    def side(library):
        function = stepping(net.optimizer, functools.partial(net.forward, library))
        return Side(function, lambda: (net.start()[1], *net.data()), (0,), True)

    return in_libraries(side)


def our_forward(model, state, x):
    out = model.apply(x, state=state, training=True)
    return out.value, out.updates


def training(net):
    """A custom training step: the model is an argument of `jax.jit`."""

    def arguments():
        run = net.start()[0]
        return ((run.model, run.state, net.optimizer.init(run.model)), *net.data())

    ours = Side(stepping(net.optimizer, our_forward), arguments, (0,), True)
    return Row(ours, steps_by_hand(net), net.tolerance)


def forward_only(net):
    """The logits, where a check of the training would compile for minutes."""

    def ours(model, state, x):
        return our_forward(model, state, x)[0]

    def our_arguments():
        run = net.start()[0]
        return run.model, run.state, net.data()[0]

    def side(library):
        def logits(weights, state, x):
            return net.forward(library, weights, state, x)[0]

        return Side(logits, lambda: (*net.start()[1][:2], net.data()[0]))

    return Row(Side(ours, our_arguments), in_libraries(side), net.tolerance)


def with_trainer(net, loss=LOGITS, model=None):
    """`trainer.step` under `jax.jit`; `model` takes the place of the network's on the side of fkeras."""
    trainer = fk.Trainer(net.optimizer, loss)

    def ours(run, x, y):
        run, logs = trainer.step(run, (x, y))
        return run, logs["loss"]

    def arguments():
        return (trainer.init(model or net.model, jax.random.key(0)), *net.data())

    return Row(Side(ours, arguments, (0,), True), steps_by_hand(net), net.tolerance)


def softmax_loss(small):
    """A model that ends in a softmax, under a cross-entropy of probabilities; by hand from logits."""
    rows, width, classes = (8, 16, 10) if small else (4096, 256, 1000)
    x = fk.Input((width,))

    def model(activation):
        return fk.Model(x, layers.Dense(classes, activation, name="head")(x))

    net = Network(model(None), (rows, width), ((rows,), classes), small)
    return with_trainer(net, fk.losses.SparseCategoricalCrossentropy(), model("softmax"))


def looped(net, pure, batches=8):
    """The compiled call of `fit`, or `Trainer.run` if `pure`: some batches of arrays on the device."""
    trainer = fk.Trainer(net.optimizer, LOGITS)
    form = step.training_form(trainer)
    structure = blocks.flat(form, jax.eval_shape(lambda: net.start()[0])).structure

    def rows():
        x, y = (jnp.concatenate([a] * batches) for a in net.data())
        order = jnp.arange(x.shape[0])
        return x, y, order if pure else jax.random.permutation(jax.random.key(6), order)

    def fit(leaves, x, y, order, count):
        size = x.shape[0] // batches
        places, total = jnp.arange(size), jnp.int32(batches * size)
        rows = ((x, y), order, places, jnp.int32(0), total)
        parts = changes.parted(structure, leaves)
        leaves, logs, _ = step.compiled_train.by_default(
            form, structure, "loop", *parts, rows, count
        )
        return leaves, logs["loss"]

    def pure_run(run, x, y, order, count):
        run, logs = trainer.run(run, (x, y), 1, x.shape[0] // batches, shuffle=False)
        return run, logs["loss"][0]

    def scanned(library, carry, x, y, order, count):
        one = stepping(net.optimizer, functools.partial(net.forward, library))

        def body(carry, index):
            return one(carry, x[index], y[index])

        carry, losses = jax.lax.scan(body, carry, order.reshape(batches, -1))
        return carry, losses.mean()

    def arguments(start):
        return lambda: (start(), *rows(), jnp.int32(batches))

    def seen(result):
        return result[1]

    def our_start():
        run = net.start()[0]
        return run if pure else blocks.flat(form, run).leaves

    ours = Side(pure_run if pure else fit, arguments(our_start), seen=seen)

    def side(library):
        function = functools.partial(scanned, library)
        return Side(function, arguments(lambda: net.start()[1]), seen=seen)

    return Row(ours, in_libraries(side), net.tolerance, batches)


class _Low:
    """A kernel and its adapter of low rank: x @ kernel + x @ a @ b."""

    def __init__(self, kernel, a, b):
        self.kernel, self.a, self.b = kernel, a, b

    def astype(self, dtype):
        return _Low(*(part.astype(dtype) for part in (self.kernel, self.a, self.b)))

    def __rmatmul__(self, x):
        return x @ self.kernel + x @ self.a @ self.b


class _Coded:
    """A kernel of 8-bit or 4-bit codes, by hand."""

    def __init__(self, frozen, path):
        self.kernel = frozen[f"{path}/kernel"]
        self.scale, self.zero = (frozen.get(f"{path}/kernel_{n}") for n in ("scale", "zero"))

    def astype(self, dtype):
        return self

    def __rmatmul__(self, x):
        if self.zero is None:
            return decoding.integer_product(x, self.kernel, self.scale)
        return x @ decoding.floats(self.kernel, self.scale, self.zero)


def lora(small, quantization=None):
    """A step of adapters for the dense kernels of the transformer."""
    net, pattern = transformer(small), "dense*"

    def adapted():
        keys = jax.random.split(jax.random.key(0))
        built = net.model.build(keys[0])
        base = fk.transforms.quantize(built, quantization, pattern) if quantization else built
        return fk.transforms.adapt(base, pattern, fk.transforms.LoRA(rank=8), keys[1])

    def adapter_step(forward, carry, x, y):
        trained, frozen, slots = carry
        one = stepping(net.optimizer, lambda w, state, x: (forward(w, frozen, x), {}))
        (trained, _, slots), loss = one((trained, {}, slots), x, y)
        return (trained, frozen, slots), loss

    def ours(trained, frozen, x):
        return our_forward(fk.combine(trained, frozen), {}, x)[0]

    def hand(library, trained, frozen, x):
        names = {path.partition("/")[0] for path in trained}
        low = {
            f"{name}/kernel": _Low(
                _Coded(frozen, name) if quantization else frozen[f"{name}/kernel"],
                *(trained[f"{name}/adapters/layer/{part}"] for part in ("a", "b")),
            )
            for name in names
        }
        return net.forward(library, frozen | low, {}, x)[0]

    def arguments():
        trained, frozen = fk.partition(adapted())
        return ((trained, frozen, net.optimizer.init(trained)), *net.data())

    def arguments_by_hand():
        changed = adapted()
        trained = weights_of(changed)
        weights = decoding.arrays_of(changed).items()
        frozen = {path.replace("/layer/", "/"): w for path, w in weights if path not in trained}
        return ((trained, frozen, net.optimizer.init(trained)), *net.data())

    def side(forward, arguments):
        return Side(functools.partial(adapter_step, forward), arguments, (0,), True)

    others = in_libraries(lambda library: side(functools.partial(hand, library), arguments_by_hand))
    return Row(side(ours, arguments), others, net.tolerance)


# `(axes of the mesh, sharding of the trainer)` of the rows on 8 devices
MESHES = {
    "data": ({"data": 8}, {"batch": "data"}),
    "data x model": (
        {"data": 2, "model": 4},
        {"batch": "data", "heads": "model", "hidden": "model", "vocab": "model"},
    ),
    "fsdp": ({"data": 8}, {"batch": "data", "fsdp": "data"}),
}


def on_mesh(kind, small, devices=None):
    """`trainer.step` on a mesh of 8; by hand the weights have the same layouts."""
    net = transformer(small, rows=8)
    row = with_trainer(net)
    if devices is None:
        return row
    axes, rules = MESHES[kind]
    shape = np.array(devices).reshape(*axes.values())
    mesh = jax.sharding.Mesh(shape, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    trainer = fk.Trainer(net.optimizer, LOGITS, mesh=mesh, sharding=rules)
    whole = NamedSharding(mesh, P())

    def ours(run, x, y):
        run, logs = step.train_logs(trainer, run, (x, y, None))
        return run, logs["loss"]

    def laid_out(specs, layouts):
        def put(s, layout):
            return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=layout)

        return jax.tree.map(put, specs, layouts)

    def rows(specs):
        return laid_out(specs, jax.tree.map(lambda _: NamedSharding(mesh, P("data")), specs))

    def our_specs():
        run, *batch = jax.eval_shape(row.ours.arguments)
        return (laid_out(run, sharding.layouts(trainer, run)), *rows(batch))

    run = jax.eval_shape(row.ours.arguments)[0]
    by_path = weights_of(sharding.layouts(trainer, run).model)

    def layouts(carry):
        def of(path, leaf):
            names = [getattr(key, "key", None) for key in path]
            return next((by_path[name] for name in names if name in by_path), whole)

        return jax.tree_util.tree_map_with_path(of, carry)

    def constrained(function):
        # the results have the layouts of the arguments
        def kept(carry, x, y):
            new, loss = function(carry, x, y)
            return jax.lax.with_sharding_constraint(new, layouts(new)), loss

        return kept

    def hand_specs(side):
        carry, *batch = jax.eval_shape(side.arguments)
        return (laid_out(carry, layouts(carry)), *rows(batch))

    others = {
        name: dataclasses.replace(
            side,
            function=constrained(side.function),
            specs=functools.partial(hand_specs, side),
        )
        for name, side in row.by_hand.items()
    }
    return Row(dataclasses.replace(row.ours, function=ours, specs=our_specs), others)


# generation


def generating(small, new, quantization=None):
    """`fk.generate` under `jax.jit`, of at most `new` tokens for prompts of different lengths.

    Both sides read all tokens, also the last, into the caches, which they return.
    """
    rows, width = (2, 4) if small else (4, 64)
    config, model = decoding.llama(small)

    def ours(model, ids, lengths):
        result = fk.generate(
            model, None, ids, max_new_tokens=new, lengths=lengths, end_ids=decoding.END
        )
        return result.tokens, result.state

    def hand(w, ids, lengths):
        return decoding.generate(config, w, ids, lengths, new)

    def arguments(change):
        def made():
            built = model.build(jax.random.key(0))
            built = fk.transforms.quantize(built, quantization) if quantization else built
            lengths = width - jnp.arange(rows, dtype="int32")
            return change(built), integers((rows, width), config.vocab_size), lengths

        return made

    def side(function, change):
        return Side(function, arguments(change), seen=lambda result: result[0])

    others = {"jax.numpy": side(hand, decoding.arrays_of)}
    return Row(side(ours, lambda built: built), others, 0.0, trips=new)


# layers: a score and its gradients


def layer_row(layer, shape, copies=1, masked=False, policy="float32"):
    """A training call of a layer, and the gradients of a weighted sum of its output."""
    dtype = "float32" if policy == "float32" else "bfloat16"
    options = {}
    if masked:
        lengths = jax.random.randint(jax.random.key(3), (shape[0], 1), shape[1] // 2, shape[1] + 1)
        options["mask"] = jnp.arange(shape[1]) < lengths

    def call(made, state, x):
        out = made.apply(*[x] * copies, state=state, training=True, **options)
        return out.value, out.updates

    def hand(library, w, state, x):
        return by_hand.forward(layer, w, state, library, *[x] * copies, **options)

    def side(function, weights):
        def scored(weights, x, state, factors):
            y, updates = function(weights, state, x)
            # the output is a result: XLA would fuse some layers with the score
            return (y.astype("float32") * factors).sum(), (updates, y)

        def arguments():
            x = normal(shape, dtype)
            made = layer.build(jax.random.key(0), *[x] * copies)
            state = made.init_state(*[x] * copies)
            factors = normal(call(made, state, x)[0].shape, seed=5)
            return weights(made), x, state, factors

        def seen(result):
            (value, _), (grads, x) = result
            named = grads if isinstance(grads, dict) else weights_of(grads)
            return [value, x, *(named[path] for path in sorted(named))]

        return Side(jax.value_and_grad(scored, (0, 1), has_aux=True), arguments, seen=seen)

    others = in_libraries(lambda library: side(functools.partial(hand, library), weights_of))
    tolerance = 1e-4 if dtype == "float32" else 5e-2
    return Row(side(call, lambda made: made), others, tolerance)


def image(small, channels=128):
    return (2, 4, 4, 16) if small else (64, 32, 32, channels)


def attention(small, policy="float32"):
    shape, heads = ((2, 8, 16), 2) if small else ((4, 512, 512), 8)
    layer = layers.MultiHeadAttention(heads, shape[-1] // heads, dtype=policy)
    return layer_row(layer, shape, 2, policy=policy)


def sequence(small):
    return (2, 6, 4) if small else (32, 128, 256)


def big(name):
    return lambda s: (forward_only if s else training)(application(name, s))


MIXED = "mixed_bfloat16"
# `(small) -> Row`; the rows of a mesh take the devices of a slice of 8 as well
ROWS: dict[str, Callable[..., Row]] = {
    "MLP": lambda s: training(mlp(s)),
    "ConvNet": lambda s: training(convnet(s)),
    "ConvNet, mixed_bfloat16": lambda s: training(convnet(s, MIXED)),
    "ResNet50": big("ResNet50"),
    "MobileNetV2": big("MobileNetV2"),
    "U-Net": lambda s: training(unet(s)),
    "transformer": lambda s: training(transformer(s)),
    "transformer, mixed_bfloat16": lambda s: training(transformer(s, MIXED)),
    "transformer, T 4,096": lambda s: training(transformer(s, "float32", 1, 4096, 1)),
    "transformer, T 4,096, mixed_bfloat16": lambda s: training(transformer(s, MIXED, 1, 4096, 1)),
    "ViT block": lambda s: training(vit(s)),
    "Embedding, 100,000 rows": lambda s: training(words(s)),
    "BatchNormalization": lambda s: layer_row(layers.BatchNormalization(), image(s)),
    "LayerNormalization": lambda s: layer_row(
        layers.LayerNormalization(), (2, 4, 16) if s else (8, 512, 512)
    ),
    "GroupNormalization": lambda s: layer_row(layers.GroupNormalization(8), image(s)),
    "GlobalMaxPooling2D": lambda s: layer_row(layers.GlobalMaxPooling2D(), image(s)),
    "Softmax": lambda s: layer_row(layers.Softmax(), (2, 3, 8) if s else (32, 512, 512)),
    "MultiHeadAttention": attention,
    "MultiHeadAttention, mixed_bfloat16": lambda s: attention(s, MIXED),
    "LSTM, mask": lambda s: layer_row(layers.LSTM(4 if s else 256), sequence(s), masked=True),
    "GRU, mask": lambda s: layer_row(layers.GRU(4 if s else 256), sequence(s), masked=True),
    "ConvLSTM2D": lambda s: layer_row(
        layers.ConvLSTM2D(4 if s else 32, 3, padding="same"),
        (2, 3, 5, 5, 2) if s else (8, 8, 32, 32, 16),
    ),
    "softmax, cross-entropy": softmax_loss,
    "trainer.step, MLP": lambda s: with_trainer(mlp(s)),
    "trainer.step, transformer": lambda s: with_trainer(transformer(s)),
    "fit, MLP": lambda s: looped(mlp(s), pure=False),
    "fit, ConvNet": lambda s: looped(convnet(s), pure=False),
    "Trainer.run, MLP": lambda s: looped(mlp(s), pure=True),
    "LoRA": lora,
    "QLoRA, int8": lambda s: lora(s, "int8"),
    "QLoRA, int4": lambda s: lora(s, "int4"),
    "generate, prefill": lambda s: generating(s, 1),
    "generate, 32 tokens": lambda s: generating(s, 4 if s else 32),
    "generate, 32 tokens, int8": lambda s: generating(s, 4 if s else 32, "int8"),
    "generate, 32 tokens, int4": lambda s: generating(s, 4 if s else 32, "int4"),
    **{f"mesh of 8, {kind}": functools.partial(on_mesh, kind) for kind in MESHES},
}
