"""Programs of CI: exact versions, lower bounds, the audit of dependencies."""

import re
import subprocess
import sys
import tomllib

import pytest
from packaging.version import Version

from tests.support.paths import ROOT
from tools.ci import audit, colab_install, lower_bounds

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


# the extras of services: CI installs neither package, since the tests replace the services
SERVICES = ("wandb", "mlflow")


def _declared():
    extras = PROJECT["optional-dependencies"]
    groups = [PROJECT["dependencies"], *(extras[name] for name in extras if name not in SERVICES)]
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
