"""The documentation site as far as plain Python sees it: pages, links, notebooks, reference.

The build of the site (`.ci/run`) executes the pages; it needs the extra `docs`.
"""

import dataclasses
import inspect
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
import argument_types  # noqa: E402
import badges  # noqa: E402
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


@pytest.mark.exhaustive
def test_every_page_is_in_one_table_of_contents():
    listed = [entry for page in PAGES for entry in _entries(page) if not _generated(entry)]
    assert sorted({*listed, DOCS / "index.md"}) == PAGES
    assert len(listed) == len(set(listed))


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
def test_the_pages_of_the_reference_are_in_one_table_of_contents():
    (block,) = TOCTREE.findall((DOCS / "reference" / "index.md").read_text())
    listed = [line.removeprefix("api/") for line in block.splitlines() if line.startswith("api/")]
    pages = dict(reference._pages())
    for text in pages.values():
        # the pages of families, and of namespaces inside of a namespace, are folded in the sidebar
        listed += [
            line for block in TOCTREE.findall(text) for line in block.split() if line in pages
        ]
    assert sorted(listed) == sorted(pages)
    assert "layers_core" in listed and "applications_vgg16" in listed


@pytest.mark.one_in(5)
@pytest.mark.parametrize("page", notebooks.pages(), ids=lambda page: page.stem)
def test_a_notebook_has_the_cells_of_its_page(page):
    path = notebooks.notebook_path(page)
    text = path.read_text() if path.exists() else ""
    remedy = "run python docs/extensions/notebooks.py"
    assert text == notebooks.notebook(page), f"{path.name} differs from its page: {remedy}"


@pytest.mark.exhaustive
def test_each_notebook_belongs_to_one_page():
    stems = [page.stem for page in notebooks.pages()]
    assert len(stems) == len(set(stems))
    assert sorted(path.stem for path in notebooks.NOTEBOOKS.iterdir()) == sorted(stems)


@pytest.fixture(params=["", "owner"])
def home(request, monkeypatch):
    """The address of the project, without and with an owner."""
    value = dataclasses.replace(address.read_address(), owner=request.param)
    for module in (address, badges, notebooks):
        monkeypatch.setattr(module, "read_address", lambda: value)
    return value


def test_the_first_cell_installs_fkeras_and_keeps_the_installed_packages(home):
    for page in notebooks.pages():
        first, second, *_ = json.loads(notebooks.notebook(page))["cells"]
        source = "".join(first["source"])
        assert "pip list --format=freeze > /tmp/installed.txt" in source
        assert re.search(r"%pip install -q -c /tmp/installed\.txt \"fkeras(\[[\w,]+\])? @ ", source)
        assert "\nfk.utils.cache_programs()" in source
        # the badge needs an address; the upload needs the file name of the archive
        badge = "colab.research.google.com" in "".join(second["source"])
        assert badge == home.settled
        assert (f"first upload {address.archive()}" in source) != home.settled


def test_a_notebook_has_markdown_for_links_notes_and_roles(home, tmp_path, monkeypatch):
    folder = tmp_path / "tutorials"
    folder.mkdir()
    monkeypatch.setattr(notebooks, "DOCS", tmp_path)
    page = folder / "page.md"
    head = "---\nfkeras:\n  extras: files, train\n---\n\n# Title\n\n"
    page.write_text(
        head
        + "[a](../guides/a.md#b) [c](c.md) {py:obj}`fk <fkeras.fk>`\n\n:::{note}\nText.\n:::\n\n"
        "```{code-cell}\n:tags: [hide-input]\n\nx = 1\n```\n"
    )
    first, text, code = json.loads(notebooks.notebook(page))["cells"]
    assert "fkeras[files,train] @" in "".join(first["source"])
    links = "a c"  # without an address, the words of the links alone
    if home.settled:
        links = f"[a]({home.site}/guides/a.html#b) [c]({home.site}/tutorials/c.html)"
    written = "".join(text["source"])
    assert f"{links} `fk`" in written
    assert "> **Note**\n>\n> Text." in written
    assert code["source"] == ["x = 1"]
    page.write_text(head + "```{toctree}\na\n```\n")
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="shows no other directive"):
        notebooks.notebook(page)


def test_pages_show_only_an_address_that_exists(home):
    command, link = home.install_command("files"), badges._link("notebooks/digits.ipynb")
    if home.settled:
        assert command == 'pip install "fkeras[files] @ git+https://github.com/owner/fkeras"'
        assert "colab.research.google.com/github/owner/" in link
    else:
        assert command == 'pip install ".[files]"'
        assert "{download}" in link and "http" not in link


def test_a_package_index_shows_only_links_that_lead_somewhere(home):
    readme = (ROOT / "README.md").read_text("utf-8")
    page = home.index_page(readme)
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert len(links) == (len(re.findall(r"\]\(([\w./-]+)\)", readme)) if home.settled else 0)
    assert all(link.startswith(f"{home.repository}/blob/main/") for link in links)
    code = re.compile(r"```.*?```", re.S)
    assert code.findall(page) == code.findall(readme)
    assert bool(home.index_urls()) == home.settled
    assert all(url.startswith("https://") and "owner" in url for url in home.index_urls().values())


@pytest.mark.exhaustive
def test_nothing_shows_an_address_without_an_owner():
    if not address.read_address().settled:
        for path in notebooks.NOTEBOOKS.iterdir():
            assert not re.search(r"github\.com/|github\.io", path.read_text()), path


@pytest.mark.exhaustive
def test_the_public_address_is_stated_once():
    home = address.read_address()
    pattern = re.compile(r"github\.com/(?:github/)?([\w-]+)/fkeras\b")
    folders = ("fkeras", "tests", "tools", "examples", "benchmarks", "docs", ".github")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    texts = [p for p in files if p.suffix in (".md", ".py", ".toml", ".cff", ".yml", ".yaml")]
    for path in (*texts, *notebooks.NOTEBOOKS.iterdir()):
        if "build" not in path.parts and path.name != "test_site.py":
            owners = set(pattern.findall(path.read_text()))
            assert owners <= {home.owner}, f"{path}: the address is in docs/address.toml"


@pytest.mark.exhaustive
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


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("text", "part"), TEXTS)
def test_docstrings_become_restructured_text(text, part):
    lines = docstrings.to_rst(text.splitlines())
    assert "\n".join(part) in "\n".join(lines)


def test_arguments_have_types():
    texts = argument_types.argument_types(fk.layers.Conv2D)
    assert texts["filters"] == "int"
    assert texts["kernel_size"] == "int or sequence of int"
    assert texts["activation"] == "str or dictionary or function or None"
    assert argument_types.argument_types(fk.Trainer.fit)["epochs"] == "int"
    # a type that only type checkers know is left out
    assert argument_types.shown(argument_types.Any) == ""


@pytest.mark.exhaustive
def test_layers_document_the_arguments_of_all_layers():
    for layer in (fk.layers.Dense, fk.layers.LSTM, fk.layers.Flatten, fk.layers.Add):
        lines = inspect.getdoc(layer).splitlines()
        reference._convert(None, "class", "", layer, None, lines)
        for name in ("name", "trainable", "dtype"):
            assert sum(line.startswith(f"- **{name}** (*") for line in lines) == 1, (layer, name)
        assert lines.count(".. rubric:: Arguments") == 1


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


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("text", "foreign"), CONTENTS)
def test_content_of_other_hosts_is_found(text, foreign, tmp_path):
    (tmp_path / "page.html").write_text(text)
    assert bool(local_content.foreign_content(tmp_path)) == foreign
