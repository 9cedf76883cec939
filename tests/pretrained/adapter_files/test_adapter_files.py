"""Adapters in files: PEFT's folders both ways, KerasHub's files, and damaged or foreign files."""

import dataclasses
import json
import pathlib
import shutil

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras import layers, transforms
from fkeras.engine import FrozenDict
from fkeras.host.containers.errors import FileError
from fkeras.transforms import IA3, Bottleneck, DoRA, LoRA
from tests.pretrained import option_checks
from tests.support.quick_cases import quick_cases

DATA = pathlib.Path(__file__).parents[1] / "data"
KEY = jax.random.key(0)
FOLDERS = sorted(folder.name for folder in (DATA / "peft").iterdir())


def base_of(name):
    with np.load(DATA / "peft" / name / "expected.npz") as file:
        arrays = dict(file)
    loaded = fk.pretrained.load(DATA / str(arrays["base"]), dtype="float32")
    if "images" in arrays:
        return loaded, arrays["images"], arrays["hidden"]
    return loaded, jnp.asarray(arrays["ids"], "int32"), arrays["logits"]


def output(model, x):
    y = model(x)
    return y["hidden"] if isinstance(y, dict) else y


def tensors_of(folder):
    table = fk.host.containers.safetensors.read_table(
        str(folder / "adapter_model.safetensors"), fk.Limits()
    )
    # PEFT adds the tensors of the base
    arrays = {n: a.read().tolist() for n, a in table.arrays.items()}
    return {n: a for n, a in arrays.items() if not n.endswith("base_layer.weight")}


QUICK = ("lora", "dora", "gpt2", "head_embedding", "tied_both", "vit", "v4_vit", "dinov2")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", quick_cases(FOLDERS, *QUICK))
def test_a_folder_of_peft_computes_its_numbers_and_is_written_back(name, tmp_path):
    loaded, x, expected = base_of(name)
    config = loaded.config
    if name.startswith("v4_"):  # the version of transformers that knows these modules
        source = FrozenDict({**config.source, "transformers_version": "4.57.1"})
        config = dataclasses.replace(config, source=source)
    model = fk.pretrained.load_adapter(DATA / "peft" / name, loaded.model, config)
    np.testing.assert_allclose(output(model, x), expected, atol=2e-4, rtol=1e-4)
    merged = transforms.merge_adapters(model)
    np.testing.assert_allclose(output(merged, x), expected, atol=2e-4, rtol=1e-4)
    fk.pretrained.save_adapter(tmp_path, model, config)
    again = fk.pretrained.load_adapter(tmp_path, loaded.model, config)
    np.testing.assert_allclose(output(again, x), output(model, x), atol=1e-5)
    assert tensors_of(tmp_path) == tensors_of(DATA / "peft" / name)


@pytest.mark.exhaustive
def test_a_lora_of_tied_weights_becomes_adapters_of_embedding_and_head(tmp_path):
    loaded, ids, _ = base_of("tied")
    model = shifted(
        transforms.adapt(loaded.model, ["embedding", "block_0/up"], LoRA(2, alpha=6), KEY)
    )
    fk.pretrained.save_adapter(tmp_path, model, loaded.config)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert {"lm_head", "embed_tokens"} <= set(settings["target_modules"])
    again = fk.pretrained.load_adapter(tmp_path, loaded.model, loaded.config)
    np.testing.assert_allclose(again(ids), model(ids), atol=1e-5)
    assert not again.layers["embedding"].layer.tie_weights


@pytest.mark.exhaustive
def test_a_merged_model_of_untied_logits_is_saved_with_another_configuration(tmp_path):
    loaded, ids, _ = base_of("tied_head")
    model = fk.pretrained.load_adapter(DATA / "peft" / "tied_head", loaded.model, loaded.config)
    merged = transforms.merge_adapters(model)
    with pytest.raises(ValueError, match=r"replace\(config, tie_word_embeddings=...\)"):
        fk.pretrained.save(tmp_path, merged, {}, loaded.config)
    config = dataclasses.replace(loaded.config, tie_word_embeddings=False, layout=None)
    fk.pretrained.save(tmp_path, merged, {}, config)
    np.testing.assert_allclose(fk.pretrained.load(tmp_path).model(ids), model(ids), atol=1e-5)


