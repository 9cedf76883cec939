"""Folders without tokenizer.json: ids of transformers, damaged and contradictory files."""

import contextlib
import json
import random
import shutil
import sys

import pytest

import fkeras as fk
from fkeras.pretrained import Tokenizer
from tests.pretrained import tokenizer_folders
from tests.pretrained.checks import DATA
from tests.pretrained.tokenizer_folders import GOOD, number, piece, text, write

pytest.importorskip("tokenizers")

EXPECTED = tokenizer_folders.EXPECTED
FOLDERS = EXPECTED["folders"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_ids_equal_those_of_transformers(name, tmp_path):
    expected = FOLDERS[name]
    tokenizer = Tokenizer.read(write(tmp_path, name))
    for place, value in enumerate(EXPECTED["texts"]):
        if name == "siglip" and ("</s>" in value or "<unk>" in value):
            continue  # each part of a text between special tokens begins with a space, not only the first
        plain = tokenizer.encode(value, add_special_tokens=False)
        assert plain == expected["plain"][place], value
        ids = tokenizer.encode(value)
        assert ids == expected["ids"][place], value
        assert tokenizer.decode(ids) == expected["decoded"][place], value
    named = {name: getattr(tokenizer, f"{name}_id") for name in ("bos", "eos", "pad")}
    assert named == expected["named"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FOLDERS)
def test_a_written_folder_has_the_bytes_of_the_original(name, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    tokenizer = Tokenizer.read(write(source, name))
    tokenizer.write(target)
    (target / "config.json").write_bytes((source / "config.json").read_bytes())
    for path in source.iterdir():
        written = (target / path.name).read_bytes()
        if path.name != "special_tokens_map.json":
            assert written == path.read_bytes()
        else:
            assert json.loads(written).items() >= json.loads(path.read_bytes()).items()
    again = Tokenizer.read(target)
    assert again == tokenizer
    assert again.originals == tokenizer.originals
    assert Tokenizer.from_config(tokenizer.get_config()) == tokenizer


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", ["bert", "llama", "gemma", "roberta", "t5", "clip"])
def test_texts_of_users_contain_no_control_tokens(name, tmp_path):
    tokenizer = Tokenizer.read(write(tmp_path, name))
    controls = {tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id} - {None}
    for token in ("</s>", "<s>", "[SEP]", "<eos>", "<|endoftext|>", "<start_of_turn>"):
        ids = tokenizer.encode(f"a {token} b", special_tokens=False, add_special_tokens=False)
        assert not controls.intersection(ids)
        assert tokenizer._fast.token_to_id(token) not in ids or token not in tokenizer._special


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["llama", "llama_legacy", "gemma", "gpt2_prefix", "xlm_roberta"])
def test_a_text_with_a_bos_token_gets_no_second_one(name, tmp_path):
    tokenizer = Tokenizer.read(write(tmp_path, name))
    bos = tokenizer._named["bos_token"]
    assert tokenizer.encode(f"{bos}a").count(tokenizer.bos_id) == 1
    template = "{{ bos_token }}{{ messages[0].content }}"
    ids = tokenizer.chat([{"role": "user", "content": bos}], template=template)
    assert ids.count(tokenizer.bos_id) == 1


def test_llama_begins_with_bos_unless_the_files_differ(tmp_path):
    tokenizer = Tokenizer.read(write(tmp_path, "llama", config=None, special_tokens_map_json=None))
    assert tokenizer.encode("a")[0] == tokenizer.bos_id == 1
    without = write(tmp_path, "llama", config={"add_bos_token": False, "add_eos_token": True})
    assert Tokenizer.read(without).encode("a") == [*tokenizer.encode("a")[1:], 2]


def test_originals_beside_tokenizer_json_are_kept(tmp_path):
    tokenizer = Tokenizer.read(write(tmp_path, "bert"))
    tokenizer.write(tmp_path)
    (tmp_path / "vocab.txt").write_bytes(b"\xff")  # tokenizer.json counts
    again = Tokenizer.read(tmp_path)
    assert again == tokenizer
    assert again.originals == {"vocab.txt": b"\xff"}
    assert repr(again).endswith("vocab.txt)")


@pytest.mark.exhaustive
def test_folders_without_a_vocabulary(tmp_path):
    assert Tokenizer.read(write(tmp_path, "bert_accents", vocab_txt=None)) is None


@pytest.mark.exhaustive
def test_the_class_in_the_configuration_counts(tmp_path):
    config = {"tokenizer_class": "GPT2TokenizerFast"}
    plain = Tokenizer.read(write(tmp_path, "roberta", config=config))
    assert plain.encode("a") == Tokenizer.read(tmp_path).encode("a", add_special_tokens=False)
    for name in ("PreTrainedTokenizerFast", None):
        tokenizer = Tokenizer.read(write(tmp_path, "roberta", config={"tokenizer_class": name}))
        assert len(tokenizer.encode("a")) == len(plain.encode("a")) + 2


def test_special_tokens_that_only_the_configuration_names_follow_the_vocabulary(tmp_path):
    config = {"pad_token": "<none>", "additional_special_tokens": [{"content": "<more>"}]}
    tokenizer = Tokenizer.read(write(tmp_path, "gpt2", config=config))
    assert (tokenizer.pad_id, tokenizer.encode("<more>"), tokenizer.size) == (361, [362], 363)


def test_null_removes_a_special_token(tmp_path):
    words = b"[UNK]\n[CLS]\n[SEP]\na\n"
    config = {"mask_token": None, "pad_token": None}
    tokenizer = Tokenizer.read(write(tmp_path, "bert", vocab_txt=words, config=config))
    assert (tokenizer.pad_id, tokenizer.encode("a b")) == (None, [1, 3, 0, 2])


# -- damaged and contradictory files --------------------------------------------------------------

SPANS = piece("<unk>", kind=2) + piece("</s>", kind=3) + piece("<pad>", kind=3) + piece("a")
WORDS = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "changed", "file", "message"),
    [
        ("bert", {"vocab_txt": b"\xff"}, "vocab.txt", "expected UTF-8"),
        ("bert", {"vocab_txt": WORDS + b"a\n"}, "vocab.txt", "'a' in the lines 6 and 7"),
        ("bert", {"vocab_txt": b"a\nb\n"}, "vocab.txt", r"unknown token '\[UNK\]'"),
        ("bert", {"vocab_txt": b""}, "vocab.txt", "unknown token"),
        ("bert", {"vocab_txt": b"[UNK]\n[CLS]\n"}, "vocab.txt", r"the sep_token '\[SEP\]'"),
        ("gpt2", {"vocab_json": {"a": 0}, "merges_txt": b""}, "vocab.json", "the bos_token"),
        (
            "mistral",
            {"tokenizer_model": GOOD, "config": {}},
            "tokenizer.model",
            "the bos_token '<s>'",
        ),
        ("bert", {"config": {"do_lower_case": 1}}, "tokenizer_config.json", "do_lower_case"),
        ("bert", {"config": {"strip_accents": "x"}}, "tokenizer_config.json", "strip_accents"),
        ("bert", {"config": {"mask_token": 3}}, "tokenizer_config.json", "mask_token"),
        ("bert", {"config": {"mask_token": {"a": 1}}}, "tokenizer_config.json", "mask_token"),
        ("bert", {"config": {"tokenizer_class": 3}}, "tokenizer_config.json", "tokenizer_class"),
        (
            "bert",
            {"config": {"tokenizer_class": "BertTokeniser"}},
            "tokenizer_config.json",
            "'BertTokeniser'.*BertTokenizer",
        ),
        ("bert", {"config": {"tokenizer_class": "T5Tokenizer"}}, "tokenizer.model", "vocab.txt"),
        ("bert", {"config_json": {"model_type": "vit"}}, "tokenizer_config.json", "'vit'"),
        ("bert", {"config_json": {}}, "tokenizer_config.json", "'None'"),
        ("bert", {"config_json": b"["}, "config.json", "JSON"),
        ("bert", {"config": b"[]"}, "tokenizer_config.json", "expected the text"),
        ("bert", {"added": {"xyz": 9999}}, "added_tokens.json", "id 420 after.*received 9999"),
        ("bert", {"added": {"[CLS]": 9999}}, "added_tokens.json", "the id 2.*received 9999"),
        ("bert", {"added": {"x": "1"}}, "added_tokens.json", "'1'"),
        ("bert", {"added": b"[]"}, "added_tokens.json", "expected the text"),
        (
            "bert",
            {"config": {"added_tokens_decoder": {"7": {"content": "[CLS]"}}}},
            "tokenizer_config.json",
            "the id 2.*received 7",
        ),
        (
            "bert",
            {"config": {"added_tokens_decoder": {"-7": {"content": "[CLS]"}}}},
            "tokenizer_config.json",
            "ids as keys",
        ),
        (
            "bert",
            {"config": {"added_tokens_decoder": {"2": {"content": "[CLS]", "lstrip": 1}}}},
            "tokenizer_config.json",
            "lstrip",
        ),
        ("bert", {"config": {"cls_token": None}}, "tokenizer_config.json", "cls_token.*null"),
        ("bert", {"config": {"unk_token": None}}, "vocab.txt", "unknown token None"),
        ("whisper", {"config": {"eos_token": None}}, "tokenizer_config.json", "eos_token"),
        (
            "xlm_roberta",
            {"config": {"pad_token": None, "added_tokens_decoder": {}}},
            "tokenizer_config.json",
            "pad_token",
        ),
        ("bert", {"added": {"": 420}}, "added_tokens.json", "an empty text"),
        ("bert", {"added": {"x y": True}}, "added_tokens.json", "'x y'"),
        ("gpt2", {"vocab_json": {"a" * 9999: None}}, "vocab.json", "expected an id"),
        ("bert", {"config": {"added_tokens_decoder": []}}, "tokenizer_config.json", "decoder"),
        (
            "bert",
            {"config": {"additional_special_tokens": "x"}},
            "tokenizer_config.json",
            "list of tokens",
        ),
        ("gpt2", {"merges_txt": None}, "merges.txt", "expected the file merges.txt"),
        ("gpt2", {"vocab_json": None}, "vocab.json", "expected the file vocab.json"),
        ("gpt2", {"merges_txt": b"#version\nt h e\n"}, "merges.txt", "line 2.*'t h e'"),
        ("gpt2", {"merges_txt": "漢 字\n".encode()}, "merges.txt", "line 1"),
        ("gpt2", {"vocab_json": {"a": 1}}, "vocab.json", "the ids 0 to 0"),
        ("gpt2", {"vocab_json": {"a": 0, "b": 0}}, "vocab.json", "the ids 0 to 1"),
        ("gpt2", {"vocab_json": {"a": "0"}}, "vocab.json", "received"),
        ("gpt2", {"vocab_json": b'{"a": 0, "a": 1}'}, "vocab.json", "twice"),
        ("gpt2", {"config": {"add_prefix_space": 3}}, "tokenizer_config.json", "add_prefix_space"),
        ("whisper", {"config": {"language": "german"}}, "tokenizer_config.json", "such as 'es'"),
        ("whisper", {"added": None, "config": {}}, "added_tokens.json", "startoftranscript"),
        ("llama", {"tokenizer_model": b"\n"}, "tokenizer.model", "sentencepiece"),
        ("llama", {"tokenizer_model": GOOD[:9]}, "tokenizer.model", "sentencepiece"),
        ("llama", {"tokenizer_model": GOOD + GOOD}, "tokenizer.model", "'<unk>' twice"),
        (
            "llama",
            {"tokenizer_model": piece("a") + text(2, number(3, 2))},
            "tokenizer.model",
            "one piece for unknown characters, received 0",
        ),
        ("llama", {"tokenizer_model": piece("<unk>", kind=2)}, "tokenizer.model", "unigram"),
        (
            "llama",
            {"tokenizer_model": GOOD + piece("a" * 300)},
            "tokenizer.model",
            "at most 256 characters",
        ),
        ("llama", {"spiece_model": GOOD}, "spiece.model", "different files"),
        ("t5", {"spiece_model": GOOD}, "spiece.model", "received bpe"),
        ("t5", {"config": {"extra_ids": 1 << 40}}, "tokenizer_config.json", "extra_ids"),
        ("t5", {"config": {"extra_ids": -1}}, "tokenizer_config.json", "extra_ids"),
        (
            "xlm_roberta",
            {"sentencepiece_bpe_model": piece("a") + piece("<unk>", kind=2)},
            "sentencepiece.bpe.model",
            "'<unk>', '<s>' and '</s>' first",
        ),
        (
            "t5",
            {"spiece_model": SPANS + text(3, text(2, b"\xff\xff\xff\xff"))},
            "spiece.model",
            "length of its search tree",
        ),
    ],
)
def test_damaged_and_contradictory_files(name, changed, file, message, tmp_path):
    write(tmp_path, name, **changed)
    with pytest.raises(fk.FileError, match=message) as caught:
        Tokenizer.read(tmp_path)
    assert caught.value.file == str(tmp_path / file)


