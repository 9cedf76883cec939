"""Plans against compiled steps: peak memory and FLOPs of seventeen models, and the time of the plans.

    python benchmarks/plan.py              # all models
    python benchmarks/plan.py lstm large   # some of them

Peak memory is arguments + results - aliases + temporary arrays of `memory_analysis()` of the compiled
step on the CPU, without and with donation, with JAX's usual options: plans compile with lower effort. FLOPs are those of XLA's cost analysis of the program before
optimization, which counts the body of a loop once: rows with loops compare with unrolled networks. The last column is the processor time of the plan. Goals:
memory within 0.1 %, FLOPs within 5 %, the plan of seven billion weights within 15 s of CPU and 1 GB.
"""

import dataclasses
import resource
import sys
import time

import jax

import fkeras as fk
from fkeras import layers
from fkeras.transforms.remat import compiler_options

LOGITS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with a batch and a trainer.

    Attributes:
        model: the model, not built.
        x: shape of the inputs.
        y: shape of the targets.
        trainer: the trainer.
        ids: whether the inputs are integers.
    """

    model: fk.Model
    x: tuple
    y: tuple
    trainer: fk.Trainer
    ids: bool = False

    @property
    def batch(self):
        classes = self.trainer.loss == LOGITS
        x = jax.ShapeDtypeStruct(self.x, "int32" if self.ids else "float32")
        return x, jax.ShapeDtypeStruct(self.y, "int32" if classes else "float32")


def trainer(optimizer="adam", loss=LOGITS, **options):
    return fk.Trainer(optimizer, loss, **options)


def mlp():
    hidden = [layers.Dense(512, activation="relu") for _ in range(3)]
    model = fk.Sequential([fk.Input((784,)), *hidden, layers.Dense(10)])
    return Case(model, (4096, 784), (4096,), trainer(metrics=["accuracy"]))


def cnn():
    x = h = fk.Input((32, 32, 3))
    for filters in (32, 64):
        h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
        h = layers.MaxPooling2D()(h)
    model = fk.Model(x, layers.Dense(10)(layers.Dropout(0.5)(layers.Flatten()(h))))
    return Case(model, (256, 32, 32, 3), (256,), trainer(metrics=["accuracy"]))


def resnet():
    def convolution(h, filters, kernel, strides=1):
        return layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False)(h)

    x = fk.Input((32, 32, 3))
    h = convolution(x, 16, 3)
    for stage, filters in enumerate((16, 32, 64)):
        strides = 1 + (stage > 0)
        shortcut = h if stage == 0 else convolution(h, filters, 1, strides)
        h = layers.BatchNormalization()(convolution(h, filters, 3, strides))
        h = layers.BatchNormalization()(convolution(layers.Activation("relu")(h), filters, 3))
        h = layers.Activation("relu")(layers.Add()([h, shortcut]))
    model = fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))
    sgd = fk.optimizers.SGD(0.1, momentum=0.9)
    return Case(model, (128, 32, 32, 3), (128,), trainer(sgd))


def blocks(count, width, length, vocabulary, heads, hidden, dropout=0.0, activation="gelu"):
    x = fk.Input((length,), dtype="int32")
    h = layers.Embedding(vocabulary, width)(x)
    for _ in range(count):
        a = layers.LayerNormalization()(h)
        a = layers.MultiHeadAttention(heads, width // heads)(a, a, use_causal_mask=True)
        h = layers.Add()([h, layers.Dropout(dropout)(a) if dropout else a])
        f = layers.Dense(hidden, activation=activation)(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(width)(f)])
    return fk.Model(x, layers.Dense(vocabulary)(layers.LayerNormalization()(h)))


def transformer(rows=16, depth="unroll", **options):
    model = blocks(4, 128, 64, 1000, 4, 512, dropout=0.1)
    return Case(model, (rows, 64), (rows, 64), trainer(depth=depth, **options), ids=True)


def transformer_scan(unroll=False):
    return transformer(16, "unroll" if unroll else "scan")


def transformer_scan_full(unroll=False):
    return transformer(32, "unroll" if unroll else "scan", remat="full")


def transformer_dots():
    return transformer(32, remat="dots")


def transformer_full():
    return transformer(32, remat="full")


def lstm(unroll=False):
    x = fk.Input((50, 32))
    h = layers.LSTM(128, return_sequences=True, unroll=unroll)(x)
    model = fk.Model(x, layers.Dense(5)(layers.LSTM(64, unroll=unroll)(h)))
    return Case(model, (64, 50, 32), (64, 5), trainer("rmsprop", "mse"))


def text():
    x = fk.Input((200,), dtype="int32")
    h = layers.Conv1D(128, 5, activation="relu")(layers.Embedding(5000, 64)(x))
    model = fk.Model(x, layers.Dense(1)(layers.GlobalMaxPooling1D()(h)))
    loss = fk.losses.BinaryCrossentropy(from_logits=True)
    return Case(model, (64, 200), (64, 1), trainer(loss=loss), ids=True)


def unet():
    x = h = fk.Input((64, 64, 3))
    skips = []
    for filters in (16, 32):
        h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
        skips.append(h)
        h = layers.MaxPooling2D()(h)
    h = layers.Conv2D(64, 3, padding="same", activation="relu")(h)
    for filters, skip in zip((32, 16), reversed(skips), strict=True):
        h = layers.Concatenate()([layers.Conv2DTranspose(filters, 2, strides=2)(h), skip])
        h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
    model = fk.Model(x, layers.Conv2D(1, 1)(h))
    loss = fk.losses.BinaryCrossentropy(from_logits=True)
    return Case(model, (32, 64, 64, 3), (32, 64, 64, 1), trainer(loss=loss))


def autoencoder():
    sizes = ((256, "relu"), (32, None), (256, "relu"), (784, "sigmoid"))
    hidden = [layers.Dense(units, activation=name) for units, name in sizes]
    model = fk.Sequential([fk.Input((784,)), *hidden])
    return Case(model, (2048, 784), (2048, 784), trainer("sgd", "mse"))


def mixed():
    x = h = fk.Input((512,))
    for _ in range(4):
        h = layers.Dense(512, activation="gelu", dtype="mixed_bfloat16")(h)
        h = layers.LayerNormalization(dtype="mixed_bfloat16")(h)
    model = fk.Model(x, layers.Dense(10, dtype="float32")(h))
    return Case(model, (2048, 512), (2048,), trainer("adamw"))


def gru(unroll=False):
    x = fk.Input((40, 16))
    first = layers.GRU(48, return_sequences=True, unroll=unroll)
    h = layers.GRU(32, unroll=unroll)(layers.Bidirectional(first)(x))
    model = fk.Model(x, layers.Dense(7)(h))
    return Case(model, (96, 40, 16), (96,), trainer())


def separable():
    x = h = fk.Input((48, 48, 3))
    for filters in (24, 48, 96):
        h = layers.SeparableConv2D(filters, 3, strides=2, padding="same")(h)
        h = layers.Activation("swish")(layers.BatchNormalization()(h))
    model = fk.Model(x, layers.Dense(20)(layers.GlobalAveragePooling2D()(h)))
    return Case(model, (64, 48, 48, 3), (64,), trainer())


def vit():
    x = fk.Input((32, 32, 3))
    h = layers.Reshape((64, 96))(layers.Conv2D(96, 4, strides=4)(x))
    for _ in range(3):
        a = layers.LayerNormalization()(h)
        h = layers.Add()([h, layers.MultiHeadAttention(6, 16)(a, a)])
        f = layers.Dense(384, activation="relu")(layers.LayerNormalization()(h))
        h = layers.Add()([h, layers.Dense(96)(f)])
    model = fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling1D()(h)))
    return Case(model, (48, 32, 32, 3), (48,), trainer("adamw", depth="unroll"))


def vgg():
    x = h = fk.Input((64, 64, 3))
    for filters in (32, 64, 128):
        for _ in range(2):
            h = layers.Conv2D(filters, 3, padding="same", activation="relu")(h)
        h = layers.AveragePooling2D()(h)
    h = layers.Dense(256, activation="relu")(layers.Flatten()(h))
    model = fk.Model(x, layers.Dense(100)(h))
    return Case(model, (32, 64, 64, 3), (32,), trainer("sgd"))


MODELS = (mlp, cnn, resnet, transformer, transformer_scan, transformer_dots, transformer_full, lstm)
MODELS += (text, unet, autoencoder, mixed, gru, separable, vit, vgg, transformer_scan_full)


def lowered(case, donate=False):
    """The step before compilation."""
    trainer = case.trainer
    key = jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))
    run = jax.eval_shape(lambda key: trainer.init(case.model, key), key)
    step = jax.jit(
        lambda run, batch: trainer.step(run, batch),
        donate_argnums=(0,) if donate else (),
        compiler_options=compiler_options() if trainer.remat else None,
    )
    return step.lower(run, case.batch)


def compiled(case, donate):
    """Peak bytes and FLOPs of XLA's program for the step."""
    program = lowered(case, donate)
    memory = program.compile().memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes
    peak += memory.temp_size_in_bytes - memory.alias_size_in_bytes
    return peak, program.cost_analysis()["flops"]


