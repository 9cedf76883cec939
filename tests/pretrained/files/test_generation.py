"""`loaded.generation`: end tokens and sampling settings of folders and GGUF files."""

import json
import shutil

import pytest

import fkeras as fk
from fkeras.host.containers.limits import Limits
from fkeras.pretrained.files.generation import generation_of_gguf, read_generation
from tests.pretrained import checks

TOKENIZER = checks.DATA / "tokenizers/byte_level"
CONFIG = {"eos_token_id": 9, "temperature": 0.7, "hidden_size": 3}


def read(folder, config, settings=None, tokenizer=None):
    if settings is not None:
        text = settings if isinstance(settings, str) else json.dumps(settings)
        (folder / "generation_config.json").write_text(text)
    return read_generation(str(folder), config, tokenizer, Limits())


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        (None, (9,)),
        ({"eos_token_id": 2, "top_p": 0.5}, (2,)),
        ({"eos_token_id": [2, 7]}, (2, 7)),
        # a file without end tokens: those of config.json
        ({"top_p": 0.5}, (9,)),
        ({"eos_token_id": None}, (9,)),
        ({"eos_token_id": -1}, (9,)),
    ],
)
def test_end_tokens_come_from_the_files(tmp_path, settings, ends):
    found = read(tmp_path, CONFIG, settings)
    assert found.end_ids == ends
    wanted = {"eos_token_id": 9, "temperature": 0.7} if settings is None else settings
    assert dict(found.settings) == wanted


def test_the_tokenizer_has_end_tokens_too(tmp_path):
    pytest.importorskip("tokenizers")
    tokenizer = fk.pretrained.Tokenizer.read(TOKENIZER)
    end = tokenizer.eos_id
    assert read(tmp_path, {"eos_token_id": 9}, tokenizer=tokenizer).end_ids == (9, end)
    assert read(tmp_path, {}, tokenizer=tokenizer).end_ids == (end,)
    nested = {"text_config": {"eos_token_id": [8, end]}}
    assert read(tmp_path, nested, tokenizer=tokenizer).end_ids == (8, end)
    assert read(tmp_path, {}, {"eos_token_id": 4}, tokenizer).end_ids == (4,)
    assert read(tmp_path, {}, {}).end_ids == ()
    assert generation_of_gguf(tokenizer).end_ids == tokenizer.end_ids
    assert generation_of_gguf(None) == ((), {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{", "expected JSON"),
        ([1], "as a dictionary"),
        *(
            ({"eos_token_id": ids}, "expected ids as eos_token_id")
            for ids in ("</s>", [True], -5, 1.5, 2**40, {"a": 1})
        ),
    ],
)
def test_damaged_files_are_errors(tmp_path, settings, message):
    with pytest.raises(fk.FileError, match=message):
        read(tmp_path, {}, settings)


@pytest.mark.exhaustive
def test_loaded_models_have_the_settings_of_their_folder(tmp_path):
    folder = shutil.copytree(checks.DATA / "llama", tmp_path / "llama")
    assert fk.pretrained.load(folder).generation.end_ids == (2,)
    free = fk.generate(fk.pretrained.load(folder), None, [[1, 5]], max_new_tokens=8, end_ids=())
    end = int(free.tokens[0, 3])
    settings = {"eos_token_id": end, "do_sample": True, "temperature": 0.5}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    loaded = fk.pretrained.load(folder)
    assert dict(loaded.generation.settings) == settings
    found = fk.generate(loaded, loaded.state, [[1, 5]], max_new_tokens=8)
    assert found.lengths.tolist() == [free.tokens[0].tolist().index(end) + 1]
