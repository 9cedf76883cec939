"""Writes the tiny checkpoints of encoders and of Whisper in `tests/pretrained/data`.

Run with transformers 5.24.0 and torch 2.13.0: `python tools/references/pretrained_encoders.py
[name ...]`. Each folder holds `config.json`, `model.safetensors` and `expected.npz`: inputs, outputs
and the hidden states of all blocks. Every configuration is unlike the defaults of its family, and
every weight is random, biases and norms included.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers as hf

DATA = Path(__file__).parents[2] / "tests" / "pretrained" / "data"
IDS = np.array(
    [
        [7, 66, 12, 40, 3, 3, 59, 21, 33, 8, 17, 64, 2],
        [11, 5, 60, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [9, 30, 31, 32, 44, 45, 18, 2, 1, 1, 1, 1, 1],
    ]
)
MASK = np.array([[1] * 13, [1] * 4 + [0] * 9, [1] * 8 + [0] * 5])
ACTIVE = {"hidden_act": "gelu_new", "layer_norm_eps": 3e-3}


def randomized(model: torch.nn.Module) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            scale = 1 if weight.ndim < 2 or "position" in name else 2 * weight[0].numel() ** -0.5
            if "norm" in name and name.endswith("weight"):
                weight.copy_(1 + 0.3 * noise)
            elif weight.ndim == 0 or weight.shape == (1,):  # logit_scale and logit_bias
                weight.copy_(1 + noise)
            else:
                plain = weight.ndim < 2 or "position" in name
                weight.copy_((0.4 if plain else 0.6) * scale * noise)
    return model.eval()


def write(name: str, model: torch.nn.Module, expected: dict[str, object]) -> None:
    folder = DATA / name
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    arrays = {
        key: value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        for key, value in expected.items()
    }
    np.savez_compressed(folder / "expected.npz", **arrays)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(name, f"{size / 1000:.0f} kB")


def blocks(states: tuple[torch.Tensor, ...], prefix: str = "block") -> dict[str, torch.Tensor]:
    """Names the input of the first block "_0", and the output of block i "_{i + 1}"."""
    return {f"{prefix}_{i}": state for i, state in enumerate(states)}


def text_inputs(types: int = 0) -> dict[str, torch.Tensor]:
    inputs = {"input_ids": torch.tensor(IDS), "attention_mask": torch.tensor(MASK)}
    if types:
        inputs["token_type_ids"] = torch.tensor(IDS % types)
    return inputs


def text(name: str, model: torch.nn.Module, types: int = 0) -> None:
    inputs = text_inputs(types)
    out = model(**inputs, output_hidden_states=True)
    outputs = {
        key: out[key]
        for key in ("last_hidden_state", "pooler_output", "logits")
        if out.get(key) is not None
    }
    types = {"types": inputs["token_type_ids"]} if types else {}
    write(name, model, {"ids": IDS, "mask": MASK, **types, **outputs, **blocks(out.hidden_states)})


def bert_config(**options: object) -> hf.BertConfig:
    return hf.BertConfig(
        vocab_size=67, hidden_size=24, num_hidden_layers=3, num_attention_heads=3,
        intermediate_size=40, max_position_embeddings=29, type_vocab_size=3, **ACTIVE, **options,
    )  # fmt: skip


def bert() -> None:
    text("bert", randomized(hf.BertModel(bert_config())), types=3)


def bert_masked() -> None:
    text("bert_masked", randomized(hf.BertForMaskedLM(bert_config())), types=3)


def bert_classifier() -> None:
    model = hf.BertForSequenceClassification(bert_config(num_labels=5))
    text("bert_classifier", randomized(model), types=3)


def bert_sentence() -> None:
    """A folder as sentence-transformers writes: mean of the tokens, then a unit length."""
    model = randomized(hf.BertModel(bert_config()))
    with torch.no_grad():  # so that the vectors of texts differ
        for name, weight in model.named_parameters():
            if name.endswith("LayerNorm.weight"):
                weight.add_(1)
            elif name.endswith("bias"):
                weight.mul_(0.2)
    text("bert_sentence", model)
    folder = DATA / "bert_sentence"
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    rows = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(rows, indent=2))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 29, "do_lower_case": False}, indent=2)
    )
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 24, "pooling_mode_cls_token": False}
    pooling |= {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False}
    pooling |= {"pooling_mode_mean_sqrt_len_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=2))
    tokenizer().save(str(folder / "tokenizer.json"))
    with np.load(folder / "expected.npz") as file:
        expected = dict(file)
    hidden, mask = expected["last_hidden_state"], MASK[..., None].astype("float32")
    mean = (hidden * mask).sum(1) / np.maximum(mask.sum(1), 1e-9)
    expected["sentence"] = mean / np.linalg.norm(mean, axis=-1, keepdims=True)
    np.savez_compressed(folder / "expected.npz", **expected)


WORDS = (
    "[PAD] [CLS] [SEP] [UNK] [MASK] a the cat dog bird sat ran flew on under over mat road tree in "
    "sun rain it was warm cold small large red blue green two three saw heard house river old new "
    "who what where when is are sleeps sings walks fast slow near far child woman man book song "
    "night day summer winter snow light dark ##s ##ed ##ing"
)


def tokenizer() -> object:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    made = tokenizers.Tokenizer(
        models.WordPiece(dict(zip(WORDS.split(), range(67), strict=False)), unk_token="[UNK]")
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return made


def roberta() -> None:
    config = hf.RobertaConfig(
        vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=40, max_position_embeddings=21, type_vocab_size=1, pad_token_id=1, **ACTIVE,
    )  # fmt: skip
    text("roberta", randomized(hf.RobertaForMaskedLM(config)))


def distilbert() -> None:
    config = hf.DistilBertConfig(
        vocab_size=67, dim=24, n_layers=2, n_heads=3, hidden_dim=40, max_position_embeddings=21,
        activation="relu",
    )  # fmt: skip
    text("distilbert", randomized(hf.DistilBertForMaskedLM(config)))


def distilbert_classifier() -> None:
    config = hf.DistilBertConfig(
        vocab_size=67, dim=24, n_layers=2, n_heads=3, hidden_dim=40, max_position_embeddings=21,
        num_labels=4, activation="gelu",
    )  # fmt: skip
    text("distilbert_classifier", randomized(hf.DistilBertForSequenceClassification(config)))


def modernbert() -> None:
    config = hf.ModernBertConfig(
        vocab_size=67, hidden_size=24, intermediate_size=28, num_hidden_layers=5,
        num_attention_heads=3, hidden_activation="gelu_new", max_position_embeddings=31,
        norm_eps=3e-3, norm_bias=True, attention_bias=True, mlp_bias=True, local_attention=6,
        pad_token_id=1, eos_token_id=2, bos_token_id=3, cls_token_id=3, sep_token_id=2,
        global_attn_every_n_layers=2,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 30.0},
        },
    )  # fmt: skip
    text("modernbert", randomized(hf.ModernBertForMaskedLM(config)))


def modernbert_plain() -> None:
    config = hf.ModernBertConfig(
        vocab_size=67, hidden_size=24, intermediate_size=36, num_hidden_layers=4,
        num_attention_heads=3, max_position_embeddings=31, local_attention=6, pad_token_id=1,
        eos_token_id=2, bos_token_id=3, cls_token_id=3, sep_token_id=2, classifier_pooling="mean",
        num_labels=4, classifier_bias=True,
    )  # fmt: skip
    text("modernbert_plain", randomized(hf.ModernBertForSequenceClassification(config)))


def images(*size: int) -> np.ndarray:
    """Images of shape (b, h, w, c)."""
    return np.random.default_rng(1).normal(size=(2, *size, 3)).astype("float32")


def vision(
    name: str,
    model: torch.nn.Module,
    size: tuple[int, int],
    large: tuple[int, int] | None = None,
    **options: object,
) -> None:
    randomized(model)
    expected: dict[str, object] = {"images": images(*size)}

    def run(x: np.ndarray, **options: object) -> dict[str, torch.Tensor]:
        return model(torch.tensor(x).permute(0, 3, 1, 2), output_hidden_states=True, **options)

    out = run(expected["images"])
    for key in ("last_hidden_state", "pooler_output", "logits"):
        if out.get(key) is not None:
            expected[key] = out[key]
    expected |= blocks(out.hidden_states)
    if large is not None:
        expected["large_images"] = images(*large)
        expected["large_hidden_state"] = run(expected["large_images"], **options)[
            "last_hidden_state"
        ]
    if getattr(getattr(model, "embeddings", None), "mask_token", None) is not None:
        height, width = size[0] // model.config.patch_size, size[1] // model.config.patch_size
        masked = np.random.default_rng(2).random((2, height, width)) < 0.4
        expected["masked"] = masked
        flat = torch.tensor(masked.reshape(2, -1))
        expected["masked_hidden_state"] = run(expected["images"], bool_masked_pos=flat)[
            "last_hidden_state"
        ]
    write(name, model, expected)


VISION = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "layer_norm_eps": 3e-3,
}  # fmt: skip


def vit() -> None:
    config = hf.ViTConfig(
        **VISION, intermediate_size=40, hidden_act="gelu_new", image_size=20, patch_size=5,
        qkv_bias=False, pooler_output_size=18, pooler_act="relu",
    )  # fmt: skip
    model = hf.ViTModel(config)
    vision("vit", model, (20, 20), (25, 30), interpolate_pos_encoding=True)
    processor("vit", hf.models.vit.image_processing_pil_vit.ViTImageProcessorPil(
        size={"height": 20, "width": 20}, image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.25],
    ))  # fmt: skip


def vit_classifier() -> None:
    config = hf.ViTConfig(
        **VISION, intermediate_size=40, hidden_act="gelu", image_size=[12, 20], patch_size=[4, 5],
        num_channels=3, num_labels=5,
    )  # fmt: skip
    vision("vit_classifier", hf.ViTForImageClassification(config), (12, 20))


def dinov2() -> None:
    config = hf.Dinov2Config(
        **VISION, mlp_ratio=2, use_swiglu_ffn=True, image_size=20, patch_size=5, layerscale_value=0.7,
    )  # fmt: skip
    vision("dinov2", hf.Dinov2Model(config), (20, 20), (15, 30))
    processor("dinov2", hf.models.bit.image_processing_pil_bit.BitImageProcessorPil(
        size={"shortest_edge": 26}, crop_size={"height": 20, "width": 20}, resample=3,
        image_mean=[0.4, 0.5, 0.6], image_std=[0.2, 0.3, 0.25],
    ))  # fmt: skip


def dinov2_registers() -> None:
    config = hf.Dinov2WithRegistersConfig(
        **VISION, mlp_ratio=3, image_size=20, patch_size=5, hidden_act="gelu_new",
        num_register_tokens=3, qkv_bias=False,
    )  # fmt: skip
    vision("dinov2_registers", hf.Dinov2WithRegistersModel(config), (20, 20), (15, 30))


def dinov2_classifier() -> None:
    config = hf.Dinov2Config(
        **VISION, mlp_ratio=3, image_size=20, patch_size=5, hidden_act="gelu_new",
        use_mask_token=False, num_labels=5,
    )  # fmt: skip
    vision("dinov2_classifier", hf.Dinov2ForImageClassification(config), (20, 20))


def siglip_vision() -> None:
    config = hf.SiglipVisionConfig(
        **VISION, intermediate_size=40, image_size=20, patch_size=5, hidden_act="gelu",
    )  # fmt: skip
    model = hf.SiglipVisionModel(config)
    vision("siglip_vision", model, (20, 20), (25, 30), interpolate_pos_encoding=True)


def processor(name: str, made: object) -> None:
    """Adds a preprocessor_config.json, a picture with three colors, and its pixel values."""
    folder = DATA / name
    made.save_pretrained(folder)
    y, x = np.mgrid[:37, :53]
    picture = np.stack([(7 * x + 3 * y) % 256, (x * y) % 256, (255 - 4 * y) % 256], -1).astype(
        "uint8"
    )
    with np.load(folder / "expected.npz") as file:
        expected = dict(file)
    expected["picture"] = picture
    expected["pixels"] = made(picture, return_tensors="np")["pixel_values"][0].transpose(1, 2, 0)
    np.savez_compressed(folder / "expected.npz", **expected)


def two_towers(name: str, model: torch.nn.Module, ids: np.ndarray, mask: np.ndarray | None) -> None:
    x = images(20, 20)
    options = {} if mask is None else {"attention_mask": torch.tensor(mask)}
    out = randomized(model)(
        input_ids=torch.tensor(ids), pixel_values=torch.tensor(x).permute(0, 3, 1, 2),
        output_hidden_states=True, **options,
    )  # fmt: skip
    expected = {"ids": ids, "images": x, "logits_per_image": out.logits_per_image}
    if mask is not None:
        expected["mask"] = mask
    expected |= {"text_embeds": out.text_embeds, "image_embeds": out.image_embeds}
    for side, output in (("text", out.text_model_output), ("vision", out.vision_model_output)):
        expected |= blocks(output.hidden_states, f"{side}_block")
        expected[f"{side}_hidden_state"] = output.last_hidden_state
        expected[f"{side}_pooled"] = output.pooler_output
    write(name, model, expected)


def tower_configs(act: str, **text: object) -> dict[str, dict]:
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 28,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    return {
        "text_config": {
            **sizes, "vocab_size": 67, "max_position_embeddings": 15, "hidden_act": act,
            "layer_norm_eps": 3e-3, **text,
        },
        "vision_config": {**VISION, "num_hidden_layers": 2, "intermediate_size": 44, "image_size": 20, "patch_size": 5, "hidden_act": act},
    }  # fmt: skip


def clip() -> None:
    ids = np.where(IDS == 2, 66, np.where(IDS == 66, 65, IDS))
    config = hf.CLIPConfig(
        **tower_configs("quick_gelu", eos_token_id=66, bos_token_id=3, pad_token_id=1),
        projection_dim=14,
    )
    two_towers("clip", hf.CLIPModel(config), ids, MASK)
    processor("clip", hf.models.clip.image_processing_pil_clip.CLIPImageProcessorPil(
        size={"shortest_edge": 24}, crop_size={"height": 20, "width": 20},
    ))  # fmt: skip
    made = clip_tokenizer()
    made.save(str(DATA / "clip" / "tokenizer.json"))


def clip_tokenizer() -> object:
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, processors

    words = [word for word in WORDS.split() if not word.startswith("[")][:60]
    table = {"[UNK]": 0, "[PAD]": 1, "[START]": 3, "[END]": 66}
    table |= {word: i for i, word in enumerate(words, 4)}
    made = tokenizers.Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[START] $A [END]", special_tokens=[("[START]", 3), ("[END]", 66)]
    )
    return made


def clip_legacy() -> None:
    """An old file: `eos_token_id` 2 means the position of the largest id."""
    ids = np.where(IDS == 2, 66, np.where(IDS == 66, 65, IDS))
    config = hf.CLIPConfig(
        **tower_configs("gelu", eos_token_id=2, bos_token_id=0, pad_token_id=1), projection_dim=14
    )
    two_towers("clip_legacy", hf.CLIPModel(config), ids, MASK)


def siglip() -> None:
    ids = np.concatenate([IDS, np.ones((3, 2), int)], 1)
    text = {"projection_size": 24, "pad_token_id": 1, "bos_token_id": 3, "eos_token_id": 2}
    two_towers(
        "siglip", hf.SiglipModel(hf.SiglipConfig(**tower_configs("gelu", **text))), ids, None
    )
    processor("siglip", hf.models.siglip.image_processing_pil_siglip.SiglipImageProcessorPil(
        size={"height": 20, "width": 20}, resample=3,
    ))  # fmt: skip


def sound(rate: float = 900, seconds: float = 0.4) -> np.ndarray:
    """A rising tone with an echo, 16,000 samples a second."""
    t = np.arange(int(16000 * seconds)) / 16000
    tone = np.sin(2 * np.pi * (300 * t + rate * t**2)) * np.exp(-2 * t)
    return (np.round(512 * (tone + 0.3 * np.roll(tone, 1200))) / 512).astype("float32")


def whisper() -> None:
    config = hf.WhisperConfig(
        vocab_size=67, num_mel_bins=12, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=2, decoder_attention_heads=4, encoder_ffn_dim=28, decoder_ffn_dim=36,
        d_model=16, max_source_positions=50, max_target_positions=26, activation_function="gelu_new",
        decoder_start_token_id=5, pad_token_id=4, bos_token_id=4, eos_token_id=4,
        suppress_tokens=[47, 20, 41], begin_suppress_tokens=[4, 53, 54], scale_embedding=True,
    )  # fmt: skip
    model = randomized(hf.WhisperForConditionalGeneration(config))
    with torch.no_grad():  # the tokens depend on the sound and on the position
        for name, weight in model.model.decoder.named_parameters():
            if "embed_positions" in name:
                weight.mul_(8)
            elif name.endswith("bias"):
                weight.mul_(0.2)
            elif "layers" in name and "norm" not in name:
                weight.mul_(1.5 if "encoder_attn" in name else 0.5)
            elif "embed_tokens" in name:
                weight.mul_(0.5)
    generation = hf.GenerationConfig(
        decoder_start_token_id=5, pad_token_id=4, bos_token_id=4, eos_token_id=4,
        suppress_tokens=[47, 20, 41], begin_suppress_tokens=[4, 53, 54], no_timestamps_token_id=6,
        max_length=26, forced_decoder_ids=None, is_multilingual=False,
    )  # fmt: skip
    model.generation_config = generation
    extractor = hf.WhisperFeatureExtractor(
        feature_size=12, chunk_length=1, hop_length=160, n_fft=400
    )
    waves = np.stack([sound(), sound(-200)])
    both = extractor(list(waves), sampling_rate=16000, return_tensors="np")["input_features"]
    ids = np.array([[5, 6, 30, 22, 11, 64], [5, 6, 61, 8, 17, 50]])
    out = model(
        input_features=torch.tensor(both), decoder_input_ids=torch.tensor(ids),
        output_hidden_states=True,
    )  # fmt: skip
    # not WhisperForConditionalGeneration.generate, which also splits long recordings
    tokens = hf.GenerationMixin.generate(
        model, torch.tensor(both), decoder_input_ids=torch.tensor(ids[:, :2]),
        max_new_tokens=20, num_beams=1, do_sample=False,
    )  # fmt: skip
    expected = {"sounds": waves, "features": both.swapaxes(1, 2)}
    expected |= {"ids": ids, "logits": out.logits, "encoded": out.encoder_last_hidden_state}
    expected |= {"tokens": tokens}
    expected |= blocks(out.encoder_hidden_states, "encoder_block")
    expected |= blocks(out.decoder_hidden_states, "decoder_block")
    write("whisper", model, expected)
    extractor.save_pretrained(DATA / "whisper")


ALL = [
    bert, bert_masked, bert_classifier, bert_sentence, roberta, distilbert, distilbert_classifier,
    modernbert, modernbert_plain, vit, vit_classifier, dinov2, dinov2_registers, dinov2_classifier,
    siglip_vision, clip, clip_legacy, siglip, whisper,
]  # fmt: skip

if __name__ == "__main__":
    print("transformers", hf.__version__, "torch", torch.__version__)
    torch.manual_seed(0)
    for make in ALL:
        if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
            make()
