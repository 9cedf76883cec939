"""`fk.generate` with the stored checkpoints: the greedy tokens of transformers, from caches."""

import numpy as np
import pytest

import fkeras as fk
from tests.pretrained import checks


# experts; rings of windows
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["mixtral", pytest.param("gemma3", marks=pytest.mark.exhaustive)])
def test_decoder_generates_the_tokens_of_transformers(name):
    loaded = fk.pretrained.load(checks.DATA / name, dtype="float32")
    arrays = checks.expected(name)
    ids, greedy = arrays["ids"][:, :7], arrays["greedy"]
    generated = fk.generate(
        loaded.model, loaded.state, ids, max_new_tokens=greedy.shape[1], cache=True
    )
    assert generated.tokens.tolist() == greedy.tolist()


@pytest.mark.exhaustive
def test_encoder_and_decoder_that_share_an_embedding_generate_the_tokens_of_transformers():
    loaded = fk.pretrained.load(checks.DATA / "t5", dtype="float32")
    arrays = checks.expected("t5")
    generated = fk.generate(
        *(loaded.model, loaded.state, np.zeros((2, 1), int)),
        max_new_tokens=arrays["greedy"].shape[1],
        inputs=arrays["ids"],
        inputs_mask=np.arange(arrays["ids"].shape[1])[None] < arrays["lengths"][:, None],
        cache=True,
    )
    assert generated.tokens.tolist() == arrays["greedy"].tolist()