@pytest.mark.exhaustive
def test_patterns_have_the_names_of_the_modules(tmp_path):
    # a model of class Dinov2Model has no prefix, and weights_in holds two projections
    loaded = fk.pretrained.load(DATA / "dinov2", dtype="float32")
    source = FrozenDict({**loaded.config.source, "transformers_version": "4.57.1"})
    config = dataclasses.replace(loaded.config, source=source)
    model = transforms.adapt(loaded.model, ["*/query", "block_0/gate", "block_0/up"], LoRA(2), KEY)
    fk.pretrained.save_adapter(tmp_path, shifted(model), config)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert settings["target_modules"] == ["encoder.layer.0.mlp.weights_in", "query"]
    assert settings["rank_pattern"] == {"encoder.layer.0.mlp.weights_in": 4}


@pytest.mark.exhaustive
def test_adapters_of_a_table_that_modules_share_are_not_written(tmp_path):
    t5 = fk.pretrained.load(DATA / "t5", dtype="float32")
    model = transforms.adapt(t5.model, "embedding", LoRA(2), KEY)
    with pytest.raises(ValueError, match="modules share the tensor, which PEFT does not adapt"):
        fk.pretrained.save_adapter(tmp_path, model, t5.config)


@pytest.mark.exhaustive
def test_a_lora_of_the_embedding_of_an_encoder_adapts_the_vectors(tmp_path):
    bert = fk.pretrained.load(DATA / "bert", dtype="float32")
    model = shifted(transforms.adapt(bert.model, "embedding", LoRA(2), KEY))
    fk.pretrained.save_adapter(tmp_path, model, bert.config)
    again = fk.pretrained.load_adapter(tmp_path, bert.model, bert.config)
    np.testing.assert_allclose(again(IDS)["hidden"], model(IDS)["hidden"], atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_adapters_of_a_tied_head_leave_the_vectors_of_codes(mode):
    loaded, ids, _ = base_of("tied_head")
    coded = fk.quantize(loaded.model, mode)
    model = fk.pretrained.load_adapter(DATA / "peft" / "tied_head", coded, loaded.config)
    floats = fk.dequantize(model)
    table = floats.layers["embedding"].layer
    assert (table.reverse_embeddings == table.embeddings.T).all()
    # "int8" rounds inputs too
    assert jnp.abs(model(ids) - floats(ids)).mean() < (0.2 if mode == "int8" else 1e-4)
    embedding = model.layers["embedding"]
    assert (embedding(ids) == coded.layers["embedding"](ids)).all()
    assert list(embedding.adapters) == ["layer/reverse_embeddings"]


@pytest.fixture(scope="module")
def llama():
    return fk.pretrained.load(DATA / "llama", dtype="float32")


IDS = jnp.array([[3, 1, 4, 1, 5]])


def shifted(model, amount=0.1):
    tree = jax.tree.map(lambda w: w + amount, transforms.adapters(model))
    return transforms.with_adapters(model, tree)


@pytest.mark.exhaustive
@pytest.mark.parametrize("adapter", [LoRA(2, alpha=6), DoRA(2), IA3()], ids=str)
def test_every_kind_of_adapter_is_written_and_read(adapter, llama, tmp_path):
    model = transforms.adapt(llama.model, ["block_*/query", "block_1/gate"], adapter, KEY)
    model = shifted(model)
    fk.pretrained.save_adapter(tmp_path, model, llama.config, base_model="me/base")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "me/base"
    # "q_proj" for all blocks; one gate alone by its whole name
    assert config["target_modules"] == ["model.layers.1.mlp.gate_proj", "q_proj"]
    again = fk.pretrained.load_adapter(tmp_path, llama.model, llama.config)
    np.testing.assert_allclose(again(IDS), model(IDS), atol=1e-5)
    assert jnp.abs(again(IDS) - llama.model(IDS)).max() > 1e-3
    # over codes of the same base
    coded = fk.pretrained.load_adapter(tmp_path, fk.quantize(llama.model, "int8"), llama.config)
    assert jnp.isfinite(coded(IDS)).all()


def test_ranks_and_scales_of_single_modules_become_patterns(llama, tmp_path):
    model = transforms.adapt(llama.model, "block_*/query", LoRA(2, alpha=6), KEY)
    model = transforms.adapt(model, "block_1/value", LoRA(3, alpha=1), KEY)
    model = shifted(model)
    fk.pretrained.save_adapter(tmp_path, model, llama.config)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (2, 6)
    assert config["rank_pattern"] == {"model.layers.1.self_attn.v_proj": 3}
    assert config["alpha_pattern"] == {"model.layers.1.self_attn.v_proj": 1}
    again = fk.pretrained.load_adapter(tmp_path, llama.model, llama.config)
    np.testing.assert_allclose(again(IDS), model(IDS), atol=1e-5)


@pytest.mark.exhaustive
def test_adapters_of_fused_projections_become_one_adapter(tmp_path):
    phi = fk.pretrained.load(DATA / "phi3", dtype="float32")
    model = transforms.adapt(phi.model, ["block_*/query", "block_*/value"], LoRA(2, alpha=6), KEY)
    model = transforms.adapt(model, "block_*/gate", LoRA(2), KEY)
    model = shifted(model)
    fk.pretrained.save_adapter(tmp_path, model, phi.config)
    again = fk.pretrained.load_adapter(tmp_path, phi.model, phi.config)
    np.testing.assert_allclose(again(IDS), model(IDS), atol=1e-5)
    assert transforms.adapters(again).layers["block_0/query"].rank == 4
    mixed = transforms.adapt(phi.model, "block_0/query", DoRA(2), KEY)
    with pytest.raises(ValueError, match="give each of them a DoRA"):
        fk.pretrained.save_adapter(tmp_path, mixed, phi.config)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["gpt_neox", "falcon-40b"])
