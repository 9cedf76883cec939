"""The documentation site as far as plain Python sees it: pages, links, notebooks, reference.

The build of the site (`.ci/run`) executes the pages; it needs the extra `docs`.
"""

import fnmatch
import json
import re
import sys
import types

import pytest

import fkeras as fk
from tests.support.keras_oracle import keras
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "extensions"))

import address  # noqa: E402
import docstrings  # noqa: E402
import local_content  # noqa: E402
import reference  # noqa: E402

import notebooks  # noqa: E402

PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.relative_to(DOCS).parts[:2] != ("reference", "api")
    and path.relative_to(DOCS).parts[0] not in ("build", "README.md")
)
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"\]\(([\w./-]+\.md)(?:#[\w-]+)?\)")


def _entries(page):
    """The pages in the toctrees of a page."""
    for block in TOCTREE.findall(page.read_text()):
        for line in block.splitlines():
            if line.strip() and not line.startswith((":", "api/")):
                yield (page.parent / f"{line.strip()}.md").resolve()


def _generated(path):
    return (DOCS / "reference" / "api") in path.parents


def test_every_page_is_in_one_table_of_contents():
    listed = [entry for page in PAGES for entry in _entries(page) if not _generated(entry)]
    assert sorted({*listed, DOCS / "index.md"}) == PAGES
    assert len(listed) == len(set(listed))


def test_links_between_pages_lead_to_pages():
    generated = {f"{name}.md" for name, *_ in reference.NAMESPACES}
    generated |= {f"layers_{name.replace('.', '_')}.md" for name in reference.FAMILIES}
    for page in PAGES:
        if page.parent == DOCS and page.name != "index.md":
            continue
        for target in LINK.findall(page.read_text()):
            path = (page.parent / target).resolve()
            exists = path.name in generated if _generated(path) else path.exists()
            assert exists, f"{page.relative_to(ROOT)}: {target}"


def test_the_pages_of_the_reference_are_in_its_table_of_contents():
    (block,) = TOCTREE.findall((DOCS / "reference" / "index.md").read_text())
    patterns = [line for line in block.splitlines() if line.startswith("api/")]
    for name, *_ in reference.NAMESPACES:
        assert any(fnmatch.fnmatch(f"api/{name}", pattern) for pattern in patterns), name
    # the pages of families are in the table of contents of api/layers.md
    assert not any(fnmatch.fnmatch("api/layers_core", pattern) for pattern in patterns)


@pytest.mark.parametrize("page", notebooks.pages(), ids=lambda page: page.stem)
def test_a_notebook_has_the_cells_of_its_page(page):
    path = notebooks.notebook_path(page)
    text = path.read_text() if path.exists() else ""
    remedy = "run python docs/extensions/notebooks.py"
    assert text == notebooks.notebook(page), f"{path.name} differs from its page: {remedy}"


def test_each_notebook_belongs_to_one_page():
    stems = [page.stem for page in notebooks.pages()]
    assert len(stems) == len(set(stems))
    assert sorted(path.stem for path in notebooks.NOTEBOOKS.iterdir()) == sorted(stems)


def test_the_first_cell_installs_fkeras_and_keeps_the_installed_packages():
    for path in notebooks.NOTEBOOKS.iterdir():
        first, second, *_ = json.loads(path.read_text())["cells"]
        source = "".join(first["source"])
        assert "pip list --format=freeze > /tmp/installed.txt" in source
        assert re.search(r"%pip install -q -c /tmp/installed\.txt \"fkeras(\[[\w,]+\])? @ ", source)
        assert "\nfk.utils.cache_programs()" in source
        assert "colab.research.google.com" in "".join(second["source"])


def test_a_notebook_has_markdown_for_links_notes_and_roles(tmp_path, monkeypatch):
    folder = tmp_path / "tutorials"
    folder.mkdir()
    for module in (notebooks, address):
        monkeypatch.setattr(module, "DOCS", tmp_path)
    page = folder / "page.md"
    (tmp_path / "address.toml").write_text((DOCS / "address.toml").read_text())
    head = "---\nfkeras:\n  extras: files, train\n---\n\n# Title\n\n"
    page.write_text(
        head
        + "[a](../guides/a.md#b) [c](c.md) {py:obj}`fk <fkeras.fk>`\n\n:::{note}\nText.\n:::\n\n"
        "```{code-cell}\n:tags: [hide-input]\n\nx = 1\n```\n"
    )
    install, text, code = json.loads(notebooks.notebook(page))["cells"]
    assert "fkeras[files,train] @" in "".join(install["source"])
    site = address.read_address().site
    written = "".join(text["source"])
    assert f"[a]({site}/guides/a.html#b) [c]({site}/tutorials/c.html) `fk`" in written
    assert "> **Note**\n>\n> Text." in written
    assert code["source"] == ["x = 1"]
    page.write_text(head + "```{toctree}\na\n```\n")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="shows no other directive"):
        notebooks.notebook(page)


