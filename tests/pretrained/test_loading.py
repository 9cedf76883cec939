"""Loading: strict comparison of names and shapes, ties, prefixes, biases, dtypes, meshes, memory."""

import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras.pretrained import quantizing
from tests.pretrained import checks, folders

NORM = "model.layers.1.input_layernorm.weight"
UP = "model.layers.0.mlp.up_proj.weight"
HEAD = "lm_head.weight"


def rename(tensors, change):
    for name in list(tensors):
        tensors[change(name)] = tensors.pop(name)


def transposed(tensors):
    tensors[UP] = np.ascontiguousarray(tensors[UP].T)


def whole_numbers(tensors):
    tensors[NORM] = tensors[NORM].astype("int32")


def several(tensors):
    del tensors[NORM]
    transposed(tensors)
    tensors["extra.weight"] = np.ones(3, "float32")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), f"missing in the file: {NORM}. Download"),
        (lambda t: t.update(extra=np.ones(2, "float32")), r"not in the model: extra \(2,\)"),
        (transposed, rf"another shape or dtype: {UP} \(40, 24\) \(file: \(24, 40\)\)"),
        (whole_numbers, rf"{NORM} float \(file: int32\)"),
        (several, rf"missing in the file: {NORM}; not in the model: extra.weight \(3,\)"),
        (lambda t: t.pop(HEAD), "no causal head: lm_head.weight is missing"),
        (lambda t: [t.pop(n) for n in list(t)], "no causal head"),
    ],
)
def test_differences_are_listed_and_nothing_is_loaded(tmp_path, change, message):
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.pretrained.load(folders.copy("mistral", tmp_path, change))
    assert caught.value.file == str(tmp_path / "folder")
    assert len(str(caught.value)) < 1000


@pytest.mark.exhaustive
def test_many_differences_are_cut(tmp_path):
    folder = folders.copy("mistral", tmp_path, num_hidden_layers=9999)
    with pytest.raises(fk.FileError, match="and [0-9]+ more"):
        fk.pretrained.load(folder)
    folder = folders.copy("mistral", tmp_path / "b", vocab_size=68)
    with pytest.raises(fk.FileError, match="model.embed_tokens.weight .68, 24. .file: .67, 24"):
        fk.pretrained.load(folder)


def test_ignored_tensors_may_be_in_the_file(tmp_path):
    def more(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(5, "float32")
        tensors["score.weight"] = np.ones(5, "float32")

    folder = folders.copy("mistral", tmp_path, more)
    with pytest.raises(fk.FileError, match=r"not in the model: score.weight \(5,\). Download"):
        fk.pretrained.load(folder)
    model = fk.pretrained.load(folder, ignore="score.*").model
    assert model == fk.pretrained.load(checks.DATA / "mistral").model


def test_a_tied_head_may_be_a_copy(tmp_path):
    def copied(tensors):
        tensors[HEAD] = tensors["model.embed_tokens.weight"].copy()

    folder = folders.copy("qwen3", tmp_path, copied)
    loaded = fk.pretrained.load(folder)
    assert loaded.model == fk.pretrained.load(checks.DATA / "qwen3").model
    fk.pretrained.save(tmp_path / "written", loaded.model, {}, loaded.config)
    same = (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "written/model.safetensors").read_bytes() == same

    def other(tensors):
        copied(tensors)
        tensors[HEAD][0, 0] += 1

    with pytest.raises(fk.FileError, match="tie_word_embeddings to false") as caught:
        fk.pretrained.load(folders.copy("qwen3", tmp_path / "b", other))
    assert caught.value.member == HEAD
    untied = fk.pretrained.load(
        folders.copy("qwen3", tmp_path / "c", other, tie_word_embeddings=False)
    )
    assert untied.model.layers["embedding"].reverse_embeddings.shape == (24, 67)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "change", [lambda name: name.removeprefix("model."), lambda name: f"language_model.{name}"]
)
def test_prefixes_are_those_of_the_file(tmp_path, change):
    folder = folders.copy("mistral", tmp_path, lambda tensors: rename(tensors, change))
    loaded = fk.pretrained.load(folder)
    assert loaded.model == fk.pretrained.load(checks.DATA / "mistral").model
    fk.pretrained.save(tmp_path / "written", loaded.model, {}, loaded.config)
    same = (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "written/model.safetensors").read_bytes() == same