@pytest.mark.parametrize("adapter", [LoRA(2, alpha=6), DoRA(2), IA3()])
def test_factors_of_a_tensor_in_groups_have_the_order_of_its_rows(name, adapter, tmp_path):
    entry = option_checks.stored(option_checks.DECODERS)[name]
    option_checks.write_folder(tmp_path, entry["config"], entry["tensors"])
    base = fk.pretrained.load(tmp_path)
    model = base.model
    for part in ("query", "key", "value"):
        model = shifted(transforms.adapt(model, f"*/{part}", adapter, KEY))
    fk.pretrained.save_adapter(tmp_path / "adapter", model, base.config)
    again = fk.pretrained.load_adapter(tmp_path / "adapter", base.model, base.config)
    np.testing.assert_allclose(again(IDS), model(IDS), atol=1e-5)
    merged = transforms.merge_adapters(model)
    fk.pretrained.save(tmp_path / "merged", merged, {}, base.config)
    files = ("model.safetensors", "merged/model.safetensors", "adapter/adapter_model.safetensors")
    before, after, factors = (safetensors.numpy.load_file(tmp_path / file) for file in files)
    for key in [k for k in factors if k.endswith(("lora_B.weight", "ia3_l"))]:
        module = key.removeprefix("base_model.model.").removesuffix(".ia3_l")
        tensor = f"{module.removesuffix('.lora_B.weight')}.weight"
        if isinstance(adapter, IA3):
            expected = before[tensor] * factors[key]
        else:
            update = factors[key] @ factors[key.replace("lora_B", "lora_A")]
            expected = before[tensor] + update * adapter.scale
        if isinstance(adapter, DoRA):
            magnitude = factors[key.replace("lora_B.weight", "lora_magnitude_vector")]
            expected *= (magnitude / np.linalg.norm(expected, axis=1))[:, None]
        np.testing.assert_allclose(after[tensor], expected, atol=1e-5)


