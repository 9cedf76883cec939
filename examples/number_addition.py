"""Sequence to sequence, by characters: reads "535+61" and writes "596".

An LSTM reads the question. Its final states are the initial states of a second LSTM, which writes the
answer. In training the writer receives the correct previous characters (teacher forcing); in
inference new graphs of the same layers generate one character after another.
Measured: 97 % of the test sums and 99 % of their characters are correct.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

CHARACTERS = " 0123456789+="  # the space is the padding, and "=" starts an answer
DIGITS = 3
QUESTION, ANSWER = 2 * DIGITS + 1, DIGITS + 1


def encode(texts):
    """Returns one-hot vectors of texts of equal length: (texts, characters, 13)."""
    ids = np.array([[CHARACTERS.index(c) for c in text] for text in texts])
    return np.eye(len(CHARACTERS), dtype="float32")[ids]


def sums(count):
    """Returns different questions and their answers; reversed questions are easier for the LSTM."""
    rng, answers = np.random.default_rng(0), {}
    while len(answers) < count:
        # uniform over the number of digits first: most numbers below 1,000 have three digits
        a, b = (int(rng.integers(0, 10 ** rng.integers(1, DIGITS + 1))) for _ in range(2))
        answers[f"{a}+{b}".ljust(QUESTION)[::-1]] = str(a + b).ljust(ANSWER)
    return list(answers), list(answers.values())


def make_model(units):
    """Returns the training model: from the question and previous characters to the next characters."""
    question = fk.Input((QUESTION, len(CHARACTERS)), name="question")
    previous = fk.Input((None, len(CHARACTERS)), name="previous")
    _, h, c = layers.LSTM(units, return_state=True, name="reader")(question)
    writer = layers.LSTM(units, return_sequences=True, return_state=True, name="writer")
    x, _, _ = writer(previous, initial_state=[h, c])
    return fk.Model(
        [question, previous],
        layers.Dense(len(CHARACTERS), activation="softmax", name="character")(x),
    )


def make_solver(model, units):
    """Returns a function from questions to answers (character ids), with a trained model's layers."""
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
    previous = np.concatenate([encode(["="] * len(y)), y[:, :-1]], axis=1)
    cut, epochs, batch = int(0.9 * len(x)), (1 if short else 8), 128

    schedule = fk.optimizers.schedules.CosineDecay(5e-3, decay_steps=epochs * -(-cut // batch))
    trainer = fk.Trainer(fk.optimizers.Adam(schedule), "categorical_crossentropy", ["accuracy"])
    run = trainer.init(make_model(units), jax.random.key(0))
    run, _ = trainer.fit(
        run,
        [x[:cut], previous[:cut]],
        y[:cut],
        batch_size=batch,
        epochs=epochs,
        validation_data=([x[cut:], previous[cut:]], y[cut:]),
    )
    ids = np.asarray(make_solver(run.model, units)(x[cut:]))
    predictions = ["".join(CHARACTERS[i] for i in row) for row in ids]
    rows = list(zip(questions[cut:], predictions, answers[cut:], strict=True))
    for question, prediction, answer in rows[:8]:
        verdict = "correct" if prediction == answer else f"wrong: {answer}"
        print(f"  {question[::-1].strip()} = {prediction} ({verdict})")
    accuracy = np.mean([prediction == answer for _, prediction, answer in rows])
    print(
        f"{accuracy:.1%} of {len(rows)} test sums are correct; {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
