"""Llama and Gemma on eight devices: one dictionary of roles, and the numbers of one device."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import transforms
from fkeras.pretrained import GemmaConfig, GptOssConfig, LlamaConfig, build
from tests.pretrained import checks
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
KEY = jax.random.key(0)
ROLES = {
    "batch": "data",
    "heads": "model",
    "kv_heads": "model",
    "hidden": "model",
    "vocab": "model",
}
IDS = np.random.default_rng(0).integers(1, 32, (8, 6)).astype("int32")
LOSS = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
LLAMA = LlamaConfig(32, 12, 16, 1, 4, num_key_value_heads=2, head_dim=6)
# a block with a window that is shorter than the text, and a block without
GEMMA = GemmaConfig(
    *(32, 12, 16, 2, 4, 2, 6),
    model_type="gemma2",
    sliding_window=3,
    query_pre_attn_scalar=6,
    final_logit_softcapping=2.0,
)
CONFIGS = {"llama": LLAMA, "gemma": GEMMA}
UNGROUPED = fk.quantizers.Int4QuantizationConfig(block_size=None)
# the sizes of "data" and "model": four devices cannot share two key heads
MESHES = {"whole key heads": (2, 4), "split key heads": (4, 2)}
QUICK = {("llama", "whole key heads")}
PAIRS = [
    pytest.param(name, sizes, marks=() if (name, sizes) in QUICK else pytest.mark.exhaustive)
    for name in CONFIGS
    for sizes in MESHES
]


def mesh_of(sizes):
    return jax.make_mesh(sizes, ("data", "model"))


def trainer_of(sizes=None, **options):
    if sizes is not None:
        options |= {"mesh": mesh_of(sizes), "sharding": ROLES}
    return fk.Trainer(fk.optimizers.SGD(0.1, momentum=0.9), LOSS, **options)


def arrays_of(model):
    flat, _ = jax.tree.flatten_with_path(model)
    return {path[-1].key: array for path, array in flat}


def close(model, expected):
    wanted = arrays_of(expected)
    assert arrays_of(model).keys() == wanted.keys()
    for path, array in arrays_of(model).items():
        np.testing.assert_allclose(array, wanted[path], atol=1e-5, err_msg=path)


def same_step_and_tokens(model, sizes, **options):
    """Compares a step, logits and tokens on one device and on eight; returns the sharded model."""
    trainers = trainer_of(), trainer_of(sizes, **options)
    runs = [trainer.init(model, KEY) for trainer in trainers]
    single, sharded = (run.model for run in runs)
    np.testing.assert_allclose(sharded(IDS), single(IDS), atol=1e-5)
    texts = [
        # prompts of different lengths
        fk.generate(m, None, IDS, None, 4, lengths=[6, 3] * 4).tokens
        for m in (single, sharded)
    ]
    assert texts[0].tolist() == texts[1].tolist()
    pairs = zip(trainers, runs, strict=True)
    (one, logs), (many, sharded_logs) = (t.step(run, (IDS, IDS)) for t, run in pairs)
    assert float(sharded_logs["loss"]) == pytest.approx(float(logs["loss"]), rel=1e-5)
    close(many.model, one.model)
    return sharded


@pytest.mark.exhaustive
def test_sinks_and_experts_on_eight_devices():
    options = {"num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 6, "sliding_window": 3}
    config = GptOssConfig(32, 12, 16, 2, 4, num_key_value_heads=2, **options)
    sharded = same_step_and_tokens(build(config).build(KEY), MESHES["whole key heads"])
    specs = {path: array.sharding.spec for path, array in arrays_of(sharded).items()}
    assert specs["block_0/attention/sinks"] == P("model")
    assert specs["block_1/experts/gate_bias"] == P(None, "model")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "sizes"), PAIRS)
def test_eight_devices_compute_the_numbers_of_one(name, sizes):
    model = build(CONFIGS[name]).build(KEY)
    sharded = same_step_and_tokens(model, MESHES[sizes])
    specs = {path: array.sharding.spec for path, array in arrays_of(sharded).items()}
    by_heads = P() if sizes == "whole key heads" else P(None, "model")
    assert specs["embedding/embeddings"] == specs["block_0/down/kernel"] == P("model")
    assert specs["block_0/query/kernel"] == specs["block_0/up/kernel"] == P(None, "model")
    assert specs["block_0/output/kernel"] == P("model")
    assert specs["block_0/key/kernel"] == specs["block_0/value/kernel"] == by_heads
    # a device holds its share of all matrices but the whole ones
    matrices = [a for a in arrays_of(sharded).values() if a.ndim > 1]
    whole = sum(a.size for a in matrices if a.sharding.spec == P())
    share = (sum(a.size for a in matrices) - whole) // MESHES[sizes][1]
    assert sum(a.addressable_shards[0].data.size for a in matrices) == whole + share


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "adapter",
    [
        transforms.LoRA(rank=2),
        pytest.param(transforms.DoRA(rank=2), marks=pytest.mark.exhaustive),
        pytest.param(transforms.IA3(), marks=pytest.mark.exhaustive),
    ],
)
def test_adapters_follow_the_roles_of_their_layers(adapter):
    model = build(LLAMA).build(KEY)
    for pattern in ("*/query", "*/key", "*/down"):
        model = transforms.adapt(model, pattern, adapter, KEY)
    sharded = same_step_and_tokens(model, (2, 4), depth="scan")
    if isinstance(adapter, transforms.LoRA):
        specs = {path: array.sharding.spec for path, array in arrays_of(sharded).items()}
        assert specs["block_0/query/adapters/layer/b"] == P(None, "model")
        assert specs["block_0/down/adapters/layer/a"] == P("model")
        assert specs["block_0/key/adapters/layer/b"] == P()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("mode", "sizes"),
    [
        ("int4/4", (2, 4)),
        pytest.param(UNGROUPED, (2, 4), marks=pytest.mark.exhaustive),
        pytest.param("int4/5", (4, 2), marks=pytest.mark.exhaustive),
        pytest.param("int8", (2, 4), marks=pytest.mark.exhaustive),
    ],
)
def test_codes_have_the_roles_of_the_floats(mode, sizes):
    model = fk.quantize(build(LLAMA).build(KEY), mode)
    model = transforms.adapt(model, ["*/query", "*/down", "embedding"], transforms.LoRA(2), KEY)
    sharded = same_step_and_tokens(model, sizes)
    specs = {path: array.sharding.spec for path, array in arrays_of(sharded).items()}
    assert specs["embedding/layer/embeddings"] == P("model")
    assert specs["embedding/layer/reverse_embeddings"] == P(None, "model")
    assert specs["embedding/adapters/layer/reverse_embeddings/b"] == P(None, "model")
    assert specs["block_0/query/layer/kernel"] == specs["block_0/up/kernel"] == P(None, "model")
    assert specs["block_0/down/layer/kernel"] == specs["block_0/output/kernel"] == P("model")
    assert specs["block_0/key/kernel"] == (P() if sizes == (2, 4) else P(None, "model"))
    if mode == UNGROUPED:
        assert specs["block_0/up/kernel_scale"] == P("model")
        assert specs["block_0/down/layer/kernel_scale"] == P()
    elif mode != "int8":
        by_columns = P(None, "model")
        assert specs["block_0/up/kernel_scale"] == specs["block_0/up/kernel_zero"] == by_columns
        assert specs["block_0/down/layer/g_idx"] == P("model")
    # a plan counts what a device holds
    batch = (jax.ShapeDtypeStruct((8, 6), "int32"),) * 2
    plan = fk.plan(model, batch, trainer_of(sizes))
    assert plan.weights == sum(
        array.addressable_shards[0].data.nbytes for array in arrays_of(sharded).values()
    )
    if sizes == (2, 4):
        assert {"block_0/key/kernel", "block_0/value/kernel"} <= set(plan.whole_key_heads)


@pytest.mark.exhaustive
def test_every_way_to_generate_takes_sharded_models():
    model = build(LLAMA).build(KEY)
    small = build(LlamaConfig(32, 8, 8, 1, 4, num_key_value_heads=1)).build(KEY)
    adapted = [
        transforms.adapt(model, "*/query", transforms.LoRA(rank=2), jax.random.key(n))
        for n in (1, 2)
    ]

    def texts(place):
        whole = place(model)
        several = [place(one) for one in adapted]
        before = fk.generate(whole, whole.init_cache(8, 20), IDS, None, 2)
        return [
            fk.generate(whole, before.state, IDS[:, :2], None, 3),
            fk.generate(whole, None, IDS, None, 3, fk.samplers.Beam(2)),
            fk.generate(whole, None, IDS, KEY, 3, fk.samplers.Temperature(0.5)),
            fk.generate(whole, None, IDS, None, 3, draft=(place(small), None), draft_tokens=2),
            fk.generate(whole, None, IDS, None, 3, cache=False),
            fk.generate(whole, None, IDS, None, 3, stream=lambda row, piece: None),
            fk.generate(several, None, IDS, None, 3, rows=[0, 1] * 4),
        ]

    trainer = trainer_of((2, 4))
    pairs = zip(texts(lambda m: m), texts(lambda m: trainer.init(m, KEY).model), strict=True)
    for number, (one, many) in enumerate(pairs):
        assert one.tokens.tolist() == many.tokens.tolist(), number


@pytest.mark.exhaustive
def test_the_plan_names_key_heads_that_the_devices_cannot_share():
    model, batch = build(LLAMA), (jax.ShapeDtypeStruct((8, 6), "int32"),) * 2
    plan = fk.plan(model, batch, trainer_of((2, 4)))
    assert plan.whole_key_heads == ("block_0/key/kernel", "block_0/value/kernel")
    assert (
        "Whole on every device, since the mesh cannot split their key heads: block_0/key/kernel, "
        "block_0/value/kernel"
    ) in str(plan)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["llama", *(pytest.param(n, marks=pytest.mark.exhaustive) for n in ("gemma2", "gemma3"))],
)
def test_a_folder_is_loaded_into_shards(name, tmp_path):
    folder, mesh = checks.DATA / name, mesh_of((2, 4))
    with pytest.raises(ValueError, match=r"embedding/.*67.*cannot be split into 4 parts"):
        fk.pretrained.load(folder, mesh=mesh, sharding=ROLES)
    rules = ROLES | {"embedding/*": P()}
    loaded = fk.pretrained.load(folder, mesh=mesh, sharding=rules)
    specs = {path: array.sharding.spec for path, array in arrays_of(loaded.model).items()}
    assert specs["block_0/query/kernel"] == P(None, "model")
    assert specs["block_0/key/kernel"] == P()
    arrays = checks.expected(name)
    ids, greedy = arrays["ids"].astype("int32"), arrays["greedy"]
    np.testing.assert_allclose(loaded.model(ids), arrays["logits"], atol=1e-4)
    generated = fk.generate(loaded.model, loaded.state, ids[:, :7], None, greedy.shape[1])
    assert generated.tokens.tolist() == greedy.tolist()
    fk.pretrained.save(tmp_path, loaded.model, loaded.state, loaded.config)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / file).read_bytes() == (folder / file).read_bytes()


LLAMA_2_7B = """
import pathlib, re, resource
import jax, fkeras as fk

