"""Tests, files and functions that the documents name exist."""

import re

import pytest
from packaging.version import Version

import fkeras as fk
from tests.support.paths import ROOT
from tools.ci import readme_example


def test_every_engine_case_has_tests():
    document = (ROOT / "docs/engine_cases.md").read_text()
    cases = re.findall(r"^\| (\d+[ab]?) \|[^|]*\|([^|]*)\|$", document, re.M)
    numbers = [str(n) for n in range(1, 138) if n != 82]
    assert [number for number, _ in cases] == [*numbers[:81], "82a", "82b", *numbers[81:]]
    path = None
    for number, tests in cases:
        references = re.findall(r"`([^`]+)`", tests)
        assert (
            tests.startswith(" none: ") if not references else references[-1].startswith("test_")
        ), number
        for reference in references:
            if reference.startswith("tests/"):
                path = ROOT / reference
            else:
                assert re.search(rf"def {reference}\(", path.read_text()), (
                    f"case {number}: {reference}"
                )


def test_every_deliberate_difference_has_tests():
    document = (ROOT / "docs/explanation/differences.md").read_text()
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in document.splitlines()
        if line.startswith("| ") and not line.startswith("| subject")
    ]
    assert len(rows) > 50
    for subject, theirs, ours, tests in rows:
        assert theirs and ours, subject
        references = re.findall(r"`([^`]+)`", tests)
        assert references[0].startswith("tests/"), subject
        assert references[-1].startswith("test_"), subject
        path = None
        for reference in references:
            if reference.startswith("tests/"):
                path = ROOT / reference
            else:
                source = path.read_text()
                assert re.search(rf"^def {reference}\(", source, re.M), f"{subject}: {reference}"


def test_paths_in_the_documents_exist():
    names = ("CONTRIBUTING.md", "README.md", "SECURITY.md", "docs/architecture.md", "docs/wings.md")
    for name in names:
        text = (ROOT / name).read_text()
        folders = "fkeras|tests|tools|docs|examples|benchmarks"
        paths = re.findall(rf"[`(]((?:{folders})/[\w/.]*)[`)]", text)
        assert paths
        for path in paths:
            # the site is built there
            assert path.startswith("docs/build/") or (ROOT / path).exists(), f"{name}: {path}"


def test_functions_of_the_walkthroughs_exist():
    text = (ROOT / "docs/architecture.md").read_text().partition("## Walkthroughs")[2]
    steps = re.findall(r"^\d+\. (.*(?:\n {3,}.*)*)", text, re.M)
    assert len(steps) > 60
    for step in steps:
        references = re.findall(r"`([\w./]+)`", step)
        paths = [
            reference
            for reference in references
            if reference.startswith("fkeras/") and reference.endswith(".py")
        ]
        assert references[0] in paths, step
        source = "\n".join((ROOT / path).read_text() for path in paths)
        for reference in references:
            if not reference.startswith(("fkeras/", "jax.", "error.")):
                name = reference.rpartition(".")[2]
                assert re.search(rf"(def|class) {name}\b", source), f"{paths}: {reference}"


def test_the_readme_is_short_and_has_its_two_setup_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 200
    commands = re.findall(r"^python3 -m venv \.venv && (.*)$", text, re.M)
    assert [command.rpartition(" && ")[2] for command in commands] == [
        ".venv/bin/python examples/digits_cnn.py",
        ".venv/bin/python -m pytest -q -n 2",
    ]
    # .ci/run executes the first line that has these words
    first = next(line for line in text.splitlines() if "python -m pytest" in line)
    assert first.endswith(commands[1])


def test_links_of_the_readme_lead_to_pages():
    links = re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 15
    for link in links:
        assert (ROOT / link).is_file(), link


def test_every_example_is_on_its_page():
    page = (ROOT / "docs" / "guides" / "examples.md").read_text()
    listed = re.findall(r"^\| `(examples/\w+\.py)`", page, re.M)
    programs = [path for path in (ROOT / "examples").glob("*.py") if "--short" in path.read_text()]
    assert sorted(listed) == sorted(f"examples/{path.name}" for path in programs)
    for path in programs:
        assert "\nfk.utils.cache_programs()" in path.read_text(), path


OUTPUTS = (
    ("loss 0.30 of a\n", "loss 0.31 of a\n", True),
    ("loss 0.30 of a\n", "loss 0.40 of a\n", False),
    ("loss 0.30 of a\n", "loss 0.30 of b\n", False),
    ("11,914 (46.5 KiB)", "11,915 (46.5 KiB)", False),
)


@pytest.mark.parametrize(("shown", "output", "equal"), OUTPUTS)
def test_the_shown_output_may_differ_by_rounding(shown, output, equal):
    assert readme_example.equal_output(shown, output) == equal


def test_the_changelog_has_versions_with_one_place_for_each_group():
    text = (ROOT / "CHANGELOG.md").read_text()
    (head, *versions) = re.split(r"^## ", text, flags=re.M)
    titles = [
        re.fullmatch(r"\[([\w.]+)\](?: - \d{4}-\d\d-\d\d)?", v.splitlines()[0])[1] for v in versions
    ]
    released = [fk.__version__] if "dev" not in fk.__version__ else titles[1:2]
    assert titles[:2] == ["Unreleased", *released]
    assert Version(titles[1]) <= Version(fk.__version__)
    order = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    # merges of branches may repeat a change, in lines of other lengths
    bullets = [" ".join(b.split()) for b in re.findall(r"^- .*(?:\n  .*)*", text, re.M)]
    assert sorted(set(bullets)) == sorted(bullets)
    for title, version in zip(titles, versions, strict=True):
        groups = re.findall(r"^### (.*)$", version, re.M)
        assert groups == [group for group in order if group in groups], title
