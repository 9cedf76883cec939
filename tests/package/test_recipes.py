"""The programs of the page "Recipes by field", each with its own check."""

import ast
import runpy

import pytest

from tests.support.paths import ROOT

PROGRAMS = sorted(path.stem for path in (ROOT / "examples/recipes").glob("*.py"))
# packages that the extras "test" and "examples" do not bring
MORE = {"nuts": "blackjax"}


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recipe_passes_its_check(name):
    # compiling takes the time
    if name in MORE:
        pytest.importorskip(MORE[name])
    runpy.run_path(str(ROOT / f"examples/recipes/{name}.py"), run_name="__main__")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recipe_is_short_and_on_the_page(name):
    source = (ROOT / f"examples/recipes/{name}.py").read_text()
    head = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    outside = {line for node in head for line in range(node.lineno, node.end_lineno + 1)}
    code = [
        line
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and number not in outside and not line.startswith("#")
    ]
    assert len(code) <= 40
    page = (ROOT / "docs/guides/recipes.md").read_text()
    assert f"{{literalinclude}} ../../examples/recipes/{name}.py\n" in page
