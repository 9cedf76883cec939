"""CPU seconds of the first call of `fk.generate` for SmolLM2-135M, and products of one row by two ways.

    python benchmarks/first_tokens.py [rounds]

The model has the configuration of SmolLM2-135M and random weights, and is saved and loaded: the weights of loaded
blocks lie side by side, and decoding computes the blocks in a loop. Each call after the first compiles what
it needs: nothing for another `max_new_tokens`. A product of one row is compiled as a kernel of its own or,
within the limits in `fkeras/nn/cpu/limits.py`, as a convolution. The table has seconds for compiling 20 products
of each kind, and the ratio of their times. Goal: at most 4 s of CPU for the first call on an idle machine.
"""

import sys
import tempfile
import time

import meter  # before jax

# isort: split
import jax
import numpy as np

import fkeras as fk
from fkeras.nn.cpu.limits import row_is_convolution
from fkeras.nn.cpu.products import RowProduct

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
CONFIG = fk.pretrained.LlamaConfig(
    vocab_size=49_152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
)
#: length of the prompt, and number of new tokens
CALLS = {"first call": (32, 1), "again": (32, 1), "other limit": (32, 9), "other prompt": (100, 1)}
SIZES = ((576, 192), (576, 576), (1536, 576), (576, 1408), (2048, 2080), (576, 1536), (2048, 2048))
COUNT, STEPS = 20, 20
NUMBERS = np.random.default_rng(0)


def loaded_model():
    """Returns a model from a folder with random weights."""

    def leaf(spec):
        is_scale = len(spec.shape) == 1
        return np.ones(spec.shape, spec.dtype) if is_scale else drawn(*spec.shape) / 25

    specs = jax.eval_shape(fk.pretrained.build(CONFIG).build, jax.random.key(0))
    with tempfile.TemporaryDirectory() as folder:
        fk.pretrained.save(folder, jax.tree.map(leaf, specs), None, CONFIG)
        return fk.pretrained.load(folder).model


def drawn(*shape):
    return NUMBERS.standard_normal(shape, "float32")


def compare_products(size):
    kernels, x = [jax.device_put(drawn(*size)) for _ in range(COUNT)], drawn(1, 1, size[0])
    contenders, seconds, form = {}, [], RowProduct(1)
    for name, product in (("products", form.transformed), ("form", form.fast)):

        def chain(kernels, x, product=product):
            def step(_, x):
                # each product needs the one before
                for kernel in kernels:
                    x = x + 1e-9 * product(x, kernel).sum()
                return x

            return jax.lax.fori_loop(0, STEPS, step, x)

        start = time.process_time()
        program = jax.jit(chain).lower(kernels, x).compile()
        seconds.append(time.process_time() - start)
        contenders[name] = lambda program=program: program(kernels, x).block_until_ready()
    found = row_is_convolution("float32", jax.ShapeDtypeStruct(size, "float32"))
    title = f"{size[0]} x {size[1]}, compiled in {seconds[0]:.2f} and {seconds[1]:.2f} s"
    meter.report(f"{title}{', a convolution' if found else ''}", meter.compare(contenders, ROUNDS))


def main():
    model = loaded_model()
    for name, (length, new) in CALLS.items():
        ids = NUMBERS.integers(0, CONFIG.vocab_size, (1, length))
        start = time.process_time()
        with meter.count_compiles() as compiled:
            jax.block_until_ready(fk.generate(model, None, ids, max_new_tokens=new).tokens)
        seconds = time.process_time() - start
        print(f"{name}: {seconds:.2f} s of CPU, {len(compiled)} programs compiled")
    for size in SIZES:
        compare_products(size)


main()
