"""The recipe of the guide "Fine-tune a language model" for preferences: DPO equals its published formula."""

import re

import jax
import numpy as np
import pytest

import fkeras as fk
from tests.support import language_models
from tests.support.paths import ROOT

PROMPTS = [[1, 2, 3], [7], [3, 9, 2, 2]]
PREFERRED, OTHERS = [[4, 4], [6], [0, 2, 8]], [[5], [1, 9, 9, 10], [3, 3]]
BETA = 0.3


@pytest.fixture(scope="module")
def recipe():
    """The names that the first cell of the guide's section defines."""
    text = (ROOT / "docs/guides/finetune.md").read_text()
    cell = re.search(r"```{code-cell}\n(.*?)```", text, re.DOTALL)[1]
    names = {}
    exec(cell, names)
    return names


def _logprob(model, prompt, answer):
    """The sum of the log-probabilities of an answer, from a call on the text."""
    logits = np.asarray(model(np.array([[*prompt, *answer]], "int32"))[0], np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return sum(logprobs[len(prompt) - 1 + place, token] for place, token in enumerate(answer))


@pytest.mark.exhaustive
def test_the_objective_equals_the_formula(recipe):
    before, model = language_models.cached(depth=1), language_models.cached(1, depth=1)
    data = recipe["preference_data"](before, PROMPTS, PREFERRED, OTHERS)
    out = recipe["prefer"](model, {}, data, None, True, beta=BETA)
    margins = []
    for prompt, winner, loser in zip(PROMPTS, PREFERRED, OTHERS, strict=True):
        gains = [_logprob(model, prompt, a) - _logprob(before, prompt, a) for a in (winner, loser)]
        margins.append(BETA * (gains[0] - gains[1]))
    margins = np.array(margins)
    # equation 7 of Rafailov et al.: -log sigmoid
    np.testing.assert_allclose(out.value, np.log1p(np.exp(-margins)).mean(), rtol=2e-4)
    np.testing.assert_allclose(out.metrics["margin"], margins.mean(), rtol=2e-4)
    np.testing.assert_allclose(out.metrics["accuracy"], (margins > 0).mean())
    # no model has moved yet
    start = recipe["prefer"](before, {}, data, None, True, beta=BETA)
    np.testing.assert_allclose(start.value, np.log(2), rtol=1e-4)


@pytest.mark.exhaustive
def test_a_training_orders_the_pairs(recipe):
    before = language_models.cached(depth=1)
    data = recipe["preference_data"](before, PROMPTS, PREFERRED, OTHERS)
    trainer = fk.Trainer(fk.optimizers.Adam(3e-3), objective=recipe["prefer"])
    run = trainer.init(before, jax.random.key(0))
    run, history = trainer.fit(run, data, epochs=8, batch_size=3, shuffle=False, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    assert history.history["accuracy"][-1] == 1.0
    after = recipe["preference_data"](run.model, PROMPTS, PREFERRED, OTHERS)[2]
    assert (after[:, 0] - after[:, 1] > data[2][:, 0] - data[2][:, 1]).all()
