"""Writes tests/pretrained/data/heads.json.gz: what transformers and sentence-transformers compute with the heads.

An entry has the class, `config.json`, the JSON of other files, the names and shapes of the tensors, the
inputs, and numbers of the outputs by their names in fkeras. Tensors have the numbers of
`option_checks.weights`, which depend only on name and shape, so that the tests write them again. The program
also builds each model with fkeras, writes a folder without a layout, and compares the numbers of transformers
for this folder.

Run it where torch, transformers and sentence-transformers are installed (written with torch 2.13.0,
transformers 5.24.0, sentence-transformers 6.2.0): `python tools/references/head_reference.py [NAME ...]`.
"""

import dataclasses
import gzip
import json
import pathlib
import sys
import tempfile

import jax
import numpy as np
import sentence_transformers
import torch
import transformers
from option_reference import BASES, HEAD, TEXT, TOWER, VISION
from safetensors.numpy import load_file

import fkeras as fk

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
from tests.pretrained import head_checks
from tests.pretrained.option_checks import spread

FILE = head_checks.FILE
LABELS = {"id2label": {"0": "O", "1": "B-PER", "2": "I-PER"}}
LABELS |= {"label2id": {label: int(key) for key, label in LABELS["id2label"].items()}}
ENDINGS = ("Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
MODULE = "sentence_transformers.models"
T5 = BASES["t5"][1]


def decoder_rows():
    """Classes of decoders with their keys."""
    names = {
        **{"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"},
        **{"smollm3": "SmolLM3", "phi3": "Phi3", "gemma2": "Gemma2", "gpt2": "GPT2"},
        **{"mixtral": "Mixtral", "qwen2_moe": "Qwen2Moe", "qwen3_moe": "Qwen3Moe"},
        **{"gemma": "Gemma", "olmo2": "Olmo2", "granite": "Granite", "gpt_neox": "GPTNeoX"},
        **{"phi": "Phi", "starcoder2": "Starcoder2", "falcon": "Falcon", "opt": "OPT"},
        **{"deepseek_v2": "DeepseekV2", "gpt_oss": "GptOss"},
    }
    for kind, name in names.items():
        for ending in ENDINGS:
            if hasattr(transformers, f"{name}{ending}"):
                keys = {**BASES[kind][1], **LABELS, "pad_token_id": 2}
                yield f"{kind} {ending}", kind, f"{name}{ending}", keys, {}
    keys = {**BASES["gemma3_text"][1], **LABELS, "pad_token_id": 2}
    yield "gemma3 Model", "gemma3_text", "Gemma3TextModel", keys, {}
    name = "Gemma3TextForSequenceClassification"
    yield "gemma3 ForSequenceClassification", "gemma3_text", name, keys, {}
    both = {**keys, "use_bidirectional_attention": True, "sliding_window": 6}
    yield "gemma3 both sides", "gemma3_text", "Gemma3TextModel", both, {}
    narrow = {**BASES["opt"][1], **LABELS, "word_embed_proj_dim": 20, "pad_token_id": 2}
    yield "opt narrow", "opt", "OPTForSequenceClassification", narrow, {}
    name = "LlamaForSequenceClassification"
    for title, more in {
        "regression": {"problem_type": "regression", "id2label": {"0": "score"}},
        "several labels": {"problem_type": "multi_label_classification"},
        # without a mask: the padding by its id alone
        "unmasked": {},
        "unmasked other padding": {"pad_token_id": 66},
        "unmasked negative padding": {"pad_token_id": -1},
    }.items():
        yield f"llama {title}", "llama", name, {**HEAD, **LABELS, "pad_token_id": 2, **more}, {}


def encoder_rows():
    names = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
    names |= {"camembert": "Camembert", "distilbert": "DistilBert", "modernbert": "ModernBert"}
    for kind, name in names.items():
        for ending in ENDINGS[1:]:
            keys = {**BASES[kind][1], **LABELS}
            if "Question" in ending:
                keys = dict(BASES[kind][1])
            yield f"{kind} {ending}", kind, f"{name}{ending}", keys, {}
    yield "bert next", "bert", "BertForNextSentencePrediction", TEXT, {}
    bare = {**BASES["modernbert"][1], **LABELS, "classifier_bias": True, "norm_bias": True}
    yield "modernbert bias", "modernbert", "ModernBertForTokenClassification", bare, {}
    for kind, name in {"bart": "Bart", "mbart": "MBart"}.items():
        for ending in ENDINGS[1:4:2]:
            keys = {**BASES[kind][1], **LABELS, "eos_token_id": 66}
            keys = dict(BASES[kind][1]) if "Question" in ending else keys
            yield f"{kind} {ending}", kind, f"{name}{ending}", keys, {}
    yield (
        "bart unmasked",
        "bart",
        "BartForSequenceClassification",
        keys
        | LABELS
        | {
            "eos_token_id": 66,
            "scale_embedding": True,
        },
        {},
    )
    yield "t5 encoder", "t5", "T5EncoderModel", T5, {}
    gated = {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    yield "t5 gated encoder", "t5", "T5EncoderModel", gated, {}
    text = {**TOWER, "eos_token_id": 66, "projection_dim": 10}
    for name in ("CLIPTextModel", "CLIPTextModelWithProjection"):
        yield name, "clip_text_model", name, text, {}
    old = {**text, "eos_token_id": 2, "hidden_act": "gelu"}
    yield "CLIPTextModel old", "clip_text_model", "CLIPTextModel", old, {}
    yield (
        "SiglipTextModel",
        "siglip_text_model",
        "SiglipTextModel",
        {**TOWER, "projection_size": 20},
        {},
    )
    for name in ("CLIPVisionModel", "CLIPVisionModelWithProjection"):
        yield name, "clip_vision_model", name, {**VISION, "projection_dim": 10}, {}


def backbone_rows():
    sizes = {**BASES["dinov2"][1], "num_hidden_layers": 3}
    options = {
        "last": {},
        "names": {"out_features": ["stem", "stage2"]},
        "numbers": {"out_indices": [1, -1], "apply_layernorm": False},
        "flat": {"out_features": ["stage1", "stage3"], "reshape_hidden_states": False},
    }
    for title, keys in options.items():
        yield f"dinov2 {title}", "dinov2", "Dinov2Backbone", {**sizes, **keys}, {}
    keys = {**sizes, "num_register_tokens": 2, "out_indices": [0, 3]}
    name = "Dinov2WithRegistersBackbone"
    yield "dinov2 registers", "dinov2_with_registers", name, keys, {}


def pooling(**modes):
    return {"word_embedding_dimension": 24} | {f"pooling_mode_{m}": v for m, v in modes.items()}


def modules(*kinds):
    folders = ["", *(f"{n}_{kind}" for n, kind in enumerate(kinds, 1))]
    names = ("Transformer", *kinds)
    return [
        {"idx": n, "name": str(n), "path": path, "type": f"{MODULE}.{kind}"}
        for n, (path, kind) in enumerate(zip(folders, names, strict=True))
    ]


def dense(size, units, **keys):
    kind = keys.pop("activation", "linear.Identity")
    return {
        **{"in_features": size, "out_features": units, "bias": keys.pop("bias", True)},
        **{"activation_function": f"torch.nn.modules.{kind}", **keys},
    }


def sentence_rows():
    """Folders of sentence-transformers."""
    last = {"1_Pooling/config.json": pooling(lasttoken=True, cls_token=False)}
    last |= {"modules.json": modules("Pooling", "Normalize")}
    prompts = {"query": "Find: ", "document": ""}
    last |= {
        "config_sentence_transformers.json": {"prompts": prompts, "default_prompt_name": "query"}
    }
    keys = {**BASES["qwen3"][1], "tie_word_embeddings": True}
    # the class of the language model from which the weights come, as in Qwen3-Embedding
    yield "qwen3 last", "qwen3", "Qwen3Model", keys, {**last, "class": "Qwen3ForCausalLM"}
    yield "qwen2 last", "qwen2", "Qwen2Model", BASES["qwen2"][1], last
    yield "mistral last", "mistral", "MistralModel", BASES["mistral"][1], last
    first = {
        "1_Pooling/config.json": {
            "embedding_dimension": 24,
            "pooling_mode": ["weightedmean", "cls"],
        }
    }
    first |= {"modules.json": modules("Pooling")}
    yield "llama first", "llama", "LlamaModel", HEAD, first
    several = pooling(cls_token=True, max_tokens=True, mean_tokens=True, mean_sqrt_len_tokens=True)
    several |= pooling(weightedmean_tokens=True, lasttoken=True)
    several = {"1_Pooling/config.json": several, "modules.json": modules("Pooling")}
    yield "bert all modes", "bert", "BertModel", TEXT, several
    yield "llama all modes", "llama", "LlamaModel", HEAD, several
    mean = {"1_Pooling/config.json": pooling(mean_tokens=True)}
    two = {
        **mean,
        "modules.json": modules("Pooling", "Dense", "Dense", "Normalize"),
        "2_Dense/config.json": dense(24, 40, bias=False),
        "3_Dense/config.json": dense(40, 12, activation="activation.Tanh"),
    }
    gemma = {**BASES["gemma3_text"][1], "use_bidirectional_attention": True}
    yield "gemma3 dense", "gemma3_text", "Gemma3TextModel", gemma, two
    one = {**mean, "modules.json": modules("Pooling", "Dense", "Normalize")}
    one |= {"2_Dense/config.json": dense(20, 16, bias=False, activation="activation.ReLU")}
    yield "t5 dense", "t5", "T5EncoderModel", T5, one
    yield (
        "gpt2 mean",
        "gpt2",
        "GPT2Model",
        BASES["gpt2"][1],
        {**mean, "modules.json": modules("Pooling")},
    )


def rows():
    yield from decoder_rows()
    yield from encoder_rows()
    yield from backbone_rows()
    yield from sentence_rows()


# outputs of transformers by the names in fkeras
OUTPUTS = {
    **{"last_hidden_state": "hidden", "pooler_output": "pooled", "text_embeds": "projected"},
    **{"image_embeds": "projected", "start_logits": "start", "end_logits": "end"},
    "sentence_embedding": "sentence",
}


@torch.no_grad()
def outputs_of(folder, cls, inputs, is_sentence):
    """The outputs of the model of a folder at tokens that are no padding, by their names in fkeras."""
    torch_inputs = {name: torch.tensor(array) for name, array in inputs.items()}
    if is_sentence:
        model = sentence_transformers.SentenceTransformer(
            modules=load_modules(folder, cls), device="cpu"
        ).eval()
        out = {"sentence_embedding": model(torch_inputs)["sentence_embedding"]}
    else:
        kind = getattr(transformers, cls)
        model, info = kind.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        differ = [info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")]
        assert not any(differ), (cls, differ)
        if "pixel_values" in torch_inputs:
            torch_inputs["pixel_values"] = torch_inputs["pixel_values"].permute(0, 3, 1, 2)
        out = dict(model.eval()(**torch_inputs, return_dict=True))
    if "feature_maps" in out:
        maps = zip(model.out_features, out.pop("feature_maps"), strict=True)
        out |= {name: y.permute(0, 2, 3, 1) if y.ndim == 4 else y for name, y in maps}
    logits = "token_classes" if "ForTokenClassification" in cls else "classes"
    logits = "next_sentence" if "NextSentence" in cls else logits
    names = {**OUTPUTS, "logits": logits}
    arrays = {
        names.get(key, key): np.asarray(value)
        for key, value in out.items()
        if isinstance(value, torch.Tensor) and not key.startswith("encoder_")
    }
    return {key: head_checks.kept(array, inputs) for key, array in arrays.items()}


def load_modules(folder, cls):
    """The modules of a folder, whose first module has no tokenizer."""
    from sentence_transformers.sentence_transformer import modules as kinds

    class Transformer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, info = getattr(transformers, cls).from_pretrained(
                folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
            )
            assert not any(info[key] for key in ("missing_keys", "mismatched_keys")), info

        def forward(self, features):
            out = self.model(**features)
            return {**features, "token_embeddings": out.last_hidden_state}

    loaded = [Transformer().eval()]
    for entry in json.loads((pathlib.Path(folder) / "modules.json").read_text())[1:]:
        kind = getattr(kinds, entry["type"].rpartition(".")[2])
        loaded.append(kind.load(str(folder), subfolder=entry["path"]))
    return loaded


def describe(kind, cls, keys, files, masked=True):
    """The entry of a class, and its numbers."""
    written = files.get("class", cls)
    beside = {name: content for name, content in files.items() if name != "class"}
    mapping = {"model_type": kind, "architectures": [written], **keys}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        (folder / "config.json").write_text(json.dumps(mapping))
        config = transformers.AutoConfig.from_pretrained(folder)
        getattr(transformers, cls)(config).save_pretrained(folder)
        tensors = {n: list(a.shape) for n, a in load_file(folder / "model.safetensors").items()}
        for name, content in beside.items():
            if name.endswith("_Dense/config.json"):
                shape = [content["out_features"], content["in_features"]]
                part = name.partition("/")[0]
                tensors[f"{part}/linear.weight"] = shape
                if content["bias"]:
                    tensors[f"{part}/linear.bias"] = shape[:1]
        entry = {"class": cls, "mapping": mapping, "beside": beside, "tensors": tensors}
        entry["masked"] = masked
        head_checks.write_folder(folder, entry)
        inputs = head_checks.inputs(entry)
        numbers = outputs_of(folder, cls, inputs, "modules.json" in beside)
        assert numbers, cls
        check_written(entry, numbers, inputs)
    entry["numbers"] = {name: spread(array) for name, array in numbers.items()}
    return entry


def check_written(entry, numbers, inputs):
    """Compares the numbers of transformers for a folder that fkeras writes from a new configuration."""
    with tempfile.TemporaryDirectory() as place:
        first, second = pathlib.Path(place) / "first", pathlib.Path(place) / "second"
        first.mkdir()
        head_checks.write_folder(first, entry)
        loaded = fk.pretrained.load(first)
        config = dataclasses.replace(loaded.config, source={}, layout=None)
        fk.pretrained.save(second, loaded.model, {}, config)
        mapping = json.loads((second / "config.json").read_text())
        # the defaults of these ids are no ids of a small vocabulary
        ids = {key: value for key, value in entry["mapping"].items() if key.endswith("token_id")}
        (second / "config.json").write_text(json.dumps({**ids, **mapping}))
        assert mapping["architectures"] == [entry["class"]], (mapping["architectures"], entry)
        again = outputs_of(second, entry["class"], inputs, "modules.json" in entry["beside"])
    for name, array in numbers.items():
        np.testing.assert_allclose(again[name], array, atol=1e-5, err_msg=name)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    jax.config.update("jax_platforms", "cpu")
    content = json.loads(gzip.decompress(FILE.read_bytes())) if FILE.exists() else {}
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    content["about"] = f"{versions}, sentence-transformers {sentence_transformers.__version__}"
    names = []
    for name, *row in rows():
        names.append(name)
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            # transformers finds the last token of a text of mBART by the id of padding alone
            is_masked = "unmasked" not in name and row[0] != "mbart"
            content[name] = describe(*row, masked=is_masked)
            print(
                name,
                {key: len(values) for key, values in content[name]["numbers"].items()},
                flush=True,
            )
    content = {name: content[name] for name in ["about", *names] if name in content}
    FILE.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
    print(f"{FILE.stat().st_size} bytes")
