"""The `config.json` of published checkpoints: all keys are read, and bad values are refused by name.

An entry of `published.json` has the configuration and its source: a public repository and path, or the class of
transformers whose documentation describes the checkpoint by its defaults. No public file confirms keys "from memory"
and entries that are "unconfirmed". "part" is the part of the folder that is opened, "refused" the reason why fkeras
does not open the checkpoint.
"""

import dataclasses
import json
import warnings

import pytest

from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.pretrained.families.gpt2 import GPT2Config
from fkeras.pretrained.families.table import FAMILIES, family_of
from fkeras.pretrained.files.float8 import dequantized
from fkeras.pretrained.files.folder import Checkpoint
from fkeras.pretrained.files.text_part import with_part
from fkeras.pretrained.tables.inert_keys import inert_keys
from fkeras.pretrained.tables.layout import Layout
from fkeras.pretrained.tables.state import state_entries
from fkeras.saving.weights.filling import abstract_build
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


def opened(name):
    """The family and the keys of an entry; a refusal is a ValueError."""
    entry = PUBLISHED[name]
    checkpoint = with_part(Checkpoint("", entry["config"], {}, Layout(())), entry.get("part"))
    family = family_of(checkpoint.mapping)
    mapping = dequantized(checkpoint, entry["config"].get("quantization_config")).mapping
    return family, family.config.read(mapping), mapping


def test_most_entries_have_a_source():
    sources = [entry["source"] for entry in PUBLISHED.values()]
    assert sum("unconfirmed" not in text and "memory" not in text for text in sources) >= 60


@pytest.mark.one_in(20)
@pytest.mark.parametrize("name", [name for name in PUBLISHED if "refused" not in PUBLISHED[name]])
def test_published_configurations_are_opened_as_shapes(name):
    family, config, _ = opened(name)
    model, state = abstract_build(family.build(config))
    leaves = zip(skeleton_of(model).names, leaves_of(model), strict=True)
    shapes = {path: leaf.shape for path, leaf in leaves if leaf is not None}
    shapes |= {path: leaf.shape for path, leaf in state_entries(state).items()}
    matches = [match for row in family.names(config) for match in row.matches()]
    assert {path for match in matches for path in match.weights} == shapes.keys()
    for match in matches:
        assert len(match.tensor_shapes(shapes)) == len(match.tensors)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if "refused" in PUBLISHED[name]])
def test_other_published_configurations_are_refused_for_a_named_reason(name):
    with pytest.raises(ValueError, match=PUBLISHED[name]["refused"]):
        opened(name)


@pytest.mark.one_in(20)
@pytest.mark.parametrize("name", [name for name in PUBLISHED if "refused" not in PUBLISHED[name]])
def test_published_configurations_are_read(name):
    family, config, mapping = opened(name)
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