def check(make):
    case = make()
    ratios, texts, flops, seconds = [], [], 0.0, 0.0
    for donate in (False, True):
        start = time.process_time()
        plan = fk.plan(case.model, case.batch, case.trainer, donate=donate)
        seconds = time.process_time() - start
        peak, flops = compiled(case, donate)
        ratios.append(plan.peak / peak)
        texts.append(f"{plan.peak / 1e6:7.1f} of {peak / 1e6:7.1f} MB ({ratios[-1]:.3f})")
    if make in (lstm, gru, transformer_scan, transformer_scan_full):
        case = make(unroll=True)
        flops = lowered(case).cost_analysis()["flops"]
    operations = plan.flops / flops
    print(
        f"{make.__name__:17s} {texts[0]}, donated {texts[1]}, FLOPs {operations:.3f}, {seconds:.1f} s",
        flush=True,
    )
    return (*ratios, operations)


def large():
    """Plans a transformer of seven billion weights, without allocating weights."""
    start = time.process_time()
    model = blocks(32, 4096, 2048, 32000, 32, 17600, activation="silu")
    batch = (jax.ShapeDtypeStruct((4, 2048), "int32"),) * 2
    plan = fk.plan(model, batch, trainer(remat="full"))
    seconds = time.process_time() - start
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    count = plan.weights / 4e9
    print(
        f"large: {count:.2f} billion weights, peak {plan.peak / 1e9:.0f} GB, {plan.flops:.3g} FLOPs"
    )
    print(f"large: {seconds:.1f} s of CPU, {most:.2f} GB resident")
    return seconds, most


def main(names):
    # first, so that the resident memory is that of the plan
    if not names or "large" in names:
        seconds, most = large()
        print(f"  goal: 15 s and 1 GB: {'holds' if seconds < 15 and most < 1 else 'FAILS'}")
    chosen = [make for make in MODELS if not names or make.__name__ in names]
    rows = [check(make) for make in chosen]
    if rows:
        memory = max(abs(ratio - 1) for row in rows for ratio in row[:2])
        flops = max(abs(row[2] - 1) for row in rows)
        verdict = "holds" if memory <= 0.001 and flops <= 0.05 else "FAILS"
        print(
            f"largest error: memory {memory:.1%}, FLOPs {flops:.1%}; goal 0.1 % and 5 %: {verdict}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
