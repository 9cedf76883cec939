"""Writes tests/pretrained/data/vocabularies.json.gz: small folders without tokenizer.json, and ids by transformers.

Run with transformers 5.24.0, tokenizers 0.23.3 and sentencepiece 0.2.3:
`python tools/references/vocabulary_reference.py`.
"""

import base64
import gzip
import io
import json
import pathlib
import pydoc_data.topics
import tempfile

import sentencepiece
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

FILE = pathlib.Path(__file__).parents[2] / "tests/pretrained/data/vocabularies.json.gz"
TEXTS = (
    "Hello world, the value of the expression",
    "",
    " ",
    "  two  spaces at   both ends  ",
    "lines\nand\r\n\ttabs\n\n",
    "Ünïcode café naïve ÀÉ",
    "e\u0301 i\u0308 decomposed",
    "漢字かな交じり 한국어",
    "👩‍👩‍👧 🙂🙂 ok",
    "don't you'll WE'RE I'M",
    "12345 3.14 1,000",
    "the <s> x </s> y",
    "a<|endoftext|>b <|startoftext|>",
    "a [SEP] text [MASK]",
    "an <extra_id_0> <pad> <unk> <mask><eos>",
    "▁under▁score",
    "\u00a0nbsp\u2003em\u200bzero\ufeff",
    "ﬁ ﬀ ＡＢＣ ½ ①",
    "İstanbul ẞß",
    "\x01\x7f control",
    "a" * 120,
    "العربية עברית हिन्दी",
    "punct!?.,;:'\"()[]{}@#$%^&*_-+=~`|\\/",
    "<start_of_turn>user<end_of_turn>",
    "<|notimestamps|> and <|de|>",
    "!!!",
)
CORPUS = list(pydoc_data.topics.topics.values())
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def wordpiece():
    """Returns the lines of a vocabulary of BERT."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=420,
        special_tokens=specials,
        initial_alphabet=list("漢字éü"),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    vocabulary = tokenizer.get_vocab()
    return "".join(f"{token}\n" for token in sorted(vocabulary, key=vocabulary.__getitem__))


def bpe(specials, suffix=""):
    """Returns the texts of vocab.json and merges.txt."""
    options = {"end_of_word_suffix": suffix} if suffix else {}
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360 + 256 * bool(suffix),
        initial_alphabet=alphabet,
        show_progress=False,
        **options,
    )
    texts = [text.lower() for text in CORPUS] if suffix else CORPUS
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = model["vocab"]
    if suffix:  # every byte may end a word
        vocabulary |= {
            f"{c}</w>": len(vocabulary) + i
            for i, c in enumerate(c for c in alphabet if f"{c}</w>" not in vocabulary)
        }
    vocabulary = {**{t: i for i, t in enumerate(specials)}, **vocabulary}
    vocabulary = {token: i for i, token in enumerate(vocabulary)}
    merges = "".join(f"{a} {b}\n" for a, b in model["merges"])
    return json.dumps(vocabulary, ensure_ascii=False), f"#version: 0.2\n{merges}"


def pieces(algorithm, **options):
    """Returns a model of sentencepiece with a few replacements of characters."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        pairs = {
            "ﬁ": "fi",
            "ﬀ": "ff",
            "Ａ": "A",
            "Ｂ": "B",
            "½": "1⁄2",
            "\u00a0": " ",
            "e\u0301": "é",
        }
        for source, target in pairs.items():
            rules.write(
                "\t".join(" ".join(f"{ord(c):X}" for c in t) for t in (source, target)) + "\n"
            )
        rules.flush()
        writer = io.BytesIO()
        if algorithm == "unigram":
            options |= {"normalization_rule_tsv": rules.name}
        else:
            options = {
                **{"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
                **options,
            }
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([t for text in CORPUS for t in text.split("\n") if t]),
            **{"model_writer": writer, "model_type": algorithm, "minloglevel": 2},
            **{"num_threads": 1, "max_sentence_length": 20000, "character_coverage": 1.0},
            **options,
        )
    return writer.getvalue()


