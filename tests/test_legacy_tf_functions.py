"""Functions of TensorFlow in the graphs of tf.keras 2: their operations compute the same numbers."""

import functools
import json
import pathlib

import numpy as np
import pytest
from legacy_files import array, load, model_file, outputs

from fkeras.saving import FileError

_DATA = pathlib.Path(__file__).parent / "data"
#: what TensorFlow does not keep in its file, and refuses to open itself
_LOST = ("einsum",)


@functools.lru_cache(maxsize=2)
def reference(version):
    """What tools/tf211_reference.py wrote."""
    return json.loads((_DATA / f"{version}.json").read_text())


ROWS = [(v, name) for v in ("tf211", "tf210") for name in reference(v)["rows"]]


def opened(version, name, **options):
    data = reference(version)
    row = data["rows"][name]
    weights = {
        layer: {key: array(w) for key, w in own.items()} for layer, own in row["weights"].items()
    }
    return load(model_file(row["config"], weights, version=data["keras"]), **options)


@pytest.mark.parametrize(("version", "name"), ROWS, ids=lambda v: v)
def test_the_numbers_are_those_of_tensorflow(version, name):
    data = reference(version)
    row = data["rows"][name]
    if version == "tf211" and name in _LOST:
        with pytest.raises(FileError, match="does not hold its operands"):
            opened(version, name)
        return
    model, state = opened(version, name)
    values = [array(data["arrays"][key]) for key in row["inputs"]]
    got = outputs(model, state, values if len(values) > 1 else values[0])
    assert len(got) == len(row["outputs"])
    for place, (value, expected) in enumerate(zip(got, row["outputs"], strict=True)):
        wanted = array(expected)
        assert value.shape == wanted.shape, place
        assert value.dtype.kind == wanted.dtype.kind, place
        scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-6 * scale, err_msg=str(place))
