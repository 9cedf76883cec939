"""Files of patches: the same patch comes back, and damaged files are rejected."""

import functools
import json
import zipfile

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms


@functools.cache
def model(units=3, activation=None, seed=0, name="head"):
    x = fk.Input((4,), name="x")
    body = layers.BatchNormalization(name="norm")(layers.Dense(units, activation)(x))
    return fk.Model(x, layers.Dense(2, name=name)(body)).build(jax.random.key(seed))


def half(model):
    return jax.tree.map(lambda a: a.astype("bfloat16"), model)


class Scale(fk.Layer):
    factor: float = fk.option(default=1.0)

    def call(self, x):
        return x * self.factor


PAIRS = {
    "weights": (model(), model(seed=1)),
    "structure": (model(), model(5, "relu", name="top")),
    "dtype": (model(), half(model())),
    "renamed": (half(model()), half(fk.rename(model(), {"head": "top"}))),
    "unbuilt": (fk.engine.unbuilt(model()), fk.engine.unbuilt(model(5))),
    "building": (fk.engine.unbuilt(model()), model()),
    "rolled": (model(), transforms.roll(model())),
    "layers": (layers.Dropout(0.1), layers.Dropout(0.2, name="d")),
    "equal": (model(), model.__wrapped__()),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("case", PAIRS)
def test_a_patch_survives_its_file(case, tmp_path):
    a, b = PAIRS[case]
    patch = transforms.diff(a, b)
    fk.save_patch(tmp_path / "p.patch", patch)
    again = fk.load_patch(tmp_path / "p.patch")
    assert again == patch
    assert str(again) == str(patch)
    assert transforms.apply(a, again) == b
    assert transforms.revert(b, again) == a


def test_custom_classes_come_from_custom_objects(tmp_path):
    patch = transforms.diff(Scale(1.0), Scale(2.0))
    fk.save_patch(tmp_path / "p.patch", patch)
    again = fk.load_patch(tmp_path / "p.patch", custom_objects={"Scale": Scale})
    assert transforms.apply(Scale(1.0), again) == Scale(2.0)
    with pytest.raises(fk.FileError, match="Scale"):
        fk.load_patch(tmp_path / "p.patch")


def test_structures_that_no_file_describes(tmp_path):
    one, two = (layers.Dense(u).build(jax.random.key(0), (None, 3)) for u in (2, 3))
    with pytest.raises(
        fk.FKerasError, match="expected a structure that its configuration describes"
    ):
        fk.save_patch(tmp_path / "p.patch", transforms.diff(one, two))
    lifted = fk.Model(x := fk.Input((2,)), fk.ops.lift(lambda x: x)(x))
    with pytest.raises(TypeError, match="no name"):
        fk.save_patch(tmp_path / "p.patch", transforms.diff(lifted, model()))
    with pytest.raises(TypeError, match="expected a difference, received Model"):
        fk.save_patch(tmp_path / "p.patch", model())
    assert not list(tmp_path.iterdir())


def _rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    about = json.loads(members["patch.json"])
    members = change(about, members) or members
    members["patch.json"] = json.dumps(about).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


DAMAGES = {
    "format": lambda a, m: a.update(format="other"),
    "version": lambda a, m: a.update(version=9),
    "no base": lambda a, m: a.pop("base") and None,
    "outlines": lambda a, m: a.update(outlines=["a"]),
    "carried": lambda a, m: a.update(carried={"a": 1}),
    "class": lambda a, m: a["structure"][0]["config"].update(class_name="Nothing"),
    "not a layer": lambda a, m: a["structure"][0].update(
        config={"class_name": "Adam", "module": "keras.optimizers", "config": {}}
    ),
    "built": lambda a, m: a["structure"][0].update(built=3),
    "dtype": lambda a, m: a["after"].update({k: "object" for k in a["after"]}),
    "missing array": lambda a, m: {k: v for k, v in m.items() if k != "after/0.npy"},
    "pickle": lambda a, m: m.update({"after/0.npy": b"\x93NUMPY\x01\x00\x05\x00{}   "}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_rejected(damage, tmp_path):
    path = tmp_path / "p.patch"
    fk.save_patch(path, transforms.diff(*PAIRS["structure"]))
    _rewrite(path, DAMAGES[damage])
    with pytest.raises(fk.FileError):
        fk.load_patch(path)


def test_other_values_in_a_file_are_found_when_they_are_applied(tmp_path):
    path, (a, b) = tmp_path / "p.patch", PAIRS["weights"]
    fk.save_patch(path, transforms.diff(a, b))

    def change(about, members):
        np.save(tmp_path / "x.npy", np.zeros((4, 3), "float32"))
        number = list(about["after"]).index("dense/kernel")
        members[f"after/{number}.npy"] = (tmp_path / "x.npy").read_bytes()

    _rewrite(path, change)
    with pytest.raises(fk.FKerasError, match="The patch is damaged"):
        transforms.apply(a, fk.load_patch(path))


def test_files_that_are_no_patches(tmp_path):
    with pytest.raises(FileNotFoundError):
        fk.load_patch(tmp_path / "none.patch")
    fk.save_model(tmp_path / "m.keras", model(), model().init_state())
    with pytest.raises(fk.FileError, match=r"patch\.json"):
        fk.load_patch(tmp_path / "m.keras")
    (tmp_path / "text").write_text("patch")
    with pytest.raises(fk.FileError, match="expected a zip archive"):
        fk.load_patch(tmp_path / "text")
    fk.save_patch(tmp_path / "p.patch", transforms.diff(model(), model(5)))
    with pytest.raises(fk.FileError, match="limit"):
        fk.load_patch(tmp_path / "p.patch", limits=fk.Limits(config_bytes=10))
