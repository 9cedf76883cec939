"""A miniature GPT: a causal transformer that learns Python's documentation and continues a sentence.

The text is `pydoc_data.topics` of the standard library. At each position the model predicts the next
word from the words up to this position.
"""

import argparse
import math
import pydoc_data.topics
import re
import time

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers, ops

fk.utils.cache_programs()  # the second start compiles nothing

LENGTH, WORDS = 40, 2_000


def standardize(texts):
    """Returns texts in lower case with spaces around punctuation marks, which are words of their own."""
    rows = [" ".join(re.findall(r"\w+|[^\w\s]", str(text).lower())) for text in texts.ravel()]
    return np.array(rows).reshape(texts.shape)


class TokenAndPosition(fk.Model):
    """Adds the embeddings of words and positions."""

    width: int

    def call(self, ids):
        positions = layers.Embedding(LENGTH, self.width)(ops.arange(LENGTH))
        return layers.Embedding(WORDS, self.width)(ids) + positions


class Block(fk.Model):
    """Transformer block: causal attention and a feed-forward network with residual connections."""

    num_heads: int
    ff_dim: int
    rate: float = 0.1

    def call(self, x):
        width = x.shape[-1]
        attention = layers.MultiHeadAttention(self.num_heads, width // self.num_heads)
        y = layers.Dropout(self.rate)(attention(x, x, use_causal_mask=True))
        x = layers.LayerNormalization(epsilon=1e-6)(x + y)
        y = layers.Dense(width)(layers.Dense(self.ff_dim, activation="relu")(x))
        return layers.LayerNormalization(epsilon=1e-6)(x + layers.Dropout(self.rate)(y))


@jax.jit
def continue_text(model, ids, count, key):
    """Continues a text of `count` words; each new word is drawn from the ten most probable words."""

    def append(position, ids):
        # padding after the last word has no effect, since the attention is causal
        logits = model(ids[None])[0, position - 1]
        logits = logits.at[:2].set(-jnp.inf)  # exclude padding (0) and unknown words (1)
        top_logits, top_ids = jax.lax.top_k(logits, 10)
        rank = jax.random.categorical(jax.random.fold_in(key, position), top_logits)
        return ids.at[position].set(top_ids[rank])

    return jax.lax.fori_loop(count, LENGTH, append, ids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    begin = time.perf_counter()
    topics = list(pydoc_data.topics.topics.values())
    vectorize = layers.TextVectorization(max_tokens=WORDS, standardize=standardize).adapt(topics)
    stream = np.concatenate([row[row > 0] for row in np.asarray(vectorize(topics))])
    cut = int(0.9 * len(stream))
    # a window has one word more than the model's input: targets are the inputs, shifted by one word
    starts = np.arange(0, len(stream) - LENGTH - 1, LENGTH)
    windows = stream[starts[:, None] + np.arange(LENGTH + 1)]
    train, test = windows[starts + LENGTH < cut], windows[starts >= cut]
    if short:
        train, test = train[:64], test[:64]
    print(f"{len(stream)} words, {len(train)} training windows")

    words = fk.Input((LENGTH,), dtype="int32", name="words")
    x = TokenAndPosition(width=64 if short else 128)(words)
    x = Block(num_heads=2, ff_dim=64 if short else 256)(x)
    model = fk.Model(words, layers.Dense(WORDS, name="next_word")(x))
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer(fk.optimizers.Adam(2e-3), loss)
    run = trainer.init(model, jax.random.key(0))

    vocabulary = vectorize.get_vocabulary()
    prompt = ["the", "value", "of", "the"]
    ids = np.zeros(LENGTH, "int32")
    ids[: len(prompt)] = [vocabulary.index(word) for word in prompt]

    def show(epoch, run, logs):
        key = jax.random.key(epoch)
        text = [vocabulary[i] for i in continue_text(run.model, ids, len(prompt), key)]
        print(" ", " ".join(text))

    stop = fk.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
    run, _ = trainer.fit(
        run,
        train[:, :-1],
        train[:, 1:],
        epochs=1 if short else 8,
        validation_data=(test[:, :-1], test[:, 1:]),
        callbacks=[stop, fk.callbacks.LambdaCallback(on_epoch_end=show)],
        verbose=2,
    )
    logs = trainer.evaluate(run, test[:, :-1], test[:, 1:], verbose=0)
    # baseline: the loss of a model that predicts the frequencies of the training words
    counts = np.bincount(stream[:cut], minlength=WORDS) + 1
    baseline = -np.log(counts / counts.sum())[test[:, 1:]].mean()
    print(
        f"test perplexity {math.exp(logs['loss']):.0f}; {math.exp(baseline):.0f} for the words' "
        f"frequencies alone; {time.perf_counter() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
