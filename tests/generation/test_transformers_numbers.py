"""Samplers, settings and beam search against transformers; `tools/references/generation_reference.py` wrote the numbers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from tests.pretrained import checks, option_checks
from tests.support.paths import ROOT

SAMPLERS = {
    "repetition": samplers.RepetitionPenalty(1.3),
    "temperature": samplers.Temperature(0.7),
    "top_k": samplers.TopK(7),
    "top_p": samplers.TopP(0.83),
    "min_p": samplers.MinP(0.07),
    "typical": samplers.Typical(0.6),
}
BEAMS = ((3, 1.0, False, 1.0), (4, 2.0, True, 1.0), (2, -1.0, False, 1.4), (5, 1.0, False, 1.4))


def stored():
    with np.load(ROOT / "tests/generation/data/transformers.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", [*SAMPLERS, "chain"])
def test_scores_equal_those_of_transformers(name):
    arrays = stored()
    # the chain in another order than that of its application
    sampler = SAMPLERS.get(name) or samplers.Chain(*reversed(SAMPLERS.values()))

    def changed(scores, ids):
        return sampler.process(scores, samplers.History(ids, jnp.int32(0)))

    found = jax.vmap(changed)(arrays["scores"], arrays["ids"].astype("int32"))
    np.testing.assert_allclose(found, arrays[name], rtol=1e-6)


def test_settings_of_files_are_the_chain_of_transformers():
    names = {"repetition": "repetition_penalty", "typical": "typical_p"}
    settings = {
        names.get(name, name): next(iter(vars(sampler).values()))
        for name, sampler in SAMPLERS.items()
    }
    configured = samplers.configured({"do_sample": True, **settings})
    assert configured == samplers.Chain(*SAMPLERS.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n == 3 else pytest.mark.exhaustive) for n in range(4)]
)
def test_beams_equal_those_of_transformers(number):
    loaded = fk.pretrained.load(checks.DATA / "llama", dtype="float32")
    ids = checks.expected("llama")["ids"][:, :7]
    width, penalty, early, repetition = BEAMS[number]
    beam = samplers.Chain(
        samplers.Beam(width, penalty, early), samplers.RepetitionPenalty(repetition)
    )
    found = fk.generate(loaded.model, loaded.state, ids, None, 9, beam, end_ids=[5, 9, 11])
    assert found.tokens.tolist() == stored()[f"beam_{number}"].tolist()


# each architecture compiles an encoder and a decoder
@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n == 0 else pytest.mark.exhaustive) for n in range(3)]
)
def test_tokens_by_settings_equal_those_of_transformers(number, tmp_path):
    rows = json.loads((ROOT / "tests/generation/data/settings.json").read_text())
    kind, settings, expected = rows[number].values()
    entry = option_checks.stored()[kind]
    mapping = option_checks.mapping_of(kind, entry, "", {})
    loaded = option_checks.loaded_of(tmp_path, mapping, entry["tensors"][0])
    ids, mask = option_checks.padded()
    ends = settings["eos_token_id"]
    found = fk.generate(
        loaded.model,
        loaded.state,
        np.full((2, 1), entry["base"]["decoder_start_token_id"]),
        max_new_tokens=len(expected[0]),
        sampler=samplers.configured(settings),
        end_ids=[ends] if isinstance(ends, int) else ends,
        inputs=ids,
        inputs_mask=mask,
    )
    assert found.tokens.tolist() == expected
