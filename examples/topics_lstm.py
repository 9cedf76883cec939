"""A masked LSTM on text: predicts the chapter of a sentence in Python's documentation.

The text is `pydoc_data.topics` of the standard library.
"""

import argparse
import pydoc_data.topics
import re

import jax
import numpy as np

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

CHAPTERS = ("debugger", "formatstrings", "import", "string-methods", "compound", "typesseq-mutable")


def sentences():
    """Yields `(words, chapter number)` for each different sentence of 6 words or more."""
    seen = set()
    for number, chapter in enumerate(CHAPTERS):
        for sentence in re.split(r"(?<=[.:])\s+", pydoc_data.topics.topics[chapter]):
            words = tuple(re.findall(r"[a-z_]+", sentence.lower()))
            if len(words) >= 6 and words not in seen:
                seen.add(words)
                yield words, number


def encode(texts, vocabulary, length):
    """Returns word ids (n, length), with 0 for padding and 1 for unknown words."""
    ids = np.zeros((len(texts), length), "int32")
    for row, words in zip(ids, texts, strict=True):
        word_ids = [vocabulary.get(word, 1) for word in words[:length]]
        row[: len(word_ids)] = word_ids
    return ids


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    pairs = list(sentences())
    order = np.random.default_rng(0).permutation(len(pairs))
    texts, labels = zip(*(pairs[i] for i in order), strict=True)
    cut = int(0.8 * len(texts))
    words, counts = np.unique([w for text in texts[:cut] for w in text], return_counts=True)
    vocabulary = {str(w): i + 2 for i, w in enumerate(words[counts >= 2])}
    ids, labels = encode(texts, vocabulary, 40), np.array(labels, "int32")
    print(f"{len(ids)} sentences, {len(vocabulary)} words, {len(CHAPTERS)} chapters")

    word_ids = fk.Input((40,), dtype="int32", name="words")
    x = layers.Embedding(len(vocabulary) + 2, 32, mask_zero=True)(word_ids)
    x = layers.Dropout(0.3)(x)
    x = layers.Bidirectional(layers.LSTM(32))(x)  # the mask makes the LSTM skip padding
    x = layers.Dropout(0.3)(x)
    model = fk.Model(word_ids, layers.Dense(len(CHAPTERS), activation="softmax")(x))
    trainer = fk.Trainer(
        optimizer=fk.optimizers.Adam(5e-3),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    run = trainer.init(model, jax.random.key(0))
    run, _ = trainer.fit(
        run,
        ids[:cut],
        labels[:cut],
        epochs=1 if short else 12,
        batch_size=32,
        validation_data=(ids[cut:], labels[cut:]),
    )
    logs = trainer.evaluate(run, ids[cut:], labels[cut:], verbose=0)
    majority = np.bincount(labels[cut:]).max() / len(labels[cut:])
    print(f"test accuracy {logs['accuracy']:.2%}; {majority:.2%} for the largest chapter alone")


if __name__ == "__main__":
    main()