def test_biases_are_those_of_the_file(tmp_path):
    def without(tensors):
        for name in [name for name in tensors if name.endswith(".bias")]:
            del tensors[name]

    loaded = fk.pretrained.load(folders.copy("llama", tmp_path, without))
    assert not loaded.config.attention_bias and not loaded.config.mlp_bias
    assert loaded.model.layers["block_0"].layers["query"].bias is None
    assert loaded.config.write()["attention_bias"] is False


@pytest.mark.exhaustive
def test_shards_are_read_and_written_back(tmp_path):
    folder = folders.copy("mistral", tmp_path)
    checks.split(folder)
    loaded = fk.pretrained.load(folder)
    assert loaded.model == fk.pretrained.load(checks.DATA / "mistral").model
    written = tmp_path / "written"
    fk.pretrained.save(written, loaded.model, {}, loaded.config)
    assert sorted(p.name for p in written.iterdir()) == sorted(p.name for p in folder.iterdir())
    for path in folder.iterdir():
        assert path.read_bytes() == (written / path.name).read_bytes(), path.name
    index = folder / "model.safetensors.index.json"
    assert fk.pretrained.load(index).model == loaded.model


@pytest.mark.exhaustive
def test_float32_weights_in_a_file_of_halves_keep_their_bits(tmp_path):
    def halves(tensors):
        for name, array in tensors.items():
            if "norm" not in name:
                tensors[name] = array.astype("float16")

    folder = folders.copy("mistral", tmp_path, halves)
    loaded = fk.pretrained.load(folder)
    block = loaded.model.layers["block_0"]
    assert block.layers["attention_norm"].scale.dtype == "float32"
    assert block.layers["query"].kernel.dtype == "float16"
    assert loaded.model(np.ones((1, 3), "int32")).dtype == "float16"
    fk.pretrained.save(tmp_path / "written", loaded.model, {}, loaded.config)
    same = (folder / "model.safetensors").read_bytes()
    assert (tmp_path / "written/model.safetensors").read_bytes() == same


def test_numbers_that_are_not_finite_are_reported(tmp_path):
    def broken(tensors):
        tensors[UP][0, 0] = np.nan

    with pytest.warns(UserWarning, match=f"1 array holds NaN or infinite numbers: {UP}"):
        fk.pretrained.load(folders.copy("mistral", tmp_path, broken))


def _float_bytes():
    arrays = jax.live_arrays()
    return sum(a.nbytes for a in arrays if a.ndim > 1 and a.dtype in ("float32", "bfloat16"))


@pytest.mark.parametrize(
    ("name", "quantization", "options"),
    [
        ("mistral", "int4", {}),
        *(
            pytest.param(*row, marks=pytest.mark.exhaustive)
            for row in (
                ("mistral", "int8", {"dtype": "bfloat16"}),
                ("mistral", fk.quantizers.Int4QuantizationConfig(block_size=8), {}),
                ("qwen3", "int8", {}),
                ("phi3", "int4", {}),
                ("gpt2", "int8", {}),
                ("bert", "int8", {}),
                ("mixtral", "int4", {}),
                ("qwen3_moe", "int8", {"dtype": "bfloat16"}),
            )
        ),
    ],
    ids=str,
)
def test_layers_are_quantized_as_they_are_read(name, quantization, options, monkeypatch):
    # seconds: quantizes each layer of two models
    expected = fk.pretrained.load(checks.DATA / name, **options)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(expected.model) if leaf.ndim > 1)
    expected = expected._replace(model=fk.quantize(expected.model, quantization))
    before, alive = _float_bytes(), []

    def quantize(layer, config):
        alive.append(_float_bytes() - before)
        return fk.quantize(layer, config)

    monkeypatch.setattr(quantizing, "quantize", quantize)
    loaded = fk.pretrained.load(checks.DATA / name, quantize=quantization, **options)
    assert loaded.model == expected.model
    # the first call has specs alone; then one layer, its scales, and layers that have no codes
    assert len(alive) > 5 and max(alive) < 0.7 * size