config = fk.pretrained.LlamaConfig()  # the defaults are the sizes of Llama 2 7B
roles = {"batch": "data", "heads": "model", "kv_heads": "model", "hidden": "model", "vocab": "model"}
loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
trainer = fk.Trainer("adamw", loss, sharding=roles, depth="scan", remat="full")
ids = jax.ShapeDtypeStruct((16, 2048), "int32")
plan = fk.plan(fk.pretrained.build(config), (ids, ids), trainer, mesh={"data": 2, "model": 8})
print(plan.weights, plan.optimizer, plan.peak, len(plan.loops[0]), plan.whole_key_heads)
# on Linux ru_maxrss is at least that of the process that started this program; macOS counts bytes
status = pathlib.Path("/proc/self/status")
if status.exists():
    print(1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read_text())[1]))
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform == "win32", reason="resource measures memory on POSIX systems")
def test_a_llama_of_7_billion_weights_is_planned_without_allocation():
    done = subprocess.run(
        [sys.executable, "-c", LLAMA_2_7B],
        cwd=ROOT,
        env=os.environ | {"XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    numbers, memory = done.stdout.splitlines()
    weights, optimizer, peak, blocks, *_ = numbers.split()
    # eight devices share all weights except the normalizations
    norms = 65 * 4096
    count = 6_738_415_616
    assert int(weights) == 4 * ((count - norms) // 8 + norms)
    assert 2 * int(weights) <= int(optimizer) < 2.01 * int(weights)
    assert int(peak) > 3 * int(weights)
    assert (blocks, numbers.endswith("()")) == ("32", True)
    # a device's share of the weights and of the optimizer alone has 10 GB
    assert int(memory) < 1.5e9
