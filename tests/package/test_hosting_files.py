"""Workflows, templates and `CITATION.cff`: their commands exist, and facts equal their sources."""

import os
import re
import tomllib

import pytest
import yaml

import fkeras as fk
from tests.support.paths import ROOT

GITHUB = ROOT / ".github"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# modules that `python -m` runs, and the requirement that brings a module
MODULES = {"pip": None} | {n: n for n in ("build", "pytest", "ruff", "sphinx", "twine")}
# workflows, and the events that start each
MAIN = {"push": {"branches": ["main"]}, "pull_request": None, "workflow_dispatch": None}
WORKFLOWS = {
    "ci.yml": MAIN,
    "site.yml": MAIN,
    "release.yml": {"push": {"tags": ["v*"]}},
    "platforms.yml": {"workflow_dispatch": None},
}
# jobs that may write, and what; they run actions only, so that no code of a dependency has the rights
WRITING = {
    ("site.yml", "publish"): ("id-token", "pages"),
    ("release.yml", "publish"): ("attestations", "id-token"),
}
FORMS = ("bug_report.yml", "feature_request.yml")
INPUTS = ("markdown", "textarea", "input", "dropdown", "checkboxes")

in_repository = pytest.mark.skipif(not GITHUB.exists(), reason="the source archive has no CI")


def _workflow(name):
    return yaml.safe_load((GITHUB / "workflows" / name).read_text())


def _steps(name):
    return [step for job in _workflow(name)["jobs"].values() for step in job["steps"]]


def _commands(name):
    steps = [step["run"] for step in _steps(name) if "run" in step]
    return [line for step in steps for line in step.splitlines() if line]


@in_repository
def test_these_are_all_files():
    assert sorted(path.name for path in (GITHUB / "workflows").iterdir()) == sorted(WORKFLOWS)
    forms = sorted(path.name for path in (GITHUB / "ISSUE_TEMPLATE").iterdir())
    assert forms == sorted((*FORMS, "config.yml"))


@in_repository
@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_commands_of_a_workflow_exist(name):
    commands = _commands(name)
    assert commands
    for command in commands:
        words = command.split()
        if words[:2] == ["python", "-m"]:
            assert words[2] in MODULES, command
        elif words[0] != "python":
            assert os.access(ROOT / words[0], os.X_OK), f"{words[0]} is no program"
        for path in re.findall(
            r"[\w.-]+\.txt|\b(?:tests|tools|docs|examples)\b(?:/[\w/.]+)?", command
        ):
            assert path.startswith("docs/build") or (ROOT / path).exists(), command
        for extras in re.findall(r"\"\.\[([\w,]+)\]\"", command):
            assert set(extras.split(",")) <= set(EXTRAS), command
        if words[2:3] == ["pytest"]:
            options = (ROOT / "tests" / "conftest.py").read_text()
            for option in re.findall(r"--[\w-]+", command):
                assert f'"{option}"' in options, f"tests/conftest.py declares no {option}"
    packages = {re.match(r"[\w-]+", r)[0] for requirements in EXTRAS.values() for r in requirements}
    assert set(filter(None, MODULES.values())) <= packages


@in_repository
@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_have_the_rights_and_limits_that_they_need(name):
    workflow = _workflow(name)
    assert workflow["permissions"] == {"contents": "read"}
    events = workflow[True]  # YAML reads the key "on" as True
    assert set(events) == set(WORKFLOWS[name])
    assert events.get("push") == WORKFLOWS[name].get("push")
    for job, content in workflow["jobs"].items():
        rights = WRITING.get((name, job), ())
        assert sorted(content.get("permissions", ())) == list(rights)
        assert not rights or all("uses" in step for step in content["steps"])
        assert content["timeout-minutes"] <= 300
    for step in _steps(name):
        assert ("run" in step) != ("uses" in step)


@in_repository
def test_actions_are_pinned_by_commit_with_their_version():
    pins = set()
    for name in WORKFLOWS:
        text = (GITHUB / "workflows" / name).read_text()
        found = re.findall(r"uses: ([\w/-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$", text, re.M)
        assert len(found) == text.count("uses:"), name
        pins |= set(found)
    owners = {action.partition("/")[0] for action, *_ in pins}
    assert owners == {"actions", "pypa"}
    assert len(pins) == len({action for action, *_ in pins}), "two versions of one action"


@in_repository
def test_a_release_publishes_the_files_that_were_checked():
    jobs = _workflow("release.yml")["jobs"]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    words = [" ".join(command.split()[:3]) for command in commands]
    order = ("python tools/ci/check_release.py", "python -m build", "python -m twine")
    places = [next(i for i, w in enumerate(words) if w.startswith(begin)) for begin in order]
    assert places == sorted(places)
    publish = jobs["publish"]
    assert publish["needs"] == "build" and publish["environment"] == "pypi"
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text()


@in_repository
def test_the_site_is_built_as_in_ci_and_cached():
    (build,) = (command for command in _commands("site.yml") if "sphinx" in command)
    arguments = build.removeprefix("python ")
    assert f'"$python" {arguments}\n' in (ROOT / ".ci" / "run").read_text()
    assert f".venv/bin/python {arguments}`" in (ROOT / "CONTRIBUTING.md").read_text()
    paths = {
        step["uses"].partition("@")[0]: step.get("with", {}) for step in _steps("site.yml")[:3]
    }
    assert paths["actions/cache"]["path"] == ".docs_cache"
    assert 'ROOT / ".docs_cache"' in (ROOT / "docs" / "conf.py").read_text()
    (upload,) = (step for step in _steps("site.yml") if "upload-pages" in step.get("uses", ""))
    assert upload["with"]["path"] == build.split()[-1]


@in_repository
def test_each_part_of_the_exhaustive_tests_runs():
    job = _workflow("ci.yml")["jobs"]["exhaustive"]
    parts = job["strategy"]["matrix"]["part"]
    assert parts == list(range(1, len(parts) + 1))
    assert f"--part ${{{{ matrix.part }}}}/{len(parts)}" in job["steps"][-1]["run"]


@in_repository
@pytest.mark.parametrize("name", FORMS)
def test_issue_forms_ask_for_what_is_needed(name):
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / name).read_text())
    assert form["name"] and form["description"] and form["labels"]
    assert {field["type"] for field in form["body"]} <= set(INPUTS)
    names = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(names) == len(set(names))
    if name == "bug_report.yml":
        assert names == ["versions", "reproducer", "expected", "received"]
        assert all(field["validations"]["required"] for field in form["body"][1:])


@in_repository
def test_no_file_has_an_address():
    files = [path for path in GITHUB.rglob("*") if path.is_file()]
    for path in (*files, ROOT / "CITATION.cff"):
        assert not re.search(r"https?://|github\.(com|io)/", path.read_text()), path


def test_the_citation_has_the_facts_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["title"] == PROJECT["name"]
    assert citation["version"] == fk.__version__
    assert citation["abstract"] == PROJECT["description"]
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["authors"] == PROJECT["authors"]