def folders():
    """Returns class, files and architecture of each folder by name."""
    words = wordpiece()
    vocabulary, merges = bpe(["<|endoftext|>"])
    roberta = bpe(list(SPECIALS))
    clip = bpe([], "</w>")
    size = len(json.loads(clip[0]))
    clip_vocabulary = {
        **json.loads(clip[0]),
        **{"<|startoftext|>": size, "<|endoftext|>": size + 1},
    }
    timed = [
        "<|startoftranscript|>",
        "<|en|>",
        "<|zh|>",
        "<|de|>",
        "<|translate|>",
        "<|transcribe|>",
    ]
    count = len(json.loads(vocabulary))
    added = {token: count + i for i, token in enumerate([*timed, "<|notimestamps|>"])}
    llama = pieces("bpe", vocab_size=480, byte_fallback=True, split_digits=True)
    trimmed = pieces("bpe", vocab_size=200, remove_extra_whitespaces=True)
    gemma = pieces(
        *["bpe"],
        **{
            "vocab_size": 480,
            "byte_fallback": True,
            "split_digits": True,
            "add_dummy_prefix": False,
        },
        **{"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3},
        **{"pad_piece": "<pad>", "eos_piece": "<eos>", "bos_piece": "<bos>"},
        user_defined_symbols=["<mask>", "<start_of_turn>", "<end_of_turn>"],
    )
    t5 = pieces("unigram", vocab_size=220, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    xlm = pieces("unigram", vocab_size=220, unk_id=0, bos_id=1, eos_id=2)
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    ends = {"add_bos_token": True, "add_eos_token": False}
    turns = ["<start_of_turn>", "<end_of_turn>"]
    plain = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    strip = {**plain, "lstrip": True}
    return {
        "bert": ("bert", {"vocab.txt": words}),
        "bert_cased": (
            "bert",
            {
                "vocab.txt": words,
                "tokenizer_config.json": {
                    "do_lower_case": False,
                    "tokenizer_class": "BertTokenizer",
                },
                "special_tokens_map.json": {"mask_token": {"content": "[MASK]", **strip}},
            },
        ),
        "bert_accents": (
            "distilbert",
            {
                "vocab.txt": words,
                "tokenizer_config.json": {"strip_accents": False, "tokenize_chinese_chars": False},
                "added_tokens.json": {"<s>": words.count("\n"), "ün": words.count("\n") + 1},
            },
        ),
        "gpt2": ("gpt2", {"vocab.json": vocabulary, "merges.txt": merges}),
        "gpt2_prefix": (
            "gpt2",
            {
                **{"vocab.json": vocabulary, "merges.txt": merges},
                "tokenizer_config.json": {
                    **{"add_prefix_space": True, "pad_token": "<pad>"},
                    **{"add_bos_token": True, "tokenizer_class": "GPT2Tokenizer"},
                },
                "added_tokens.json": {"<mask>": count},
            },
        ),
        "qwen2": (
            "qwen2",
            {
                **{"vocab.json": vocabulary, "merges.txt": merges},
                "tokenizer_config.json": {
                    "tokenizer_class": "Qwen2Tokenizer",
                    "added_tokens_decoder": {
                        "0": {"content": "<|endoftext|>", **plain, "special": True},
                        str(count): {"content": "<s>", **plain, "special": True},
                        str(count + 1): {"content": "<pad>", **plain, "special": False},
                    },
                    **{"eos_token": "<s>", "pad_token": "<|endoftext|>"},
                    "additional_special_tokens": ["<s>"],
                },
            },
        ),
        "roberta": (
            "roberta",
            {
                **{"vocab.json": roberta[0], "merges.txt": roberta[1]},
                "special_tokens_map.json": {**tokens, "mask_token": {"content": "<mask>", **strip}},
            },
        ),
        "clip": (
            "clip",
            {
                **{"vocab.json": json.dumps(clip_vocabulary), "merges.txt": clip[1]},
                "tokenizer_config.json": {
                    "tokenizer_class": "CLIPTokenizer",
                    "do_lower_case": True,
                },
            },
        ),
        "whisper": (
            "whisper",
            {
                **{"vocab.json": vocabulary, "merges.txt": merges, "added_tokens.json": added},
                "tokenizer_config.json": {"additional_special_tokens": list(added)},
            },
        ),
        "whisper_german": (
            "whisper",
            {
                **{"vocab.json": vocabulary, "merges.txt": merges, "added_tokens.json": added},
                "tokenizer_config.json": {
                    **{"language": "de", "task": "transcribe"},
                    "additional_special_tokens": list(added),
                },
            },
        ),
        "llama": (
            "llama",
            {
                "tokenizer.model": llama,
                "tokenizer_config.json": {**tokens, **ends, "tokenizer_class": "LlamaTokenizer"},
                "special_tokens_map.json": {k: {"content": v, **plain} for k, v in tokens.items()},
            },
        ),
        "llama_legacy": (
            "llama",
            {
                "tokenizer.model": llama,
                "tokenizer_config.json": {
                    **{**tokens, "add_eos_token": True, "add_bos_token": True, "legacy": True},
                    "added_tokens_decoder": {
                        str(i): {"content": t, **plain, "special": True}
                        for i, t in enumerate(("<unk>", "<s>", "</s>"))
                    }
                    | {"480": {"content": "<pad>", **plain, "special": False}},
                    **{"tokenizer_class": "LlamaTokenizerFast", "pad_token": "<pad>"},
                },
            },
        ),
        "mistral": (
            "mistral",
            {
                "tokenizer.model": llama,
                "tokenizer_config.json": {**tokens, **ends, "tokenizer_class": "LlamaTokenizer"},
            },
        ),
        "mistral_trimmed": (
            "mistral",
            {"tokenizer.model": trimmed, "tokenizer_config.json": {**tokens, **ends}},
        ),
        "gemma": (
            "gemma",
            {
                "tokenizer.model": gemma,
                "tokenizer_config.json": {
                    **{"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", **ends},
                    **{"tokenizer_class": "GemmaTokenizer", "unk_token": "<unk>"},
                    "additional_special_tokens": turns,
                },
            },
        ),
        "t5": ("t5", {"spiece.model": t5}),
        "t5_few": (
            "t5",
            {
                "spiece.model": t5,
                "tokenizer_config.json": {
                    **{"extra_ids": 3, "eos_token": "</s>", "unk_token": "<unk>"},
                    **{"pad_token": "<pad>", "tokenizer_class": "T5Tokenizer"},
                    "additional_special_tokens": [f"<extra_id_{i}>" for i in range(3)],
                },
            },
        ),
        "xlm_roberta": (
            "xlm-roberta",
            {
                "sentencepiece.bpe.model": xlm,
                "special_tokens_map.json": {**tokens, "mask_token": {"content": "<mask>", **strip}},
            },
        ),
        "siglip": (
            "siglip",
            {"spiece.model": t5, "tokenizer_config.json": {"tokenizer_class": "SiglipTokenizer"}},
        ),
    }


def ids_of(folder):
    """Returns ids and texts by transformers."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text)["input_ids"] for text in TEXTS]
    plain = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
    return {
        "class": type(tokenizer).__name__,
        "ids": ids,
        "plain": plain,
        "decoded": [tokenizer.decode(row, skip_special_tokens=True) for row in ids],
        "named": {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")},
    }


def main():
    """Writes the file."""
    results, contents = {}, []
    for name, (model_type, files) in folders().items():
        files = {
            n: json.dumps(v, ensure_ascii=False) if isinstance(v, dict) else v
            for n, v in files.items()
        }
        data = {n: v.encode() if isinstance(v, str) else v for n, v in files.items()}
        data["config.json"] = json.dumps({"model_type": model_type}).encode()
        with tempfile.TemporaryDirectory() as folder:
            for n, content in data.items():
                (pathlib.Path(folder) / n).write_bytes(content)
            results[name] = ids_of(folder)
        for content in data.values():
            if content not in contents:
                contents.append(content)
        results[name]["files"] = {n: contents.index(content) for n, content in data.items()}
    text = json.dumps(
        {
            "texts": TEXTS,
            "contents": [base64.b64encode(c).decode() for c in contents],
            "folders": results,
        }
    )
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{FILE.stat().st_size} bytes, {len(results)} folders")


if __name__ == "__main__":
    main()
