"""Writing: changed weights, configurations of one's own, and wrong arguments."""

import dataclasses
import filecmp
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras.pretrained.families import llama
from fkeras.pretrained.families import table as families
from fkeras.pretrained.tables.layout import FileLayout, Layout
from tests.pretrained import checks, folders


@pytest.mark.exhaustive
def test_changed_weights_are_written_beside_the_bytes_of_the_others(tmp_path):
    loaded = fk.pretrained.load(checks.DATA / "llama_tied")
    scale = loaded.model.layers["norm"].scale
    model = fk.engine.replace_weights(loaded.model, {"norm/scale": 2 * scale})
    fk.pretrained.save(tmp_path, model, loaded.state, loaded.config)
    again = fk.pretrained.load(tmp_path)
    assert np.array_equal(again.model.layers["norm"].scale, 2 * scale)
    old = (checks.DATA / "llama_tied/model.safetensors").read_bytes()
    new = (tmp_path / "model.safetensors").read_bytes()
    assert len(old) == len(new)
    # 24 weights of two bytes
    assert 0 < sum(a != b for a, b in zip(old, new, strict=True)) <= 48


@pytest.mark.exhaustive
def test_weights_keep_their_own_dtype(tmp_path):
    """A small change of float32 weights, as in a fine-tuning, survives a folder of bfloat16."""
    folder = folders.copy("llama_tied", tmp_path / "halves")
    checks.split(folder)
    loaded = fk.pretrained.load(folder, dtype="float32")
    tuned = jax.tree.map(lambda leaf: leaf * (1 + 1e-4), loaded.model)
    fk.pretrained.save(tmp_path / "tuned", tuned, {}, loaded.config)
    again = fk.pretrained.load(tmp_path / "tuned")
    assert again.model == tuned
    mapping = json.loads((tmp_path / "tuned/config.json").read_text())
    assert mapping == json.loads((folder / "config.json").read_text()) | {"dtype": "float32"}
    index = json.loads((tmp_path / "tuned/model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": sum(a.nbytes for a in jax.tree.leaves(tuned))}
    # dtype= converts: the folder of the rounded weights has the bytes of the first folder
    fk.pretrained.save(tmp_path / "back", loaded.model, {}, again.config, dtype="bfloat16")
    names = [path.name for path in folder.iterdir()]
    same = filecmp.cmpfiles(folder, tmp_path / "back", names, shallow=False)
    assert same == (names, [], [])


@pytest.mark.exhaustive
def test_weights_of_several_dtypes_are_written_without_loss(tmp_path):
    def kinds(tensors):
        for n, (name, array) in enumerate(tensors.items()):
            tensors[name] = array.astype(("float32", "float64", "bfloat16", "float32")[n % 4])

    folder = folders.copy("phi3", tmp_path / "kinds", kinds)
    loaded = fk.pretrained.load(folder)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(loaded.model)} == {"float32"}
    checks.is_written_back(folder, tmp_path / "same")
    fk.pretrained.save(tmp_path / "single", loaded.model, {}, loaded.config, dtype="float32")
    tensors = safetensors.numpy.load_file(tmp_path / "single/model.safetensors")
    assert {array.dtype.name for array in tensors.values()} == {"float32"}
    tuned = jax.tree.map(lambda leaf: leaf * (1 + 1e-4), loaded.model)
    fk.pretrained.save(tmp_path / "tuned", tuned, {}, loaded.config)
    assert fk.pretrained.load(tmp_path / "tuned").model == tuned
    # one tensor of several weights has the dtype that holds them all
    block = loaded.model.layers["block_0"].layers
    query = {"block_0/query/kernel": block["query"].kernel.astype("bfloat16")}
    key = {"block_0/key/kernel": block["key"].kernel.astype("float16")}
    mixed = fk.engine.replace_weights(loaded.model, query | key)
    fk.pretrained.save(tmp_path / "mixed", mixed, {}, loaded.config)
    again = fk.pretrained.load(tmp_path / "mixed").model.layers["block_0"].layers
    assert np.array_equal(again["query"].kernel, np.float32(query["block_0/query/kernel"]))
    assert np.array_equal(again["key"].kernel, np.float32(key["block_0/key/kernel"]))


@pytest.mark.exhaustive
def test_a_model_of_ones_own_is_written(tmp_path):
    model = fk.pretrained.build(llama.TINY).build(jax.random.key(0))
    fk.pretrained.save(tmp_path / "new/folder", model, None, llama.TINY)
    loaded = fk.pretrained.load(tmp_path / "new/folder")
    assert loaded.model == model
    assert loaded.config == llama.TINY
    mapping = json.loads((tmp_path / "new/folder/config.json").read_text())
    assert mapping["architectures"] == ["LlamaForCausalLM"] and mapping["hidden_size"] == 24
    with safetensors.safe_open(tmp_path / "new/folder/model.safetensors", "numpy") as file:
        # transformers opens no file without this entry
        assert file.metadata() == {"format": "pt"}
        assert file.get_slice("model.layers.0.self_attn.q_proj.weight").get_shape() == [40, 24]


