"""Heads of all families against transformers and sentence-transformers."""

import dataclasses
import json

import jax
import numpy as np
import pytest
import safetensors

import fkeras as fk
from fkeras.pretrained.families import bert, llama, t5, vit
from tests.pretrained import encoder_checks, head_checks
from tests.pretrained.option_checks import spread

ENTRIES = head_checks.stored()
# one class of each kind of head; the others differ in their families
_DEFAULT = ("llama ForSequenceClassification", "distilbert ForQuestionAnswering", "gemma3 dense")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in _DEFAULT else pytest.mark.exhaustive)
        for name in ENTRIES
    ],
)
def test_heads_compute_the_numbers_of_transformers(name, tmp_path):
    entry = ENTRIES[name]
    loaded = head_checks.load(tmp_path, entry)
    outputs = head_checks.outputs_of(loaded.model, head_checks.inputs(entry))
    assert entry["numbers"].keys() <= outputs.keys()
    for key, numbers in entry["numbers"].items():
        np.testing.assert_allclose(spread(outputs[key]), numbers, atol=1e-4, rtol=1e-4, err_msg=key)
    # the folder is written back with the bytes of the tensors
    fk.pretrained.save(tmp_path / "new", fk.pretrained.load(tmp_path).model, {}, loaded.config)
    files = [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()]
    for file in [file for file in files if file.parts[0] != "new"]:
        read = json.loads if file.suffix == ".json" else (lambda data: data)
        assert read((tmp_path / file).read_bytes()) == read((tmp_path / "new" / file).read_bytes())


def _folder(tmp_path, name, *, tensors=None, beside=None, **keys):
    """Writes the folder of an entry with other keys and files."""
    entry = ENTRIES[name]
    mapping = {
        key: value for key, value in {**entry["mapping"], **keys}.items() if value is not ...
    }
    files = {**entry["beside"], **(beside or {})}
    head_checks.write_folder(
        tmp_path,
        {
            "mapping": mapping,
            "beside": {file: content for file, content in files.items() if content is not ...},
            "tensors": tensors or entry["tensors"],
        },
    )
    return tmp_path


# a parameter: the class is unknown, and the tensors tell the head
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("bert ForTokenClassification", ("token_classifier",)),
        ("bert ForSequenceClassification", ("pooler", "classifier")),
        ("roberta ForTokenClassification", ("token_classifier",)),
        ("roberta ForSequenceClassification", ("classifier",)),
        ("distilbert ForTokenClassification", ("token_classifier",)),
        ("distilbert ForSequenceClassification", ("classifier",)),
        ("distilbert ForQuestionAnswering", ("answers",)),
        ("modernbert ForTokenClassification", ("classifier",)),
        ("llama ForSequenceClassification", ("classifier",)),
        ("llama ForTokenClassification", ("token_classifier",)),
        ("gpt2 ForTokenClassification", ("token_classifier",)),
        ("qwen2 ForQuestionAnswering", ("answers",)),
    ],
)
def test_a_folder_without_a_class(name, parts, tmp_path):
    assert fk.pretrained.load(_folder(tmp_path, name, architectures=...)).config.parts == parts


@pytest.mark.exhaustive
def test_a_classifier_of_tokens_with_an_unused_pooler(tmp_path):
    """As in files of older versions of transformers."""
    name = "bert ForTokenClassification"
    more = {"bert.pooler.dense.weight": [24, 24], "bert.pooler.dense.bias": [24]}
    loaded = fk.pretrained.load(
        _folder(tmp_path, name, tensors=ENTRIES[name]["tensors"] | more), dtype="float32"
    )
    assert loaded.config.parts == ("pooler", "token_classifier")
    outputs = head_checks.outputs_of(loaded.model, head_checks.inputs(ENTRIES[name]))
    numbers = ENTRIES[name]["numbers"]["token_classes"]
    np.testing.assert_allclose(spread(outputs["token_classes"]), numbers, atol=1e-4)


