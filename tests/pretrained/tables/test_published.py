"""The `config.json` of published checkpoints: all keys are read, and bad values are refused by name."""

import dataclasses
import json
import warnings

import pytest

from fkeras.pretrained.families.gpt2 import GPT2Config
from fkeras.pretrained.families.table import FAMILIES, family_of
from fkeras.pretrained.tables.inert_keys import inert_keys
from tests.pretrained.checks import DATA

PUBLISHED = json.loads((DATA / "published.json").read_text())
BAD = {
    "a text": "?",
    "an empty text": "",
    "true": True,
    "a list": [1],
    "a list of texts": ["?"],
    "a mapping": {"a": 1},
    "zero": 0,
    "a negative number": -3,
    "a fraction": 0.5,
    "beyond float32": 1e39,
    "below float32": 1e-46,
    "infinity": float("inf"),
    "not a number": float("nan"),
    "a large integer": 10**400,
    "null": None,
}
# fields that no key of `config.json` sets
_OWN = ("source", "beside", "layout", "parts", "model_type")


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_read(name):
    mapping = PUBLISHED[name]
    family = family_of(mapping)
    config = family.config.read(mapping)
    assert config.write() == mapping
    fields = {field.name for field in dataclasses.fields(config)}
    # the keys of the reference that are neither fields nor inert are null, false or empty
    others = mapping.keys() - fields - inert_keys(type(config)) - type(config).aliases.keys()
    assert not any(mapping[key] for key in others if not key.startswith("_"))


def outcomes(config, name, base):
    """Reads and builds a configuration with each bad value; yields names of values and messages."""
    family = next(family for family in FAMILIES if family.config is config)
    # another name of the field would precede it
    base = {key: item for key, item in base.items() if name not in config.aliases.get(key, ())}
    for kind, value in BAD.items():
        try:
            family.build(config.read({**base, name: value}))
        except (TypeError, ValueError) as error:
            yield kind, str(error)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(
            family,
            id=family.config.__name__,
            marks=[] if family.config is GPT2Config else [pytest.mark.exhaustive],
        )
        for family in FAMILIES
    ],
)
def test_bad_values_are_refused_by_name(family):
    base = family.tiny.write()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for field in dataclasses.fields(family.config):
            if field.name in _OWN:
                continue
            messages = dict(outcomes(family.config, field.name, base))
            assert {"a text", "a mapping", "a list of texts"} <= messages.keys(), field.name
            # null is the default, which need not fit the other fields
            for kind, message in messages.items() - {("null", messages.get("null"))}:
                assert field.name in message, (kind, message)
