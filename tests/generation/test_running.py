"""Decoding in bounded calls: caches that grow, limits without a cost, signals."""

import signal
import time

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from fkeras.generation import running
from tests.support import language_models

PROMPTS = [[1, 2, 3, 4, 5], [7, 3]]
WINDOW = fk.masks.Causal() & fk.masks.Window(11)


def _models():
    """Models and options of `generate`, each with caches that grow in another way."""
    sampler = samplers.Chain(samplers.Temperature(0.8), samplers.RepetitionPenalty(1.2))
    cached = language_models.cached(depth=1)
    return {
        "cache": (cached, {"sampler": sampler, "key": jax.random.key(0)}),
        # from slots of a text to a ring
        "ring": (language_models.cached(depth=1, mask=WINDOW), {}),
        "draft": (cached, {"draft": (language_models.cached(4, depth=1), None), "draft_tokens": 3}),
        "beam": (cached, {"sampler": samplers.Beam(2)}),
        "no cache": (language_models.uncached(), {}),
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind",
    [
        "ring",
        "draft",
        *(pytest.param(k, marks=pytest.mark.exhaustive) for k in ("cache", "beam", "no cache")),
    ],
)
def test_tokens_do_not_depend_on_the_growth_of_caches(kind, monkeypatch):
    model, options = _models()[kind]
    expected = fk.generate(model, None, PROMPTS, max_new_tokens=28, **options)
    monkeypatch.setattr(running, "_FIRST", 2)
    monkeypatch.setattr(running, "_POWERS", 2)
    monkeypatch.setattr(running, "_LEAST", (8, 8))
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=28, **options)
    assert generated.tokens.tolist() == expected.tokens.tolist()
    assert generated.tokens.shape == (2, 28)
    if kind != "no cache":
        # the state has all tokens, and room for two more
        one = [
            fk.generate(model, g.state, [[5], [5]], max_new_tokens=1) for g in (generated, expected)
        ]
        assert one[0].tokens.tolist() == one[1].tokens.tolist()


@pytest.mark.exhaustive
def test_a_large_limit_costs_nothing_before_its_use():
    model = language_models.bigram()
    free = fk.generate(model, None, [[1], [2]], max_new_tokens=9)
    end = int(free.tokens[0, 2])
    expected = fk.generate(model, None, [[1]], max_new_tokens=9, end_ids=end)
    generated = fk.generate(model, None, [[1]], max_new_tokens=10**15, end_ids=end)
    assert generated.lengths.tolist() == expected.lengths.tolist()
    assert generated.tokens.shape == (1, 1 << 16)
    assert generated.tokens[:, :9].tolist() == expected.tokens.tolist()
    compiled = jax.jit(lambda ids: fk.generate(model, None, ids, max_new_tokens=10**9).tokens)
    with pytest.raises(ValueError, match="at most 1048576 for max_new_tokens inside jax.jit"):
        compiled(np.array([[1]]))


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="no signal of a timer")
# Python ignores an exception in a callback of its garbage collector, and pytest warns of that
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_interrupts():
    model = language_models.bigram()
    raised = []

    def stop(number, frame):
        raised.append(time.monotonic())
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        fk.generate(model, None, [[1]], max_new_tokens=2000)
        # again and again, as an ignored exception stops nothing
        signal.setitimer(signal.ITIMER_REAL, 0.3, 0.3)
        start = time.monotonic()
        with pytest.raises((KeyboardInterrupt, ValueError)) as caught:
            fk.generate(model, None, [[1]], max_new_tokens=10**9)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    # JAX raises a ValueError from an exception that a comparison of metadata raises
    error = caught.value
    assert any(isinstance(e, KeyboardInterrupt) for e in (error, error.__cause__))
    assert raised[0] - start < 3.0
