"""Loading a pretrained model, against reading the bytes of its file.

    python benchmarks/reading.py [rounds]

A Llama of 30 blocks with random weights, in float32 and in bfloat16. Both sides read the file from the
system's cache. Goal: at most 1.5 times the CPU time of reading.
"""

import pathlib
import sys
import tempfile

import jax
import meter

import fkeras as fk


def main(rounds):
    config = fk.pretrained.LlamaConfig(
        49152, 576, 1536, 30, 9, num_key_value_heads=3, tie_word_embeddings=True
    )
    for dtype in ("float32", "bfloat16"):
        with tempfile.TemporaryDirectory() as folder:
            model = fk.pretrained.build(config).build(jax.random.key(0))
            model = jax.tree.map(lambda array, dtype=dtype: array.astype(dtype), model)
            fk.pretrained.save(folder, model, {}, config)
            del model
            path = pathlib.Path(folder, "model.safetensors")
            contenders = {
                "reading": lambda path=path: len(path.read_bytes()),
                "loading": lambda folder=folder: (
                    jax.block_until_ready(jax.tree.leaves(fk.pretrained.load(folder).model))
                    and None
                ),
            }
            meter.compare(contenders, 1)
            times = meter.compare(contenders, rounds)
            title = f"{path.stat().st_size / 1e6:.0f} MB of {dtype}"
            meter.report(title, times, ("loading", 1.5))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