_QWEN = "qwen3 last"
_GEMMA = "gemma3 dense"
_DENSE = {"in_features": 24, "out_features": 40, "bias": False}
_IDENTITY = {"activation_function": "torch.nn.modules.linear.Identity"}


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("llama Model", {"architectures": ["LlamaForCausalLM"]}, "no causal head.*LlamaModel"),
        ("llama Model", {"architectures": ["LlamaForAudioClassification"]}, "another head"),
        ("llama Model", {"is_causal": False}, "unknown key 'is_causal' with the value False"),
        ("llama Model", {"pad_token_id": "2"}, "pad_token_id"),
        ("llama ForSequenceClassification", {"architectures": ["LlamaModel"]}, "score.weight"),
        ("llama ForSequenceClassification", {"id2label": {"0": "a"}}, r"score.weight \(1, 24\)"),
        (
            "bert ForTokenClassification",
            {"architectures": ["BertForSequenceClassification"]},
            "pooler",
        ),
        ("t5 encoder", {"architectures": ["T5ForConditionalGeneration"]}, "decoder"),
        ("CLIPTextModel", {"projection_dim": 0}, "projection_dim"),
        ("dinov2 last", {"out_features": ["stage9"]}, "stem, stage1, ..., stage3"),
        ("dinov2 last", {"out_features": ["stage2", "stem"]}, "in this order"),
        ("dinov2 last", {"out_features": ["stage2"], "out_indices": [1]}, "equal stages"),
        ("dinov2 last", {"out_indices": [1.5]}, "out_indices"),
        (_QWEN, {"beside": {"modules.json": {"type": 3}}}, "modules with a type"),
        (_QWEN, {"beside": {"modules.json": ["x"]}}, "modules with a type"),
        (_QWEN, {"beside": {"modules.json": [{"type": "a.LSTM", "path": ""}]}}, "received LSTM"),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": ...}},
            "2_Dense/config.json: expected out_features",
        ),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": []}},
            "2_Dense/config.json: expected out_features",
        ),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": {**_DENSE, "out_features": True}}},
            "out_features",
        ),
        (_GEMMA, {"beside": {"2_Dense/config.json": {**_DENSE, "bias": 1}}}, "bias"),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": {**_DENSE, "use_residual": True}}},
            "use_residual",
        ),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": {**_DENSE, "activation_function": "torch.nn.Mish"}}},
            "among GELU, Identity",
        ),
        (
            _GEMMA,
            {
                "beside": {
                    "2_Dense/config.json": {**_DENSE, "module_input_name": "token_embeddings"}
                }
            },
            "from 'sentence_embedding' to",
        ),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": {**_DENSE, **_IDENTITY, "out_features": 41}}},
            r"2_Dense/linear.weight \(41, 24\)",
        ),
        (
            _GEMMA,
            {"beside": {"2_Dense/config.json": {**_DENSE, **_IDENTITY, "bias": True}}},
            "missing in the file: 2_Dense/linear.bias",
        ),
    ],
)
def test_wrong_folders_are_rejected(name, changes, message, tmp_path):
    folder = _folder(tmp_path, name, **changes)
    with pytest.raises(fk.FileError, match=message):
        fk.pretrained.load(folder)


def test_the_list_of_modules_names_the_folder_of_the_pooling():
    modules = [{"type": "models.Transformer"}, {"type": "models.Pooling", "path": "3_Mean"}]
    pooling = {"modules.json": modules, "3_Mean/config.json": {"pooling_mode": "mean"}}
    config = dataclasses.replace(t5.TINY, num_layers=1, parts=(), beside=pooling)
    assert [*fk.pretrained.build(config).outputs] == ["hidden", "sentence"]
    without = dataclasses.replace(config, beside={"modules.json": modules})
    assert [*fk.pretrained.build(without).outputs] == ["hidden"]


