"""Configurations: unknown keys, equality, and mappings that are written back."""

import dataclasses
import pickle

import pytest

import fkeras as fk
from fkeras.engine import FrozenDict, option
from fkeras.engine.config.converters import integer
from fkeras.pretrained.families.table import FAMILIES, family_of
from fkeras.pretrained.tables.config import Config, thaw


class Small(Config):
    width: int = option(default=8, convert=integer(minimum=1))
    depth: int | None = option(default=None, convert=integer(minimum=1, optional=True))

    neutral = FrozenDict({"a reason": ("mood",)})
    defaults = FrozenDict({"wide": {"width": 64}})
    aliases = FrozenDict({"size": ("width",)})

    @classmethod
    def canonical(cls, mapping):
        return {**mapping, "width": mapping["size"]} if "size" in mapping else mapping


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "extra",
    [
        {"mood": "good"},
        {"transformers_version": "5.0", "dtype": "float32", "_name": 3},
        {"odd": None, "even": False, "heads": {}, "list": []},
    ],
)
def test_keys_without_effect_are_kept(extra):
    mapping = {"model_type": "x", "width": 4, **extra}
    config = Small.read(mapping)
    assert config == Small(4, model_type="x")
    assert config.write() == mapping and list(config.write()) == list(mapping)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("value", [0, 1, True, "x", {"a": 1}, [0], 0.5])
def test_unknown_keys_are_rejected(value):
    with pytest.raises(ValueError, match="unknown key 'widht'.*Did you mean 'width'"):
        Small.read({"widht": value})


def test_defaults_depend_on_the_architecture():
    assert Small.read({"model_type": "wide"}).width == 64
    assert Small.read({"model_type": "wide", "width": 3}).width == 3
    assert Small.read({}).width == 8
    assert Small(model_type="wide").width == 64
    assert Small(3, model_type="wide").width == Small(width=3, model_type="wide").width == 3
    # `replace` passes all arguments
    assert dataclasses.replace(Small(), model_type="wide").width == 8


@pytest.mark.exhaustive
def test_the_text_of_a_configuration_is_that_configuration():
    for config in (Small(8, model_type="wide"), Small(model_type="wide"), Small(9), Small()):
        assert eval(repr(config)) == config
        assert Small.from_config(config.get_config()) == config


def test_changed_fields_are_written_and_replace_their_aliases():
    config = Small.read({"size": 5, "depth": 2})
    assert config.width == 5
    assert dataclasses.replace(config, depth=None).write() == {"size": 5, "depth": None}
    assert dataclasses.replace(config, width=6).write() == {"depth": 2, "width": 6}
    # null that is the default is left out
    assert Small(3).write() == {"model_type": "", "width": 3}
    assert Small(3, depth=4).write() == {"model_type": "", "width": 3, "depth": 4}


def test_configurations_compare_what_they_compute():
    read = Small.read({"width": 4, "mood": "good"})
    assert read == Small(4) and hash(read) == hash(Small(4))
    assert read != Small(5) and read != Small(4, beside={"other.json": {"a": 1}})
    assert repr(read) == "Small(4)"
    assert pickle.loads(pickle.dumps(read)).write() == read.write()


def test_frozen_values_become_json():
    assert thaw(FrozenDict({"a": (1, FrozenDict({"b": ()}))})) == {"a": [1, {"b": []}]}


def test_all_unknown_keys_are_listed_and_can_be_ignored():
    mapping = {"width": 3, "first": 1, "second": "x", "inner": {"third": 2, "width": 4}}
    with pytest.raises(
        ValueError, match="unknown keys 'first' with the value 1, 'second' with.*'inner'"
    ):
        Small.read(mapping)
    with pytest.raises(ValueError, match=r"pass ignore_keys=\['second', 'inner'\] to load"):
        Small.read(mapping, ignore_keys="first")
    config = Small.read(mapping, ignore_keys=("first", "second", "inner"))
    # the keys are not written, so that the written file opens
    assert config == Small(3) and config.write() == {"width": 3}
    assert Small.read({"width": 3}, ignore_keys=["width"]).width == 8


def test_keys_of_sections_have_their_paths():
    clip = {"text_config": {"hidden_size": 64, "odd": 1}, "vision_config_dict": {"odder": 2}}
    with pytest.raises(ValueError, match="'text_config.odd' with.*'vision_config_dict.odder' with"):
        fk.pretrained.ClipConfig.read(clip)
    keys = ("text_config.odd", "vision_config_dict.odder")
    assert fk.pretrained.ClipConfig.read(clip, ignore_keys=keys).text_config.hidden_size == 64


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("mapping", "words"),
    [
        ({"hidden_act": "relu2"}, "hidden_act: expected 'gelu'.*received 'relu2'"),
        ({"rope_scaling": [1]}, "rope_scaling: expected a mapping .*received .*1"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e39}}, "rope_scaling: factor: expected"),
        ({"rope_scaling": {"rope_type": "yarn", "depth": 2}}, "rope_scaling: .*depth"),
        (
            {"rope_theta": 1e39},
            r"rope_theta: expected a number from .* to 3\.40.*e\+38, received 1e\+39",
        ),
        ({"rms_norm_eps": 1e-50}, r"rms_norm_eps: expected a number from 1\.17.*e-38"),
        ({"layer_types": ["full_attention"]}, "layer_types: expected a type for each of 32 blocks"),
        ({"partial_rotary_factor": 0.5}, "transformers ignores the key in models of type 'llama'"),
    ],
)
def test_values_are_refused_with_key_value_and_range(mapping, words):
    with pytest.raises(ValueError, match=words) as caught:
        fk.pretrained.LlamaConfig.read({"model_type": "llama", **mapping})
    assert "Did you mean" not in str(caught.value)


def test_no_other_architecture_is_proposed():
    for model_type in ("gemmas", "llama4", "berts"):
        with pytest.raises(ValueError, match=f"received '{model_type}'. Other arch"):
            family_of({"model_type": model_type})


@pytest.mark.parametrize("config", sorted({f.config for f in FAMILIES}, key=lambda c: c.__name__))
def test_arguments_have_the_order_in_which_the_fields_are_declared(config):
    declared = {}
    for base in reversed(config.__mro__):
        for name, kind in vars(base).get("__annotations__", {}).items():
            if "ClassVar" not in str(kind):
                declared[name] = None
    names = [field.name for field in dataclasses.fields(config)]
    assert names == [name for name in declared if name in names]
