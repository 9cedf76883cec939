"""Writes tests/pretrained/data/tokenizers: small tokenizers, and ids by transformers.

Run with transformers 5.24.0, tokenizers 0.23.3 and gguf 0.19.0: `python tools/references/tokenizer_reference.py`.
"""

import json
import pathlib
import pydoc_data.topics
import tempfile

import gguf
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).parents[2] / "tests/pretrained/data/tokenizers"
TEXTS = (
    "Hello world",
    "  Ünïcode 漢字 12345 don't\n\n\tx  ",
    "def f(x):\n    return x**2  # ok",
    "",
    "a<|im_end|>b <think>c",
    "👩‍👩‍👧 <s> </s>",
)
MESSAGES = (
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Name a colour."},
    {"role": "assistant", "content": "Red, <think>of course."},
    {"role": "user", "content": "  Another?\n"},
    {"role": "assistant", "content": "Blue"},
)
TEMPLATE = """{{ bos_token }}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{ message['content'] | trim + '<|im_end|>' }}{% endgeneration %}
{%- else %}
{{- message['content'] | trim + '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def byte_level(folder):
    """Writes a byte-level tokenizer with a chat template; returns what transformers computes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|begin|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(list(pydoc_data.topics.topics.values()), trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{"bos_token": specials[0], "eos_token": specials[2], "pad_token": specials[2]},
        chat_template=TEMPLATE,
    )
    fast.save_pretrained(folder)
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 1]}')
    messages = list(MESSAGES)
    chat = fast.apply_chat_template(
        messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )
    tools = [{"name": "f", "description": "ä < b"}]
    prompt = fast.apply_chat_template(
        messages[:4], tools=tools, add_generation_prompt=True, return_dict=True
    )
    return {
        "texts": [[text, fast(text)["input_ids"]] for text in TEXTS],
        "messages": messages,
        "tools": tools,
        "chat": chat["input_ids"],
        "mask": [bool(m) for m in chat["assistant_masks"]],
        "prompt": prompt["input_ids"],
    }


def sentencepiece(folder):
    """Returns the metadata of a GGUF file in sentencepiece's form, and ids by transformers."""
    words = sorted({w for text in ("hello world", "hear the word", "low") for w in text.split()})
    pieces = sorted({"▁" + w[:i] for w in words for i in range(len(w) + 1)} | set("".join(words)))
    pieces += ["he", "ll", "lo", "wor", "ld", "rd", "or"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *pieces]
    types = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))]
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
    }
    writer = gguf.GGUFWriter(folder / "t.gguf", "llama")
    for name in ("context_length", "embedding_length", "block_count", "feed_forward_length"):
        getattr(writer, f"add_{name}")(8)
    writer.add_head_count(1)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    fast = transformers.AutoTokenizer.from_pretrained(folder, gguf_file="t.gguf")
    texts = ("hello world", "low  word", "the 漢 hell", "", "help</s>")
    return {"metadata": metadata, "texts": [[text, fast(text)["input_ids"]] for text in texts]}


if __name__ == "__main__":
    place = FOLDER / "byte_level"
    place.mkdir(parents=True, exist_ok=True)
    results = {"byte_level": byte_level(place)}
    with tempfile.TemporaryDirectory() as temporary:
        results["sentencepiece"] = sentencepiece(pathlib.Path(temporary))
    (FOLDER / "expected.json").write_text(json.dumps(results, ensure_ascii=False))