def test_a_replacement_that_grows_is_rejected(tmp_path):
    table = (4).to_bytes(4, "little") + b"\0" * 4 + b"x" * 5000 + b"\0"
    data = SPANS + text(3, text(2, table))
    with pytest.raises(fk.FileError, match="times longer") as caught:
        Tokenizer.read(write(tmp_path, "t5", spiece_model=data))
    assert caught.value.file == str(tmp_path / "spiece.model")


def test_files_above_the_limits(tmp_path):
    write(tmp_path, "llama")
    with pytest.raises(fk.FileError, match="at most 100 pieces"):
        Tokenizer.read(tmp_path, limits=fk.Limits(objects=100))
    with pytest.raises(fk.FileError, match="at most 1000 bytes") as caught:
        Tokenizer.read(tmp_path, limits=fk.Limits(config_bytes=1000))
    assert caught.value.file == str(tmp_path / "tokenizer.model")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name", ["bert_cased", "qwen2", "whisper", "llama_legacy", "t5_few", "siglip"]
)
def test_damaged_bytes_raise_no_other_errors(name, tmp_path):
    rng = random.Random(0)
    good = tokenizer_folders.files(name)
    for _ in range(12):
        write(tmp_path, name)
        file = rng.choice(sorted(good))
        data = bytearray(good[file])
        start = rng.randrange(len(data))
        data[start : start + rng.choice([0, 1, 9])] = rng.choice([b"", b"{", b"\0", b"\xff", b"99"])
        (tmp_path / file).write_bytes(data)
        with contextlib.suppress(ValueError):  # FileError is one
            tokenizer = Tokenizer.read(tmp_path)
            if tokenizer is not None:
                tokenizer.decode(tokenizer.encode("a ﬁ b", special_tokens=False))


