"""Programs of CI: exact versions, lower bounds, the audit of dependencies."""

import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from packaging.version import Version

import fkeras as fk
from tests.support.paths import ROOT
from tools.ci import (
    audit,
    check_release,
    colab_install,
    jaxlib_values,
    layer_values,
    lower_bounds,
    sbom,
)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


# extras that CI does not install: the tests replace the services, and the compiler of TPUs is large
APART = ("wandb", "mlflow", "tpu")


def _declared():
    extras = PROJECT["optional-dependencies"]
    groups = [PROJECT["dependencies"], *(extras[name] for name in extras if name not in APART)]
    for requirement in (r for group in groups for r in group if not r.startswith("fkeras[")):
        name, bound = requirement.split(">=")
        yield _normal(name), Version(bound)


def _pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if not line.startswith("#"))
    return {_normal(name): Version(version) for name, version in pairs}


def test_constraints_pin_every_dependency_above_its_bound():
    versions = _pinned()
    for name, bound in _declared():
        assert name in versions, f"run tools/ci/constraints.py: {name} is not in constraints.txt"
        assert versions[name] >= bound, (
            f"run tools/ci/constraints.py: {name} {versions[name]} < {bound}"
        )


def test_ci_uses_the_constraints_and_the_tools():
    script = (ROOT / ".ci" / "run").read_text() if (ROOT / ".ci").exists() else None
    if script is None:
        pytest.skip("the source archive has no CI")
    assert 'export PIP_CONSTRAINT="$PWD/constraints.txt"' in script
    for tool in ("lower_bounds", "colab_install", "check_sdist", "audit"):
        assert f'"$python" tools/ci/{tool}.py\n' in script
    assert '"$python" tools/ci/jaxlib_values.py --part "$layers"\n' in script


def test_the_notebooks_are_installed_with_their_extras():
    assert {"train", "files"} <= set(colab_install.extras().split(","))
    notebook = ROOT / "notebooks" / f"{colab_install.NOTEBOOK}.ipynb"
    assert len(colab_install.cells(notebook)) > 5
    allowed = dict(line.split(">=") for line in PROJECT["dependencies"])
    for pin in colab_install.PINNED:
        name, version = pin.split("==")
        assert Version(version) >= Version(allowed[name])


def test_every_requirement_is_tested_at_its_lower_bound():
    pins = dict(pin.split("==") for pin in lower_bounds.requirements())
    assert pins["jax"] == "0.7.2" and pins["numpy"] == "2.1.0" and pins["h5py"] == "3.12.1"
    core = [r.split(">=")[0] for r in PROJECT["dependencies"]]
    assert set(core) <= set(pins)
    for path in (*lower_bounds.SAMPLE, *lower_bounds.LAYERS):
        assert (ROOT / path).exists(), path
    for unclear in ("numpy", "numpy~=2.0", "numpy>=2.0,<3", "numpy>=2.0; python_version<'3.12'"):
        with pytest.raises(SystemExit, match="no plain lower bound"):
            lower_bounds.lowest(unclear)


@pytest.mark.parametrize(
    ("ci", "skip", "status"), [("true", "", 1), ("true", "1", 0), ("", "", 0), ("false", "", 0)]
)
def test_a_missing_python_is_reported_and_fails_in_ci(ci, skip, status, monkeypatch, capsys):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("FKERAS_SKIP_LOWER_BOUNDS", skip)
    monkeypatch.setattr(
        lower_bounds, "candidates", lambda: iter(("/nowhere/python", sys.executable))
    )
    monkeypatch.setattr(lower_bounds, "VERSION", "2.7")
    assert lower_bounds.interpreter() is None
    assert lower_bounds.missing() == status
    assert "LOWER BOUNDS NOT TESTED" in capsys.readouterr().err


def test_an_audit_fails_where_an_advisory_fits():
    clean = {"name": "numpy", "version": "2.1.0", "vulns": []}
    vulnerable = {
        "name": "pillow",
        "version": "9.0.0",
        "vulns": [{"id": "X-1", "fix_versions": ["9.0.1"]}],
    }
    skipped = {"name": "keras", "skip_reason": "Dependency not found on PyPI"}
    assert audit.judge([clean], "", False) == (0, ["dependency audit: 1 audited, 0 skipped"])
    status, lines = audit.judge([clean, vulnerable, skipped], "", False)
    assert status == 1
    assert lines[:2] == ["pillow 9.0.0: X-1, fixed in 9.0.1", "NOT AUDITED: keras."]
    assert audit.judge([clean, skipped], "", True)[0] == 1
    for entries, reason in ((None, "no answer within 180 s"), ([skipped], "")):
        status, lines = audit.judge(entries, reason, False)
        assert status == 0 and lines[0].startswith("NOTHING WAS AUDITED: ")
        assert audit.judge(entries, reason, True)[0] == 1


def test_an_audit_without_answer_gives_the_reason(monkeypatch):
    def slow(*arguments, **options):
        raise subprocess.TimeoutExpired("pip_audit", audit.SECONDS)

    def broken(*arguments, **options):
        return subprocess.CompletedProcess("pip_audit", 1, "", "first\nConnectionError: refused")

    monkeypatch.setattr(subprocess, "run", slow)
    assert audit.report() == (None, f"no answer within {audit.SECONDS} s")
    monkeypatch.setattr(subprocess, "run", broken)
    assert audit.report() == (None, "ConnectionError: refused")