# a text model and one of two networks stand for the configurations without a default name
@pytest.mark.parametrize("name", ["bert", pytest.param("bart", marks=pytest.mark.exhaustive)])
def test_a_configuration_without_a_name_is_written_with_the_name_of_its_architecture(
    name, tmp_path
):
    tiny = families.family_of({"model_type": name}).tiny
    config = dataclasses.replace(tiny, model_type="")
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, None, config)
    loaded = fk.pretrained.load(tmp_path)
    assert (loaded.config, loaded.model) == (tiny, model)


@pytest.mark.exhaustive
def test_another_number_of_blocks_keeps_the_files_of_the_others(tmp_path):
    loaded = fk.pretrained.load(checks.DATA / "mistral")
    config = dataclasses.replace(loaded.config, num_hidden_layers=2)
    shorter = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, shorter, {}, config)
    assert fk.pretrained.load(tmp_path).model == shorter


def test_a_layout_chooses_the_files(tmp_path):
    loaded = fk.pretrained.load(checks.DATA / "mistral")
    (file,) = loaded.config.layout.files
    names = list(file.tensors)
    files = tuple(
        FileLayout(f"{n}.safetensors", {name: "F16" for name in part}, {"format": "pt"})
        for n, part in enumerate((names[:9], names[9:]))
    )
    config = dataclasses.replace(loaded.config, layout=Layout(files, index={"metadata": {}}))
    fk.pretrained.save(tmp_path, loaded.model, {}, config, dtype="float16")
    again = fk.pretrained.load(tmp_path)
    assert again.model.layers["norm"].scale.dtype == "float16"
    assert again.config.layout == config.layout


@pytest.mark.exhaustive
def test_wrong_arguments_are_reported(tmp_path):
    loaded = fk.pretrained.load(checks.DATA / "mistral")
    call = r"fk.pretrained.save\(folder, loaded.model, loaded.state, loaded.config\)"
    with pytest.raises(TypeError, match=f"received Model, dict, dict after .*{call}"):
        fk.pretrained.save(tmp_path, loaded.model, {}, {})
    with pytest.raises(TypeError, match=f"received Loaded, dict, LlamaConfig .*{call}"):
        fk.pretrained.save(tmp_path, loaded, {}, loaded.config)
    with pytest.raises(TypeError, match=f"received LlamaConfig, dict, Model .*{call}"):
        fk.pretrained.save(tmp_path, loaded.config, {}, loaded.model)
    with pytest.raises(TypeError, match=f"expected a path first, received Model. .*{call}"):
        fk.pretrained.save(loaded.model, tmp_path, {}, loaded.config)
    with pytest.raises(TypeError, match=f"argument 'state' is missing. .*{call}"):
        fk.pretrained.save(tmp_path, loaded)
    other = dataclasses.replace(loaded.config, num_hidden_layers=2)
    with pytest.raises(ValueError, match="differs in block_2/"):
        fk.pretrained.save(tmp_path, loaded.model, {}, other)
    unbuilt = fk.pretrained.build(loaded.config)
    with pytest.raises(ValueError, match="no weights yet"):
        fk.pretrained.save(tmp_path, unbuilt, {}, loaded.config)
    wider = dataclasses.replace(loaded.config, intermediate_size=41)
    model = fk.pretrained.build(wider).build(jax.random.key(0))
    with pytest.raises(ValueError, match=r"block_0/gate/kernel.*\(24, 40\).*\(24, 41\)"):
        fk.pretrained.save(tmp_path, model, {}, loaded.config)
    with pytest.raises(ValueError, match="dequantize"):
        fk.pretrained.save(tmp_path, fk.quantize(loaded.model, "int8"), {}, loaded.config)
    with pytest.raises(
        ValueError, match="expected one of float32, bfloat16, float16 as dtype, rec"
    ):
        fk.pretrained.save(tmp_path, loaded.model, {}, loaded.config, dtype="int8")
    large = fk.engine.replace_weights(loaded.model, {"norm/scale": np.full(24, 7e4, "float32")})
    with pytest.raises(
        ValueError, match="'model.norm.weight' has the number 70000.0, which is too"
    ):
        fk.pretrained.save(tmp_path, large, {}, loaded.config, dtype="float16")
    donated = jax.jit(lambda model: model, donate_argnums=0)
    kept = jax.tree.map(lambda leaf: leaf.copy(), loaded.model)
    donated(kept)
    with pytest.raises(RuntimeError, match="Save the value that the function returned"):
        fk.pretrained.save(tmp_path, kept, {}, loaded.config)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
def test_an_edited_graph_is_not_written(tmp_path):
    model = fk.pretrained.build(llama.TINY).build(jax.random.key(0))
    edited = fk.transforms.edit(model, {"block_0/mlp_add": lambda x: 2 * x})
    with pytest.raises(ValueError, match="differs in block_0/mlp_add_edit.*save_model"):
        fk.pretrained.save(tmp_path, edited, {}, llama.TINY)
    assert not [*tmp_path.iterdir()]
    with_dropout = fk.transforms.insert(model, fk.layers.Dropout(0.1), after="block_0")
    fk.pretrained.save(tmp_path, with_dropout, {}, llama.TINY)
    assert fk.pretrained.load(tmp_path).model == model