def changed(folder, tmp_path, change=None, tensors=None):
    """Copies a folder of PEFT with another configuration or other tensors."""
    copy = tmp_path / "copy"
    shutil.copytree(DATA / "peft" / folder, copy)
    if change is not None:
        config = json.loads((copy / "adapter_config.json").read_text())
        (copy / "adapter_config.json").write_text(json.dumps({**config, **change}))
    if tensors is not None:
        file = copy / "adapter_model.safetensors"
        table = fk.host.containers.safetensors.read_table(str(file), fk.Limits()).arrays
        arrays = tensors({name: np.array(stored.read()) for name, stored in table.items()})
        with open(file, "wb") as out:
            fk.host.containers.safetensors.write(out, arrays, {"format": "pt"})
    return copy


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peft_type": "LOHA"}, "expected the peft_type 'LORA' or 'IA3'"),
        ({"peft_type": None}, "peft_type"),
        ({"init_lora_weights": "pissa"}, "changes the weights of the base"),
        ({"bias": "all"}, "biases of the base"),
        ({"modules_to_save": ["lm_head"]}, "'modules_to_save' has the value"),
        ({"layer_replication": [[0, 2]]}, "'layer_replication' has the value"),
        ({"ensure_weight_tying": True}, "'ensure_weight_tying' has the value"),
        ({"new_switch": True}, "'new_switch' has the value True"),
        ({"target_modules": ["q_proj", "up_proj"]}, "has no adapter of these modules"),
        ({"target_modules": "nothing.*"}, "adapters of .*q_proj.*leave out"),
        ({"target_modules": []}, "adapters of .*q_proj.*leave out"),
        ({"exclude_modules": ["q_proj"]}, "adapters of .*0.self_attn.q_proj.*leave out"),
        ({"exclude_modules": r".*\.0\..*q_proj"}, "adapters of .*0.self_attn.q_proj, which"),
        ({"exclude_modules": "(a+)+$"}, "backtrack catastrophically"),
        ({"layers_to_transform": [0]}, "adapters of .*1.self_attn.*leave out"),
        ({"layers_to_transform": 0, "layers_pattern": "layers"}, "adapters of .*1.self_attn"),
        ({"layers_to_transform": [0, 1, 2, 3], "layers_pattern": ["h"]}, "adapters of .*0.self"),
        ({"layers_to_transform": ["0"]}, "the indices of layers_to_transform"),
        ({"layers_to_transform": [0], "target_modules": ".*proj"}, "layers_to_transform has no"),
        ({"target_modules": "(a+)+$"}, "backtrack catastrophically"),
        ({"rank_pattern": {"(a|a)*$": 3}}, "backtrack catastrophically"),
        ({"rank_pattern": {"q_proj": "3"}}, "the rank of 'q_proj'"),
        ({"r": 4}, "of rank 4, as the configuration states"),
        ({"r": "3"}, "r"),
        ({"use_dora": True}, "has no lora_magnitude_vector, and use_dora is True"),
        ({"lora_dropout": 3}, "dropout"),
    ],
)
def test_configurations_that_are_rejected(change, message, llama, tmp_path):
    folder = changed("lora", tmp_path, change)
    with pytest.raises((FileError, ValueError), match=message):
        fk.pretrained.load_adapter(folder, llama.model, llama.config)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "change",
    [
        {"exclude_modules": ["lm_head"]},
        {"layers_to_transform": [0, 1, 2, 3]},
        {"layers_to_transform": [0, 1, 2, 3], "layers_pattern": ["h", "layers"]},
    ],
)
def test_options_that_keep_all_modules_of_the_file(change, llama, tmp_path):
    model = fk.pretrained.load_adapter(DATA / "peft" / "lora", llama.model, llama.config)
    folder = changed("lora", tmp_path, change)
    assert fk.pretrained.load_adapter(folder, llama.model, llama.config) == model


@pytest.mark.exhaustive
def test_factors_that_are_not_finite_are_reported(llama, tmp_path):
    def broken(arrays):
        next(array for name, array in arrays.items() if "q_proj.lora_A" in name)[0, 0] = np.nan
        return arrays

    folder = changed("lora", tmp_path, tensors=broken)
    with pytest.warns(UserWarning, match=r"1 array holds NaN or infinite numbers: .*q_proj.lora_A"):
        fk.pretrained.load_adapter(folder, llama.model, llama.config)


def _renamed(old, new):
    return lambda arrays: {name.replace(old, new): array for name, array in arrays.items()}


def _without(part):
    return lambda arrays: {name: array for name, array in arrays.items() if part not in name}


def _cut(part):
    return lambda arrays: {n: a[:, :-1] if part in n else a for n, a in arrays.items()}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (_renamed("base_model.model.model.", "model."), "belongs to another model"),
        (_renamed("self_attn", "attention"), "belongs to another model"),
        (_renamed("layers.0", "layers.7"), "layers.7.*belongs|belongs.*layers.7"),
        (_without("layers.0.self_attn.q_proj.lora_B"), "expected both factors"),
        (_without("layers.0.self_attn.q_proj"), "has no adapter of these modules"),
        (_without("model"), "no tensor"),
        (_cut("q_proj.lora_A"), "expected lora_A"),
        (_cut("q_proj.lora_B"), "expected factors"),
    ],
)
def test_tensors_that_are_rejected(tensors, message, llama, tmp_path):
    folder = changed("lora", tmp_path, tensors=tensors)
    with pytest.raises(FileError, match=message):
        fk.pretrained.load_adapter(folder, llama.model, llama.config)