CHANGELOG = "## [Unreleased]\n\n## [0.2.0] - 2027-01-02\n"
RELEASES = (
    (("v0.2.0", "0.2.0", True, CHANGELOG, ""), ()),
    (("v0.2.1", "0.2.0", True, CHANGELOG, ""), ("the tag is v0.2.1",)),
    (
        ("v0.2.0.dev0", "0.2.0.dev0", True, CHANGELOG, ""),
        ("0.2.0.dev0 is no", "no section of 0.2.0.d"),
    ),
    (("v0.2.0", "0.2.0", True, "## [0.2.0]\n", ""), ("no section of 0.2.0 with its date",)),
    (("v0.2.0", "0.2.0", False, CHANGELOG, ""), ("no owner",)),
    (("v0.2.0", "0.2.0", True, CHANGELOG, "not on a package index yet"), ("README.md says",)),
)


@pytest.mark.parametrize(("facts", "expected"), RELEASES)
def test_a_release_that_is_not_ready_is_refused_with_the_reason(facts, expected):
    found = list(check_release.faults(*facts))
    assert len(found) == len(expected)
    assert all(part in line for part, line in zip(expected, found, strict=True))


def test_a_tag_of_the_main_branch_is_refused(capsys):
    assert check_release.main(["v9.9.9"]) == 1
    assert f"fkeras/__init__.py has version {fk.__version__}" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="check_release.py v0"):
        check_release.main([])


def test_the_bill_of_materials_lists_what_a_package_needs():
    bill = sbom.bill("optax")
    refs = {part["bom-ref"] for part in (bill["metadata"]["component"], *bill["components"])}
    names = [part["name"] for part in bill["components"]]
    assert names == sorted(names) and {"jax", "jaxlib", "numpy", "scipy"} <= set(names)
    assert not {"optax", "pytest", "flax"} & set(names)  # extras are not installed
    edges = {row["ref"]: row["dependsOn"] for row in bill["dependencies"]}
    assert set(edges) == refs and set().union(*edges.values()) <= refs
    assert any(
        ref.startswith("pkg:pypi/jax@") for ref in edges[bill["metadata"]["component"]["purl"]]
    )


def test_wrong_numbers_are_counted_and_rounding_is_not():
    right = np.random.default_rng(0).normal(size=(1000, 3)).astype("float32")
    right[0, 0], right[1, 1] = np.nan, np.inf
    rounded = right * np.float32(1 + 1e-6)
    largest, wrong = layer_values.difference(rounded, right)
    assert wrong == 0 and largest < 1e-5
    shifted = rounded.copy()
    shifted[10:20] = right[40:50]
    assert layer_values.difference(shifted, right)[1] == 30
    assert layer_values.difference(np.where(np.isnan(right), 0, right), right)[1] == 1
    assert layer_values.difference(np.where(np.isinf(right), np.nan, right), right)[1] == 1
    assert layer_values.difference(right[:5], right) == (np.inf, right.size)
    assert layer_values.difference(np.arange(3), np.array([0, 1, 3]))[1] == 1


def test_samples_of_releases_are_compared():
    first, last = {"a": np.ones(5), "b": np.zeros(2)}, {"a": np.ones(5), "b": np.zeros(2)}
    assert jaxlib_values.differences({"0.8": first, "newest": last}) == []
    (line,) = jaxlib_values.differences({"0.8": first | {"a": np.arange(5.0)}, "newest": last})
    assert line.startswith("a: jaxlib 0.8 and newest differ")
    assert jaxlib_values.differences({"0.8": {}, "newest": last})
    assert jaxlib_values.releases()["lowest"] == ("jax==0.7.2", "jaxlib==0.7.2")


def test_known_errors_of_jaxlib_must_be_found(monkeypatch):
    """Every release must have its known errors, and no release others."""

    def unexpected(version, *found):
        cases = {report.case: name for name, report in layer_values.REPORTS.items()}

        def check_case(case, options, numbers):
            return ["wrong"] if cases[case] in found else []

        monkeypatch.setattr(layer_values, "check_case", check_case)
        return layer_values.check_reports(layer_values.release(version), {})[1]

    assert unexpected("0.7.2", "jax#33479") == 0
    assert unexpected("0.7.2") == 1
    assert unexpected("0.8.3", "jax#33479") == 1
    assert unexpected("0.10.2", "jax#39103") == 0
    assert unexpected("0.10.2") == 0  # the kernels of other CPUs may be right
    assert unexpected("0.12.0.1", "jax#39103") == 1
    assert unexpected("0.12.0.1") == 0


def test_each_part_of_the_layer_table_is_selected_once():
    table = [number for number, _ in layer_values.selected("1/1")]
    parts = [number for k in range(1, 11) for number, _ in layer_values.selected(f"{k}/10")]
    extra = len(layer_values.COMPOSITIONS)
    assert len(parts) == len(table) + 9 * extra and set(parts) == set(table)