@pytest.mark.exhaustive
def test_quantized_folders_of_other_forms(tmp_path):
    folder = folders.copy(
        "qwen3",
        tmp_path,
        lambda tensors: tensors.update({HEAD: tensors["model.embed_tokens.weight"].copy()}),
    )
    loaded = fk.pretrained.load(folder, quantize="int8")
    assert loaded.model == fk.pretrained.load(checks.DATA / "qwen3", quantize="int8").model
    for quantization, message in (
        ("int5", "int5"),
        (True, "True"),
        ("gptq/4/128", "needs samples"),
    ):
        with pytest.raises(ValueError, match=message):
            fk.pretrained.load(folder, quantize=quantization)


@pytest.mark.exhaustive
@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
def test_codes_are_placed_on_their_shards():
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    rules = {"hidden": "model"}
    plain = fk.pretrained.load(checks.DATA / "mistral", quantize="int8").model
    loaded = fk.pretrained.load(checks.DATA / "mistral", quantize="int8", mesh=mesh, sharding=rules)
    assert loaded.model.layers["block_0"].layers["gate"].kernel.sharding.spec == P(None, "model")
    for ours, theirs in zip(jax.tree.leaves(loaded.model), jax.tree.leaves(plain), strict=True):
        assert len(ours.sharding.device_set) == 8
        assert np.array_equal(ours, theirs)


@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
def test_tensors_are_read_into_their_shards():
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    rules = {"hidden": "model", "heads": "model", "kv_heads": "model"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = fk.pretrained.load(checks.DATA / "mistral", mesh=mesh, sharding=rules)
    block = loaded.model.layers["block_0"]
    assert block.layers["gate"].kernel.sharding.spec == P(None, "model")
    assert block.layers["down"].kernel.sharding.spec[0] == "model"
    assert block.layers["query"].kernel.sharding.spec[1] == "model"
    plain = fk.pretrained.load(checks.DATA / "mistral").model
    for ours, theirs in zip(jax.tree.leaves(loaded.model), jax.tree.leaves(plain), strict=True):
        assert len(ours.sharding.device_set) == 8
        assert np.array_equal(ours, theirs)
    with pytest.raises(ValueError, match=r"pretrained.load: .*missing mesh"):
        fk.pretrained.load(checks.DATA / "mistral", sharding=rules)


def test_wrong_arguments_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="config.json"):
        fk.pretrained.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="snapshot_download"):
        fk.pretrained.load(tmp_path / "none")
    with pytest.raises(TypeError, match="expected a path"):
        fk.pretrained.load(3)
    for dtype in ("float33", "int8", "float8", "auto", "complex64", fk.DTypePolicy("int8")):
        with pytest.raises(ValueError, match=r"one of float32, .* received .*write quantize="):
            fk.pretrained.load(checks.DATA / "mistral", dtype=dtype)
    (tmp_path / "page.safetensors").write_text("<!DOCTYPE html>")
    with pytest.raises(fk.FileError, match="a web page"):
        fk.pretrained.load(tmp_path / "page.safetensors")


PEAK = """
import sys, threading, jax, fkeras as fk

def resident():  # with the pages of mapped files
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))

fk.pretrained.load(sys.argv[1])  # imports and caches are no part of the measure
models = []  # kept: memory that is free, but not returned, would spoil the next measure
for dtype in ("bfloat16", "float32"):
    before, peak, done = resident(), [0], threading.Event()

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], resident())
            done.wait(0.0005)

    thread = threading.Thread(target=watch)
    thread.start()
    model = fk.pretrained.load(sys.argv[2], dtype=dtype).model
    done.set()
    thread.join()
    models.append(model)
    sizes = [leaf.nbytes for leaf in jax.tree.leaves(model)]
    print(peak[0] - before, sum(sizes), 4 * max(leaf.size for leaf in jax.tree.leaves(model)))
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_the_host_is_that_of_the_weights_and_one_tensor(tmp_path):
    config = fk.pretrained.LlamaConfig(20_000, 512, 2048, 2, 8, num_key_value_heads=2)
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, {}, config)
    del model
    arguments = [str(checks.DATA / "mistral"), str(tmp_path)]
    result = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, check=True
    )
    for line in result.stdout.splitlines():
        peak, weights, largest = map(int, line.split())
        # Python objects of the larger graph: some megabytes
        assert weights / 2 < peak < weights + 1.2 * largest + (8 << 20)
