"""The table of families: every tiny configuration is built, written and read again."""

import dataclasses
import json
import re
import subprocess
import sys

import jax
import pytest

import fkeras as fk
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.pretrained.families.table import FAMILIES, family_of, family_of_config, family_of_gguf
from fkeras.pretrained.tables.heads import class_of, parts_of_class
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


# builds a graph for each head of each family
@pytest.mark.exhaustive
def test_the_page_lists_every_class():
    pytest.importorskip("sphinx")
    code = "import pretrained_table; print(*pretrained_table.lines_of_table(), sep='\\n')"
    table = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "docs/extensions",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "{pretrained-table}" in (ROOT / "docs/guides/pretrained.md").read_text()
    rows = [[re.findall(r"`([^`]+)`", cell) for cell in r.split("|")] for r in table.splitlines()]
    listed = {name: row for row in rows[2:] for name in row[1]}
    assert listed.keys() == {name for name, _ in TYPES}
    for name, family in TYPES:
        _, _, classes, config, _, outputs, _ = listed[name]
        assert tuple(classes) == family.classes[name]
        assert config == [f"fkeras.pretrained.{family.config.__name__}"]
        assert getattr(fk.pretrained, family.config.__name__) is family.config
        assert outputs
    assert {"start", "classes", "token_classes"} <= {*listed["llama"][5]}
    assert "start" not in listed["phi3"][5]


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


def test_classes_are_those_of_the_heads():
    for name, family in TYPES:
        for cls in family.classes[name]:
            parts = parts_of_class(cls)
            known = getattr(family.config, "endings", {})
            # the classes of families without heads have no parts in the configuration
            assert parts is not None and (not known or {*parts} <= {*known}), cls
            if known:
                config = dataclasses.replace(family.tiny, parts=parts)
                assert class_of(config, family.classes[name]) == cls


def test_other_values_are_no_configurations():
    with pytest.raises(TypeError, match="such as loaded.config, received str"):
        fk.pretrained.build("llama")
