"""Sequence to sequence, by characters: reads "535+61" and writes "596".

An LSTM reads the question, and its last states are the first states of the LSTM that writes the
answer. In training the writer receives the right answer so far; afterwards new graphs of the same
layers write one character after another. 97 % of new sums are right, 99 % of the characters.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

CHARACTERS = " 0123456789+="  # the space fills up, and "=" starts an answer
DIGITS = 3
QUESTION, ANSWER = 2 * DIGITS + 1, DIGITS + 1


def encode(texts):
    """One-hot vectors of texts of equal length, (texts, characters, 13)."""
    ids = np.array([[CHARACTERS.index(c) for c in text] for text in texts])
    return np.eye(len(CHARACTERS), dtype="float32")[ids]


def sums(count):
    """Different questions and their answers. A question is reversed, which helps the LSTM."""
    rng, answers = np.random.default_rng(0), {}
    while len(answers) < count:
        # numbers of one, two and three digits are equally frequent
        a, b = (int(rng.integers(0, 10 ** rng.integers(1, DIGITS + 1))) for _ in range(2))
        answers[f"{a}+{b}".ljust(QUESTION)[::-1]] = str(a + b).ljust(ANSWER)
    return list(answers), list(answers.values())


def make_model(units):
    """The model that is trained: question and answer so far -> each next character."""
    question = fk.Input((QUESTION, len(CHARACTERS)), name="question")
    so_far = fk.Input((None, len(CHARACTERS)), name="so_far")
    _, h, c = layers.LSTM(units, return_state=True, name="reader")(question)
    writer = layers.LSTM(units, return_sequences=True, return_state=True, name="writer")
    x, _, _ = writer(so_far, initial_state=[h, c])
    return fk.Model(
        [question, so_far],
        layers.Dense(len(CHARACTERS), activation="softmax", name="character")(x),
    )


def make_solver(model, units):
    """A function from questions to the ids of the answers, with the layers of a trained model."""
    question = fk.Input((QUESTION, len(CHARACTERS)))
    reader = fk.Model(question, model.layers["reader"](question)[1:])
    last, h, c = fk.Input((1, len(CHARACTERS))), fk.Input((units,)), fk.Input((units,))
    x, *states = model.layers["writer"](last, initial_state=[h, c])
    writer = fk.Model([last, h, c], [model.layers["character"](x), *states])

    @jax.jit
    def solve(questions):
        def write(carry, _):
            probabilities, *states = writer(list(carry))
            ids = probabilities.argmax(-1)
            return (jax.nn.one_hot(ids, len(CHARACTERS)), *states), ids[:, 0]

        start = jnp.zeros((len(questions), 1, len(CHARACTERS)))
        start = start.at[..., CHARACTERS.index("=")].set(1)
        _, ids = jax.lax.scan(write, (start, *reader(questions)), length=ANSWER)
        return ids.T

    return solve


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    start, units = time.perf_counter(), (32 if short else 128)
    questions, answers = sums(2_000 if short else 50_000)
    x, y = encode(questions), encode(answers)
    so_far = np.concatenate([encode(["="] * len(y)), y[:, :-1]], axis=1)
    cut, epochs, batch = int(0.9 * len(x)), (1 if short else 8), 128

    schedule = fk.optimizers.schedules.CosineDecay(5e-3, decay_steps=epochs * -(-cut // batch))
    trainer = fk.Trainer(fk.optimizers.Adam(schedule), "categorical_crossentropy", ["accuracy"])
    run = trainer.init(make_model(units), jax.random.key(0))
    run, _ = trainer.fit(
        run,
        [x[:cut], so_far[:cut]],
        y[:cut],
        batch_size=batch,
        epochs=epochs,
        validation_data=([x[cut:], so_far[cut:]], y[cut:]),
    )
    ids = np.asarray(make_solver(run.model, units)(x[cut:]))
    guesses = ["".join(CHARACTERS[i] for i in row) for row in ids]
    for question, guess, answer in list(zip(questions[cut:], guesses, answers[cut:], strict=True))[
        :8
    ]:
        mark = "right" if guess == answer else f"wrong, {answer}"
        print(f"  {question[::-1].strip()} = {guess} ({mark})")
    right = np.mean([guess == answer for guess, answer in zip(guesses, answers[cut:], strict=True)])
    print(f"{right:.1%} of {len(guesses)} new sums are right; {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
