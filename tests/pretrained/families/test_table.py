"""The table of families: every tiny configuration is built, written and read again."""

import json
import re

import jax
import pytest

import fkeras as fk
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.pretrained.families.table import FAMILIES, family_of, family_of_config, family_of_gguf
from fkeras.saving.weights.filling import abstract_build
from tests.support.paths import ROOT
from tests.support.quick_cases import quick_cases

TYPES = [(name, family) for family in FAMILIES for name in family.classes]
BY_NAME = {next(iter(family.classes)): family for family in FAMILIES}


def test_no_architecture_has_two_families():
    names = [name for name, _ in TYPES]
    assert len(names) == len(set(names)) > 20
    for name, family in TYPES:
        assert family_of({"model_type": name}) is family
        assert family_of({"model_type": name, "architectures": family.classes[name]}) is family
    for family in FAMILIES:
        for name in family.gguf.architectures if family.gguf else ():
            assert family_of_gguf({"general.architecture": name}) is family
    mixtral = {"general.architecture": "llama", "llama.expert_count": 8}
    assert "mixtral" in family_of_gguf(mixtral).classes


@pytest.mark.exhaustive
def test_the_page_lists_every_family():
    table = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in (ROOT / "docs/guides/pretrained.md").read_text().splitlines()
        if line.startswith("| ") and "Config`" in line
    ]
    listed = {}
    for _, types, configs, has_gguf in table:
        for name in re.findall(r"`([\w-]+)`", types):
            listed[name] = (re.findall(r"`(\w+)`", configs), has_gguf == "yes")
    assert listed.keys() == {name for name, _ in TYPES}
    for name, family in TYPES:
        configs, has_gguf = listed[name]
        assert family.config in [getattr(fk.pretrained, config) for config in configs]
        assert has_gguf == (family.gguf is not None), name


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", quick_cases(BY_NAME, "llama", "gemma2", "bert", "vit"))
def test_the_tiny_configuration_is_written_and_read(name, tmp_path):
    family = BY_NAME[name]
    config = family.tiny
    assert family_of_config(config) is family
    model = fk.pretrained.build(config).build(jax.random.key(0))
    fk.pretrained.save(tmp_path, model, model.init_state(), config)
    loaded = fk.pretrained.load(tmp_path)
    assert loaded.model == model
    assert loaded.config == config
    fk.pretrained.save(tmp_path / "again", loaded.model, loaded.state, loaded.config)
    for path in tmp_path.rglob("*.json"):
        if path.parent == tmp_path:
            assert json.loads(path.read_text()) == json.loads(
                (tmp_path / "again" / path.name).read_text()
            )
    weights = (tmp_path / "model.safetensors").read_bytes()
    assert weights == (tmp_path / "again/model.safetensors").read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "family", [f for f in FAMILIES if f.gguf], ids=lambda family: next(iter(family.classes))
)
def test_both_tables_name_the_same_weights(family):
    config = family.tiny
    model = abstract_build(family.build(config))[0]
    leaves = zip(skeleton_of(model).names, leaves_of(model), strict=True)
    shapes = {name: tuple(leaf.shape) for name, leaf in leaves if leaf is not None}
    for table in (family.names, family.gguf.names):
        matches = [match for row in table(config) for match in row.matches()]
        assert {name for match in matches for name in match.weights} == shapes.keys()
        tensors = [name for match in matches for name in match.tensors]
        assert len(tensors) == len(set(tensors))
        for match in matches:
            assert len(match.tensor_shapes(shapes)) == len(match.tensors)


def test_other_values_are_no_configurations():
    with pytest.raises(TypeError, match="such as loaded.config, received str"):
        fk.pretrained.build("llama")