def test_a_model_trained_without_its_head_has_names_without_the_first_part(llama, tmp_path):
    folder = changed("lora", tmp_path, tensors=_renamed("model.model.model.", "model.model."))
    model = fk.pretrained.load_adapter(folder, llama.model, llama.config)
    whole = fk.pretrained.load_adapter(DATA / "peft" / "lora", llama.model, llama.config)
    assert model == whole


@pytest.mark.exhaustive
def test_modules_of_siglip_with_the_prefix_of_transformers_4(tmp_path):
    loaded, images, expected = base_of("siglip_vision")
    names = _renamed("base_model.model.", "base_model.model.vision_model.")
    folder = changed("siglip_vision", tmp_path, tensors=names)
    model = fk.pretrained.load_adapter(folder, loaded.model, loaded.config)
    np.testing.assert_allclose(output(model, images), expected, atol=2e-4, rtol=1e-4)


def test_other_weights_of_the_base_in_the_file_are_rejected(llama, tmp_path):
    def other(arrays):
        return {n: a + 1 if "base_layer" in n else a for n, a in arrays.items()}

    folder = changed("embedding", tmp_path, tensors=other)
    with pytest.raises(FileError, match="weights of the base in 'model.embed_tokens'"):
        fk.pretrained.load_adapter(folder, llama.model, llama.config)


def test_bad_arguments(llama, tmp_path):
    folder = DATA / "peft" / "lora"
    with pytest.raises(TypeError, match="expected a layer or model"):
        fk.pretrained.load_adapter(folder, 3, llama.config)
    with pytest.raises(TypeError, match="expected the configuration of the base"):
        fk.pretrained.load_adapter(folder, llama.model)
    with pytest.raises(ValueError, match="alpha belongs to a .lora.h5 file"):
        fk.pretrained.load_adapter(folder, llama.model, llama.config, alpha=3)
    with pytest.raises(FileNotFoundError):
        fk.pretrained.load_adapter(tmp_path, llama.model, llama.config)
    with pytest.raises(ValueError, match="has no adapters"):
        fk.pretrained.save_adapter(tmp_path, llama.model, llama.config)
    bottleneck = transforms.adapt(llama.model, "block_0/up", Bottleneck(2), KEY)
    with pytest.raises(ValueError, match="all LoRA, all DoRA or all IA3, received Bottleneck"):
        fk.pretrained.save_adapter(tmp_path, bottleneck, llama.config)
    with_axis = transforms.adapt(llama.model, "block_0/query", LoRA(2, last_axis=True), KEY)
    with pytest.raises(ValueError, match="span other axes than those of PEFT"):
        fk.pretrained.save_adapter(tmp_path, with_axis, llama.config)
    assert not list(tmp_path.iterdir())


def blocks():
    x = fk.Input((4, 6), name="x")
    y = x
    for i in range(2):
        y = layers.MultiHeadAttention(2, 3, name=f"attention_{i}")(y, y)
    return fk.Model(x, y).build(KEY)


def keras_hub_file(path, rank=2):
    """Writes factors as `save_lora_weights` of keras-hub 0.32 does: value before query."""
    generator = np.random.default_rng(0)
    factors = {}
    with h5py.File(path, "w") as file:
        file["lora/vars/rank"] = np.int64(rank)
        for index, at in ((11, "0/value"), (13, "0/query"), (21, "1/value"), (23, "1/query")):
            a, b = generator.normal(size=(6, 2, rank)), generator.normal(size=(rank, 3))
            file[f"lora/{index}/vars/lora_kernel_a"] = a.astype("float32")
            file[f"lora/{index}/vars/lora_kernel_b"] = b.astype("float32")
            factors[f"attention_{at}_dense"] = a @ b
    return factors