def test_the_public_address_is_stated_once():
    home = address.read_address()
    pattern = re.compile(r"github\.com/(?:github/)?([\w-]+)/fkeras\b")
    folders = ("fkeras", "tests", "tools", "examples", "benchmarks", "docs", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    texts = [p for p in files if p.suffix in (".md", ".py", ".toml", ".cff", ".yml", ".yaml")]
    for path in (*texts, *notebooks.NOTEBOOKS.iterdir()):
        if "build" not in path.parts and path.name != "test_site.py":
            owners = {owner for owner in pattern.findall(path.read_text())}
            assert owners <= {home.owner}, f"{path}: the address is in docs/address.toml"


def test_each_public_namespace_has_a_page():
    spaces = [name for name in fk.__all__ if isinstance(getattr(fk, name), types.ModuleType)]
    assert not set(spaces) - {path for _, path, *_ in reference.NAMESPACES}


def test_the_reference_documents_each_public_object_once():
    homes = reference.homes()
    places = {value: full for full, value in homes.items()}
    assert len(places) > 30
    for _, path, *_ in reference.NAMESPACES:
        for name in reference.names(path):
            value = getattr(reference.namespace(path), name)
            if callable(value):
                full = [f for f in homes if f.rpartition(".")[2] in (name, value.__name__)]
                assert full, f"fk.{path}.{name} is on no page"
    assert homes["fkeras.layers.Conv2D"] == "layers_convolution"
    assert "fkeras.layers.Convolution2D" not in homes
    assert homes["fkeras.ops.numpy.mean"] == "ops_numpy"


def test_layers_have_a_record_with_keras_name():
    ours = [n for n in fk.layers.__all__ if isinstance(getattr(fk.layers, n), type)]
    missing = [name for name in ours if not hasattr(keras.layers, name)]
    assert sorted(missing) == sorted(reference.ONLY_HERE)
    for name in ours:
        value = getattr(fk.layers, name)
        if issubclass(value, fk.Layer):
            record = "\n".join(reference._record(value))
            assert all(f"* - {title}" in record for title in ("Equation", "Weights", "State"))
    record = "\n".join(reference._record(fk.layers.BatchNormalization))
    assert "``gamma``, ``beta``" in record and "``moving_mean``" in record
    assert "(b, ..., c) -> (b, ..., c)" in record
    assert "``keras.layers.BatchNormalization``" in record


# (docstring, reStructuredText)
TEXTS = (
    ("Adds `x` to *y*.", ["Adds ``x`` to \\*y\\*.", ""]),
    ("Two\nlines of |x| and name_.", ["Two lines of \\|x\\| and name\\_.", ""]),
    ("Args:\n    x: an array,\n        long.", [".. rubric:: Arguments", ""]),
    ("Args:\n    x: an array,\n        long.", ["- **x**: an array, long.", ""]),
    ("Example:\n    >>> 1 + 1\n    2", [".. code-block:: pycon", "", "    >>> 1 + 1", "    2"]),
    ("The `Model`s.", ["The ``Model``\\ s.", ""]),
    ("- one\n- two", ["- one", "", "- two", ""]),
)


@pytest.mark.parametrize(("text", "part"), TEXTS)
def test_docstrings_become_restructured_text(text, part):
    lines = docstrings.to_rst(text.splitlines())
    assert "\n".join(part) in "\n".join(lines)


# (HTML or CSS, whether a browser loads content of another host)
CONTENTS = (
    ('<script src="https://cdn.test/a.js"></script>', True),
    ('<img alt="a" src="//cdn.test/a.png">', True),
    ('<link rel="stylesheet" href="https://cdn.test/a.css">', True),
    ('<link href="https://cdn.test/a.css" rel="stylesheet">', True),
    ("@import url(https://cdn.test/a.css)", True),
    ("src: url('https://cdn.test/a.woff')", True),
    ('<a href="https://site.test">link</a>', False),
    ('<link rel="canonical" href="https://site.test">', False),
    ('<script src="static/a.js"></script>', False),
)


@pytest.mark.parametrize(("text", "foreign"), CONTENTS)
def test_content_of_other_hosts_is_found(text, foreign, tmp_path):
    (tmp_path / "page.html").write_text(text)
    assert bool(local_content.foreign_content(tmp_path)) == foreign
