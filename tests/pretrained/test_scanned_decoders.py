"""Blocks of decoders as a loop in a training: the same numbers, names and files; decoding has no loop."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import transforms
from fkeras.engine.graph.repeats import Repeat
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.safetensors import open_table
from fkeras.pretrained import (
    FalconConfig,
    GemmaConfig,
    GPTNeoXConfig,
    GptOssConfig,
    LlamaConfig,
    build,
)

KEY = jax.random.key(0)
IDS = np.random.default_rng(0).integers(1, 24, (4, 5)).astype("int32")
LOSS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)


def gemma(model_type, blocks, period):
    sizes = 24, 8, 12, blocks, 2, 1, 4
    return GemmaConfig(
        *sizes,
        model_type=model_type,
        sliding_window=2,
        sliding_window_pattern=period,
        # norms of small heads amplify rounding errors
        rms_norm_eps=0.01,
    )


LLAMA = LlamaConfig(24, 8, 12, 3, 2, num_key_value_heads=1, tie_word_embeddings=True)
OLMO = LlamaConfig(24, 8, 12, 3, 2, num_key_value_heads=1, model_type="olmo2")
NEOX = GPTNeoXConfig(24, 8, 3, 2, intermediate_size=12, rotary_pct=0.5)
FALCON = FalconConfig(24, 8, 3, 2, ffn_hidden_size=12)
OSS = {"num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 4, "sliding_window": 2}
GPT_OSS = GptOssConfig(24, 8, 12, 4, 2, num_key_value_heads=1, **OSS)
# the configuration, and for each loop the number of repeated blocks and of calls in each
CASES = {
    "llama": (LLAMA, (3, 1)),
    "olmo2": (OLMO, (3, 1)),
    "gpt_neox": (NEOX, (3, 1)),
    "falcon": (FALCON, (3, 1)),
    "gemma2": (gemma("gemma2", 4, 2), (2, 2)),
    "gpt_oss": (GPT_OSS, (2, 2)),
    # five blocks with a window and one without, twice
    "gemma3": (gemma("gemma3_text", 12, 6), (2, 6)),
    # the last blocks of Gemma 3 1B (26) and 4B (34) are less than a period
    "gemma3 with a remainder": (gemma("gemma3_text", 14, 6), (2, 6), (2, 1)),
}
QUICK = {("llama", True)}
ROWS = [
    pytest.param(name, adapted, marks=() if (name, adapted) in QUICK else pytest.mark.exhaustive)
    for name in CASES
    for adapted in (False, True)
]


def repeats_of(model):
    steps = transforms.roll(model).graph.steps
    return [(len(s.blocks), len(s.blocks[0])) for s in steps if isinstance(s, Repeat)]


def trained(model, depth):
    # unlike Adam, which divides rounding errors by small gradients
    trainer = fk.Trainer(fk.optimizers.SGD(0.01, momentum=0.9), LOSS, depth=depth)
    return trainer.fit(trainer.init(model, KEY), IDS, IDS, batch_size=2, epochs=1, verbose=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "adapted"), ROWS)
def test_a_training_with_a_loop_has_the_same_numbers_names_and_files(name, adapted, tmp_path):
    config, *repeats = CASES[name]
    model = build(config).build(KEY)
    if adapted:
        model = transforms.adapt(model, "*/query", transforms.LoRA(rank=2), KEY)
    assert repeats_of(model) == repeats
    (one, history), (loop, loop_history) = (trained(model, d) for d in ("unroll", "scan"))
    np.testing.assert_allclose(loop_history.history["loss"], history.history["loss"], rtol=1e-5)
    pairs, others = (jax.tree.flatten_with_path(run.model)[0] for run in (one, loop))
    for (path, array), (other_path, other) in zip(pairs, others, strict=True):
        assert path[-1].key == other_path[-1].key
        # in float64 the gradients agree to 1e-15
        scale = np.abs(array).max()
        np.testing.assert_allclose(other, array, atol=1e-4 * scale, err_msg=path[-1].key)
    assert jax.tree.structure(loop.model) == jax.tree.structure(model)
    # adapters freeze the model, and merging keeps this
    model = fk.unfreeze(transforms.merge_adapters(loop.model)) if adapted else loop.model
    tensors = []
    for number, written in enumerate((build(config).build(KEY), model)):
        fk.pretrained.save(tmp_path / str(number), written, {}, config)
        with open_table(str(tmp_path / str(number) / "model.safetensors"), Limits()) as table:
            tensors.append({key: stored.shape for key, stored in table.items()})
    assert tensors[0] == tensors[1]
    assert fk.pretrained.load(tmp_path / "1").model == model


@pytest.mark.exhaustive
def test_decoding_has_no_loop_over_blocks():
    model = build(LLAMA).build(KEY)
    rolled = transforms.roll(model)

    def loops(function):
        return str(jax.make_jaxpr(function)(rolled)).count("scan[")

    assert loops(lambda model: model(IDS)) == 1
    assert loops(lambda model: fk.generate(model, None, IDS, None, 3).tokens) == 0
    tokens = [fk.generate(m, None, IDS, None, 3).tokens.tolist() for m in (model, rolled)]
    assert tokens[0] == tokens[1]