@pytest.mark.exhaustive
def test_a_file_of_keras_hub(tmp_path):
    path, model = tmp_path / "a.lora.h5", blocks()
    factors = keras_hub_file(path)
    adapted = fk.pretrained.load_adapter(path, model, alpha=6)
    merged = transforms.merge_adapters(adapted)
    for at, delta in factors.items():
        attention, name = at.split("/")
        kernels = [getattr(m.layers[attention], name).kernel for m in (model, merged)]
        np.testing.assert_allclose(kernels[1] - kernels[0], 3 * delta, atol=1e-5)
    x = jax.random.normal(KEY, (1, 4, 6))
    np.testing.assert_allclose(merged(x), adapted(x), atol=1e-4)


@pytest.mark.exhaustive
def test_files_of_keras_hub_that_are_rejected(tmp_path):
    path = tmp_path / "a.lora.h5"
    keras_hub_file(path)
    one = fk.Sequential([fk.Input((4, 6)), layers.Dense(3, name="query")]).build(KEY)
    with pytest.raises(FileError, match="expected adapters of the 1 layers"):
        fk.pretrained.load_adapter(path, one)
    keras_hub_file(path, rank=3)
    with h5py.File(path, "a") as file:
        file["lora/vars/rank"][...] = 4
    with pytest.raises(FileError, match="expected lora_kernel_a of"):
        fk.pretrained.load_adapter(path, blocks())
    with h5py.File(path, "a") as file:
        del file["lora/vars/rank"]
    with pytest.raises(FileError, match="expected the adapters of KerasHub's save_lora_weights"):
        fk.pretrained.load_adapter(path, blocks())
    path.write_bytes(b"no file")
    with pytest.raises(FileError):
        fk.pretrained.load_adapter(path, blocks())


@pytest.mark.exhaustive
def test_an_adapted_model_generates_what_the_merged_model_generates(llama):
    model = transforms.adapt(
        llama.model, ["block_*/query", "block_*/down", "embedding"], LoRA(2), KEY
    )
    model = shifted(model, 0.05)
    models = (model, transforms.merge_adapters(model), llama.model)
    tokens = [
        fk.generate(
            one, {}, IDS, KEY, max_new_tokens=6, sampler=fk.samplers.Greedy()
        ).tokens.tolist()
        for one in models
    ]
    assert tokens[0] == tokens[1] != tokens[2]


@pytest.mark.exhaustive
@pytest.mark.parametrize("file", ["adapter_config.json", "adapter_model.safetensors"])
def test_random_damage_is_reported_or_harmless(file, llama, tmp_path):
    folder = changed("regex", tmp_path)
    original = (folder / file).read_bytes()
    generator = np.random.default_rng(3)
    # the table of the tensors, not their numbers
    end = min(len(original), 1200)
    outcomes = set()
    for _ in range(40):
        damaged = bytearray(original)
        start = int(generator.integers(0, end))
        kind = generator.integers(0, 3)
        if kind == 0:
            damaged[start] = int(generator.integers(0, 256))
        elif kind == 1:
            del damaged[start : start + int(generator.integers(1, 40))]
        else:
            damaged[start:start] = damaged[: int(generator.integers(1, 40))]
        (folder / file).write_bytes(bytes(damaged))
        try:
            fk.pretrained.load_adapter(folder, llama.model, llama.config)
            outcomes.add("loaded")
        except (FileError, ValueError):
            outcomes.add("reported")
    assert "reported" in outcomes


@pytest.mark.exhaustive
def test_adapters_of_convolutions_are_written_and_read(tmp_path):
    whisper = fk.pretrained.load(DATA / "whisper", dtype="float32")
    model = shifted(transforms.adapt(whisper.model, "encoder/conv_*", LoRA(2, alpha=6), KEY))
    fk.pretrained.save_adapter(tmp_path, model, whisper.config)
    table = fk.host.containers.safetensors.read_table(
        str(tmp_path / "adapter_model.safetensors"), fk.Limits()
    )
    kernel = whisper.model.layers["encoder"].layers["conv_2"].kernel
    size, channels, filters = kernel.shape
    name = "base_model.model.model.encoder.conv2"
    assert table.arrays[f"{name}.lora_A.weight"].shape == (2, channels, size)
    assert table.arrays[f"{name}.lora_B.weight"].shape == (filters, 2, 1)
    assert fk.pretrained.load_adapter(tmp_path, whisper.model, whisper.config) == model
