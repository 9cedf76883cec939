"""The first page of the site and the page that compares libraries: pictures, numbers and programs."""

import importlib
import json
import sys

import jax
import numpy as np
import pytest

from tests.support.paths import ROOT

pytest.importorskip("sphinx", reason="the site needs the extra docs")

sys.path.insert(0, str(ROOT / "docs/extensions"))

import library_table  # noqa: E402
import pictures  # noqa: E402

LIBRARIES = ROOT / "benchmarks/libraries"
RESULTS = json.loads((LIBRARIES / "results.json").read_text())


@pytest.fixture
def programs(monkeypatch):
    """Returns a function that imports a file of `benchmarks/libraries`."""
    monkeypatch.syspath_prepend(str(LIBRARIES))
    before = set(sys.modules)
    # the rules of users' programs
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield importlib.import_module
    for name in {"tasks", "lines", "fkeras_programs", "nnx_programs"} - before:
        sys.modules.pop(name, None)


def test_the_pictures_are_those_of_the_measured_numbers():
    for name, text in pictures.pictures().items():
        assert (pictures.FOLDER / name).read_text() == text, "run docs/extensions/pictures.py"
        assert f"static/pictures/{name}" in (ROOT / "docs/index.md").read_text()


def test_texts_of_pictures_fit_into_their_frame():
    for name in ("model", "diff", "plan"):
        text = (pictures.FOLDER / f"{name}-light.svg").read_text()
        width = float(text.partition('viewBox="0 0 ')[2].partition(" ")[0])
        places = [part.partition('" y=')[0] for part in text.split('<text x="')[1:]]
        lengths = [part.partition('"')[0] for part in text.split('textLength="')[1:]]
        ends = [float(x) + float(n) for x, n in zip(places, lengths, strict=True)]
        assert max(ends) <= width


def test_the_counted_lines_are_those_of_the_programs(programs):
    lines = programs("lines")
    for library, counts in RESULTS["lines"].items():
        assert lines.count_lines(library) == counts, library
    assert list(library_table.TITLES) == list(lines.PARTS)


def test_the_tables_have_a_row_for_each_program():
    assert len(list(library_table.rows("lines"))) == 2 + 10 + 1
    steps = list(library_table.rows("steps"))
    assert len(steps) == 2 + len(RESULTS["times"]) and steps[2].startswith("| two dense layers | ")
    assert all(low <= middle <= high for row in RESULTS["times"].values() for low, middle, high in
               [times["ratio"] for times in row.values()])  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", ["mlp", "convnet", "lstm", "transformer", "siamese"])
def test_fkeras_and_nnx_compute_the_same(programs, task):
    pytest.importorskip("flax")
    tasks, outputs, losses = programs("tasks"), [], []
    x, y = tasks.batch(task)
    for library in ("fkeras", "nnx"):
        module = programs(f"{library}_programs")
        network = module.filled(getattr(module, task)(), tasks.weights_of_shape)
        outputs.append(np.asarray(module.predict(network, x)))
        carry, step = module.training(network)
        carry, first = step(carry, x, y)
        losses.append([float(first), float(step(carry, x, y)[1])])
    np.testing.assert_allclose(outputs[1], outputs[0], atol=1e-4)
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-4)
