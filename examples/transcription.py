"""Speech to text by Whisper: greedy decoding with a cache.

`python examples/transcription.py FOLDER` reads a folder such as whisper-tiny.en, and transcribes a
synthesised tone; put your recording into `sound`. Without a folder the program reads a tiny checkpoint
with random weights and without a tokenizer: it prints ids.
"""

import argparse
import pathlib

import numpy as np

import fkeras as fk

fk.utils.cache_programs()  # the second start compiles nothing
TINY = pathlib.Path(__file__).parents[1] / "tests/pretrained/data/whisper"
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default=TINY)
parser.add_argument("--short", action="store_true")
loaded = fk.pretrained.load(parser.parse_args().folder, dtype="float32")
config = loaded.config
assert isinstance(config, fk.pretrained.WhisperConfig), "expected a folder of Whisper"

seconds = np.arange(6400) / 16000
sound = np.sin(2 * np.pi * (300 + 900 * seconds) * seconds) * np.exp(-2 * seconds)
features = loaded.processor(sound, sampling_rate=16000)

sampler = fk.samplers.Chain(
    fk.samplers.SuppressedIds(config.never),
    fk.samplers.SuppressedIds(config.never_first, first_only=True),
    fk.samplers.Greedy(),
)
# start of a text, no timestamps
generated = fk.generate(
    loaded.model, loaded.state, [config.prompt()], max_new_tokens=16, sampler=sampler,
    end_ids=config.end_ids, inputs=features,
)  # fmt: skip
tokens = generated.tokens[0, : generated.lengths[0]].tolist()
print(loaded.tokenizer.decode(tokens) if loaded.tokenizer else tokens)
