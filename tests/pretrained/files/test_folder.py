"""Damaged and crafted folders: config.json and the index."""

import json

import pytest

import fkeras as fk
from tests.pretrained import checks, folders


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"model_type": "lama"}, "model_type among .*received 'lama'. Other"),
        ({"model_type": ...}, "model_type among"),
        ({"model_type": 3}, "model_type among"),
        ({"architectures": ["MistralForAudioClassification"]}, "another head"),
        ({"hidden_size": "24"}, "hidden_size"),
        ({"hidden_size": -24}, "hidden_size"),
        ({"hidden_size": 10**12}, "an integer from 1 to 2147483647"),
        ({"hidden_size": 10**6}, "another shape or dtype"),
        ({"num_attention_heads": 8}, "another shape or dtype"),
        ({"head_dim": 9}, "odd|even"),
        ({"logits_scaling": 8.0}, "logits_scaling: expected 1.0, since transformers ignores"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
    ],
)
def test_other_configurations_are_rejected(tmp_path, keys, message):
    folder = folders.copy("mistral", tmp_path, **keys)
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.pretrained.load(folder)
    assert caught.value.file == str(folder)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[]", "as a dictionary"),
        ('{"a": 1, "a": 2}', "occurs twice"),
        ("[" * 200_000, "nested"),
        ("\0", "expected JSON"),
    ],
)
def test_damaged_text_is_rejected(tmp_path, text, message):
    folder = folders.copy("mistral", tmp_path)
    (folder / "config.json").write_text(text)
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.pretrained.load(folder)
    assert caught.value.file == str(folder / "config.json")


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda index: index.pop("weight_map"), "'weight_map' is missing"),
        (lambda index: index.update(weight_map={}), "1 to 100000 files, received 0"),
        (lambda index: index["weight_map"].update({"lm_head.weight": 3}), "as a string"),
        (
            lambda index: index["weight_map"].update(
                {"lm_head.weight": "../../secret.safetensors"}
            ),
            "in the same folder",
        ),
        (
            lambda index: index["weight_map"].update({"lm_head.weight": "/etc/passwd"}),
            "in the same folder",
        ),
        (
            lambda index: index["weight_map"].update({"lm_head.weight": "model-3.safetensors"}),
            "'model-3.safetensors' that the index lists",
        ),
        (lambda index: index["weight_map"].pop("lm_head.weight"), "differs in 'lm_head.weight'"),
        (
            lambda index: index["weight_map"].update(other=index["weight_map"]["lm_head.weight"]),
            "differs in 'other'",
        ),
    ],
)
def test_damaged_indexes_are_rejected(tmp_path, change, message):
    folder = folders.copy("mistral", tmp_path)
    checks.split(folder)
    file = folder / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    change(index)
    file.write_text(json.dumps(index))
    with pytest.raises(fk.FileError, match=message):
        fk.pretrained.load(folder)


def test_pickles_are_never_opened(tmp_path):
    folder = folders.copy("mistral", tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match="never opened"):
        fk.pretrained.load(folder)


def test_limits_bound_configuration_and_tensors(tmp_path):
    for limit in ("config_bytes", "array_bytes", "objects"):
        with pytest.raises(fk.FileError, match=f"fk.Limits.{limit}="):
            fk.pretrained.load(checks.DATA / "mistral", limits=fk.Limits(**{limit: 16}))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"adapter_config.json": "{}"}, "an adapter of PEFT.*load_adapter"),
        ({"model.safetensors": ""}, "found no config.json.*snapshot_download"),
    ],
)
def test_a_folder_without_config_says_what_it_lacks(files, words, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(FileNotFoundError, match=words):
        fk.pretrained.load(tmp_path)


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    folder = folders.copy("llama_tied", tmp_path)
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 90160\n"
    (folder / "model.safetensors").write_text(text)
    with pytest.raises(fk.FileError, match="a pointer of git-lfs. Run `git lfs pull`"):
        fk.pretrained.load(folder)
