"""Configuration of the documentation site: `python -m sphinx -W -b html docs docs/build/html`."""

import hashlib
import os
import pathlib
import shutil
import sys

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(DOCS / "extensions"))

from address import archive, read_address

_address = read_address()

project = "fkeras"
author = "The fkeras founders"
copyright = "The fkeras founders"
html_title = "fkeras"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "badges",
    "install",
    "library_table",
    "local_content",
    "mathml",
    "migration_table",
    "pretrained_table",
    "reference",
    "synonyms",
]
exclude_patterns = ["build", "README.md", "extensions"]
# A role {py:obj} on a page must name an object of the reference. Signatures may name other objects:
# the build reads no inventories of other projects, because they are on other hosts.
nitpicky = True
nitpick_ignore_regex = [("py:(?!obj).*", ".*")]

# pages ---------------------------------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist", "substitution"]
myst_heading_anchors = 3
# a link in a substitution must be complete: MyST replaces no variables inside of link targets
myst_substitutions = {
    "repository": f"[repository]({_address.repository})" if _address.settled else "repository",
    "archive": f"`{archive()}`",
}
myst_links_external_new_tab = False

# code cells ----------------------------------------------------------------------------------------
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
# cells write files: each page runs in its own empty folder
nb_execution_in_temp = True
# Text on stderr, such as a library's warning, fails the build, except in cells with the tag
# `remove-stderr`.
nb_output_stderr = "remove-warn"
nb_merge_streams = True
nb_number_source_lines = False
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"


def _library() -> str:
    """Returns a hash of the library's sources: a change of the library runs all pages."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "fkeras").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


_cache = pathlib.Path(os.environ.get("FKERAS_DOCS_CACHE", ROOT / ".docs_cache"))
nb_execution_cache_path = str(_cache / f"pages-{_library()}")
for _old in _cache.glob("pages-*"):
    if str(_old) != nb_execution_cache_path:
        shutil.rmtree(_old)
_kernel = {
    "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    # silences messages of XLA's C++ code, which would be text on stderr
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
    # compiled programs survive changes of the library
    "JAX_COMPILATION_CACHE_DIR": str(_cache / "jax"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    # two kernels run on two cores
    "OMP_NUM_THREADS": "1",
}
os.environ.update(_kernel)

# reference -----------------------------------------------------------------------------------------
add_module_names = False
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
toc_object_entries = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 80

smartquotes = False

# theme ---------------------------------------------------------------------------------------------
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(DOCS / "static" / "search.js")
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
if _address.settled:
    html_theme_options = {
        "source_repository": f"{_address.repository}/",
        "source_branch": _address.branch,
        "source_directory": "docs/",
    }
pygments_style = "friendly"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_math_renderer = "mathml"
