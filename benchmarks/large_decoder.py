"""Decoding of a quantized model of 1 billion weights: the share of the memory's bandwidth that is reached.

    python benchmarks/large_decoder.py [quantization] [rounds]

The model has the configuration of Llama 3.2 1B and random codes; its floats never exist. A token of a single
row reads each weight once, so a token takes at least the time to read the weights. The rate is compared with that
of `numpy.copyto` in two ways: by the bytes that a copy reads and writes, which the memory moves, and by the bytes
that are copied. Both are times of the clock, the best of several rounds: run on an idle machine. Goal: .6 of the
bytes that a copy reads and writes, with int4.
"""

import sys
import time

import jax
import numpy as np

import fkeras as fk

QUANTIZATION = sys.argv[1] if len(sys.argv) > 1 else "int4"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
CONFIG = fk.pretrained.LlamaConfig(
    vocab_size=128_256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=True,
)
PROMPT, FEW, MANY = 16, 2, 18
# of int8 scales, by which codes are divided, and of those of blocks of 128 weights of 4 bits
SCALES = {"int8": 2000.0, "int4": 0.003}


def random_model():
    """A model of random codes, whose activations stay finite."""
    network = fk.pretrained.build(CONFIG)
    specs = jax.eval_shape(
        lambda key: fk.quantize(network.build(key), QUANTIZATION), jax.random.key(0)
    )
    numbers = np.random.default_rng(0)

    def leaf(path, spec):
        name = str(path[-1]).rpartition("/")[2]
        if spec.dtype == "int8" and "zero" not in name:
            return numbers.integers(-128, 128, spec.shape, "int8")
        if "g_idx" in name:
            return (np.arange(spec.shape[0]) // 128).astype(spec.dtype)
        value = 0 if "zero" in name else SCALES[QUANTIZATION] if "_scale" in name else 1
        return np.full(spec.shape, value, spec.dtype)

    return jax.device_put(jax.tree_util.tree_map_with_path(leaf, specs))


def seconds(function):
    """The time of the clock, and that of the CPUs."""
    start = time.perf_counter(), time.process_time()
    jax.block_until_ready(function())
    return time.perf_counter() - start[0], time.process_time() - start[1]


def main():
    model = random_model()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(model))
    ids = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (1, PROMPT))

    def generate(count):
        return fk.generate(model, None, ids, max_new_tokens=count)

    start = time.process_time()
    state = generate(FEW).state
    print(f"first call: {time.process_time() - start:.1f} s of CPU")
    places = state["block_0"]["attention"]["keys"].shape[1]
    cache = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / places
    source, target = np.ones(size, "int8"), np.empty(size, "int8")
    # the target's pages exist before the first round
    np.copyto(target, source)
    copies, few, many = [], [], []
    for _ in range(ROUNDS):
        copies.append(seconds(lambda: np.copyto(target, source)))
        few.append(seconds(lambda: generate(FEW)))
        many.append(seconds(lambda: generate(MANY)))
    copy, few, many = ([min(times) for times in zip(*found)] for found in (copies, few, many))
    token, cpu = ((b - a) / (MANY - FEW) for a, b in zip(few, many))
    bandwidth = 2 * size / copy[0]
    print(
        f"weights in {QUANTIZATION}: {size / 1e6:,.0f} MB; caches: {cache / 1e3:.0f} KB for each token"
    )
    print(
        f"token: {token * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of CPU, {size / token / 1e9:.1f} GB of weights per second"
    )
    share = size / token / bandwidth
    print(
        f"copy: {bandwidth / 1e9:.1f} GB per second read and written, share {share:.2f}; "
        f"{bandwidth / 2e9:.1f} GB per second copied, share {2 * share:.2f}"
    )


main()
