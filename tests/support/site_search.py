"""Runs the search of the built site, Sphinx's own JavaScript, in Node."""

import json
import pathlib
import shutil
import subprocess

NODE = shutil.which("node")
# the files of the page "search.html" in its order, with the few names of a browser that the search uses
_PROGRAM = """
const fs = require("fs"), vm = require("vm");
const page = {
  _: (text) => text,
  _ready: () => {},
  SPHINX_HIGHLIGHT_ENABLED: false,
  document: { documentElement: { dataset: {} }, getElementById: () => ({ lastChild: null }) },
};
page.window = page;
vm.createContext(page);
const [folder, questions] = JSON.parse(fs.readFileSync(0, "utf8"));
for (const name of ["_static/searchtools.js", "_static/language_data.js"])
  vm.runInContext(fs.readFileSync(`${folder}/${name}`, "utf8"), page);
vm.runInContext("globalThis.Search = Search", page);
vm.runInContext(fs.readFileSync(`${folder}/searchindex.js`, "utf8"), page);
const answer = (question) => page.Search._performSearch(...page.Search._parseQuery(question));
const names = questions.map((question) => answer(question).reverse().map((result) => result[0]));
console.log(JSON.stringify(names));
"""


def found_pages(folder: pathlib.Path, questions: list[str]) -> list[list[str]]:
    """Returns the pages that the search of a site shows for each question, best first."""
    done = subprocess.run(
        [NODE, "-e", _PROGRAM],
        input=json.dumps([str(folder), questions]),
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)