@pytest.mark.parametrize(
    "originals",
    [{"vocab.txt": "a"}, {"vocab": b"a"}, {"config.json": b"{}"}, {"tokenizer.json": b""}],
)
def test_originals_are_bytes_by_name(originals):
    with pytest.raises(ValueError, match="expected the bytes of the files"):
        Tokenizer({"tokenizer.json": "{}"}, originals)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_the_package_is_needed_only_for_texts(name, tmp_path, monkeypatch):
    for module in [n for n in sys.modules if n.partition(".")[0] == "tokenizers"]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    tokenizer = Tokenizer.read(write(tmp_path, name))
    assert repr(tokenizer).startswith("Tokenizer(files: ")
    with pytest.raises(ImportError, match=r"needs the package tokenizers\b"):
        tokenizer.encode("a")


@pytest.mark.exhaustive
def test_a_model_is_loaded_and_written_with_the_tokenizer(tmp_path):
    folder, target = tmp_path / "folder", tmp_path / "target"
    shutil.copytree(DATA / "bert", folder, ignore=shutil.ignore_patterns("*.npz"))
    words = tokenizer_folders.files("bert")["vocab.txt"]
    (folder / "vocab.txt").write_bytes(words)
    loaded = fk.pretrained.load(folder)
    assert loaded.tokenizer.encode("the") == [2, *loaded.tokenizer.encode("the")[1:-1], 3]
    fk.pretrained.save(target, *loaded[:2], loaded.config, tokenizer=loaded.tokenizer)
    assert (target / "vocab.txt").read_bytes() == words
    assert fk.pretrained.load(target).tokenizer == loaded.tokenizer
    (folder / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(fk.FileError, match="expected UTF-8") as caught:
        fk.pretrained.load(folder)
    assert caught.value.file == str(folder / "vocab.txt")