def test_a_module_without_safetensors_is_reported(tmp_path):
    folder = _folder(tmp_path, _GEMMA)
    (folder / "3_Dense/model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="expected 3_Dense/model.safetensors"):
        fk.pretrained.load(folder)


def test_prompts_are_those_of_the_folder():
    content = ENTRIES[_QWEN]["beside"]["config_sentence_transformers.json"]

    def config(**changes):
        beside = {"config_sentence_transformers.json": {**content, **changes}}
        return dataclasses.replace(llama.TINY, beside=beside)

    assert config().prompt() == config().prompt("query") == "Find: "
    assert config().prompt("document") == config(default_prompt_name=None).prompt() == ""
    assert llama.TINY.prompt() == bert.BERT.tiny.prompt() == t5.TINY.prompt() == ""
    with pytest.raises(ValueError, match="one of 'query', 'document'.*received 'passage'"):
        config().prompt("passage")
    with pytest.raises(ValueError, match="no names"):
        llama.TINY.prompt("query")
    for prompts in (["a"], {"a": 3}, "a"):
        with pytest.raises(ValueError, match="expected a text for each name"):
            config(prompts=prompts).prompt()


def test_labels_are_those_of_the_file():
    mapping = ENTRIES["bert ForTokenClassification"]["mapping"]
    config = bert.BertConfig.read(mapping)
    assert config.labels == ("O", "B-PER", "I-PER")
    more = dataclasses.replace(config, num_labels=4)
    assert more.labels == ("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3")
    # the names of other classes are not written
    assert more.write() == {
        **{key: value for key, value in mapping.items() if key not in ("id2label", "label2id")},
        "num_labels": 4,
    }
    assert config.write() == mapping


def test_unknown_parts_are_rejected():
    with pytest.raises(ValueError, match="LlamaConfig: parts: expected names of causal, .*'heads'"):
        dataclasses.replace(llama.TINY, parts=("heads",))
    with pytest.raises(ValueError, match="ViTConfig: parts: .*received 'masked'"):
        vit.ViTConfig(parts=("masked",))


# several graphs are compiled
@pytest.mark.exhaustive
@pytest.mark.parametrize("parts", [("classifier",), ("token_classifier",), ()])
@pytest.mark.parametrize("left", [0, 5])
def test_padding_changes_no_output_of_a_decoder(parts, left):
    modes = ["lasttoken", "cls", "mean", "weightedmean", "mean_sqrt_len_tokens", "max"]
    beside = {} if parts else {"1_Pooling/config.json": {"pooling_mode": modes}}
    config = dataclasses.replace(llama.TINY, num_hidden_layers=1, parts=parts, beside=beside)
    model = fk.pretrained.build(config).build(jax.random.key(0))
    encoder_checks.padding_changes_no_token(model, np.array([[5, 9, 3, 8]], "int32"), left, 3)


@pytest.mark.exhaustive
def test_a_new_embedding_model_is_written_in_its_folders(tmp_path):
    entry = ENTRIES[_GEMMA]
    config = head_checks.load(tmp_path, entry).config
    new = dataclasses.replace(config, source={}, layout=None)
    model = fk.pretrained.build(new).build(jax.random.key(1))
    fk.pretrained.save(tmp_path / "new", model, {}, new, dtype="bfloat16")
    with safetensors.safe_open(tmp_path / "new/2_Dense/model.safetensors", "numpy") as file:
        assert [*file.keys()] == ["linear.weight"] and file.metadata() == {"format": "pt"}
    again = fk.pretrained.load(tmp_path / "new")
    assert again.config == new
    ids = np.arange(6, dtype="int32")[None]
    rounded = fk.cast(model, "bfloat16")
    for name, array in again.model(ids).items():
        assert array.dtype == "bfloat16"
        np.testing.assert_array_equal(array, rounded(ids)[name])
    # the numbers of several modules in half precision
    halves = fk.pretrained.load(tmp_path, dtype="mixed_bfloat16").model(ids)
    whole = fk.pretrained.load(tmp_path, dtype="float32").model(ids)
    np.testing.assert_allclose(halves["sentence"], whole["sentence"], atol=0.1)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "parts", "cls"),
    [
        # a file whose names lack the prefix
        ("llama Model", ("classifier",), "LlamaForSequenceClassification"),
        ("llama ForSequenceClassification", ("answers",), "LlamaForQuestionAnswering"),
        ("bert next", ("token_classifier",), "BertForTokenClassification"),
        ("t5 encoder", ("decoder",), "T5ForConditionalGeneration"),
        ("CLIPVisionModel", ("projection",), "CLIPVisionModelWithProjection"),
    ],
)
def test_another_head_is_written_with_its_class(name, parts, cls, tmp_path):
    config = head_checks.load(tmp_path, ENTRIES[name]).config
    other = dataclasses.replace(config, parts=parts)
    model = fk.pretrained.build(other).build(jax.random.key(0))
    for layout in (other.layout, None):
        folder = tmp_path / str(layout is None)
        fk.pretrained.save(folder, model, {}, dataclasses.replace(other, layout=layout))
        mapping = json.loads((folder / "config.json").read_text())
        assert mapping["architectures"] == [cls]
        again = fk.pretrained.load(folder)
        assert again.model == model and set(parts) <= {*again.config.parts}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["bert all modes", "llama first"])
def test_pooling_in_half_precision(name, tmp_path):
    entry = ENTRIES[name]
    head_checks.write_folder(tmp_path, entry)
    inputs = head_checks.inputs(entry)
    for dtype in ("bfloat16", "mixed_float16"):
        model = fk.pretrained.load(tmp_path, dtype=dtype).model
        vectors = head_checks.outputs_of(model, inputs)["sentence"]
        numbers = entry["numbers"]["sentence"]
        np.testing.assert_allclose(spread(vectors), numbers, atol=0.3, rtol=0.1)


def test_hidden_states_are_no_logits():
    config = dataclasses.replace(llama.TINY, num_hidden_layers=1, parts=())
    model = fk.pretrained.build(config).build(jax.random.key(0))
    with pytest.raises(ValueError, match="received 'llama' .* the output 'hidden'. Load a checkp"):
        fk.generate(model, None, np.ones((1, 3), "int32"), max_new_tokens=2)
