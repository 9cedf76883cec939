"""Sentence vectors of BERT: which sentences of a list mean something similar.

`python examples/sentence_similarity.py FOLDER` reads a folder of sentence-transformers, such as
all-MiniLM-L6-v2. Without a folder the program reads a tiny checkpoint with random weights, which shows
the calls but knows no language.
"""

import argparse
import pathlib

import numpy as np

import fkeras as fk

fk.utils.cache_programs()  # the second start compiles nothing
TINY = pathlib.Path(__file__).parents[1] / "tests/pretrained/data/bert_sentence"
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default=TINY)
parser.add_argument("--short", action="store_true")
loaded = fk.pretrained.load(parser.parse_args().folder, dtype="float32")
assert loaded.tokenizer, "the folder has no tokenizer.json"

sentences = [
    "The cat sleeps on the mat.",
    "A small dog sat under the tree.",
    "It was a cold day in winter.",
    "The night was dark, and rain fell.",
]
ids = [loaded.tokenizer.encode(sentence) for sentence in sentences]
length = max(map(len, ids))
padded = np.array([row + [0] * (length - len(row)) for row in ids], "int32")
mask = np.array([[True] * len(row) + [False] * (length - len(row)) for row in ids])

vectors = np.asarray(loaded.model(padded, mask=mask)["sentence"])  # unit length
for sentence, similarities in zip(sentences, vectors @ vectors.T, strict=True):
    print(" ".join(f"{value:5.2f}" for value in similarities), " ", sentence)
