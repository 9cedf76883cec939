"""Runs the first cells of the notebooks in an environment with Colab's versions.

    python tools/ci/colab_install.py

makes an environment of Python 3.13 with the packages that Colab pins, gives pip the installed versions
as constraints, as the first cell of each notebook does, and installs fkeras with the extras of all
notebooks from this folder. It fails if a version changes, and runs one notebook there. Without Python
3.13 the program does what tools/ci/lower_bounds.py does.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.ci.lower_bounds import ROOT, interpreter, missing

# versions of Colab's TPU runtime, and packages that Colab has and the notebooks use
PINNED = ("jax==0.7.2", "jaxlib==0.7.2", "numpy==2.1.3", "optax==0.2.8")
PRESENT = ("matplotlib", "scikit-learn")
NOTEBOOK = "digits"


def cells(notebook):
    """The code cells of a notebook."""
    content = json.loads(notebook.read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == "code"]


def extras():
    """The extras that the first cells of all notebooks install."""
    names = set()
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        requirement = re.search(r'"fkeras(?:\[([\w,]+)\])? @ ', cells(notebook)[0])
        names |= set((requirement[1] or "").split(",")) - {""}
    return ",".join(sorted(names))


def main():
    command = interpreter()
    if command is None:
        return missing()
    # the exact versions of CI would contradict Colab's
    environment = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}
    environment |= {"MPLBACKEND": "agg", "JAX_PLATFORMS": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/environment/bin/python"

        def run(*arguments):
            done = subprocess.run(
                arguments,
                check=True,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                text=True,
            )
            return done.stdout

        run(command, "-m", "venv", f"{folder}/environment")
        pip = (python, "-m", "pip")
        run(*pip, "install", "-q", *PINNED, *PRESENT)
        before = run(*pip, "list", "--format=freeze")
        constraints = pathlib.Path(folder, "installed.txt")
        constraints.write_text(before)
        run(*pip, "install", "-q", "-c", str(constraints), f"fkeras[{extras()}] @ {ROOT.as_uri()}")
        after = run(*pip, "list", "--format=freeze")
        changed = sorted(set(before.splitlines()) - set(after.splitlines()))
        if changed:
            raise SystemExit(f"the first cell changed {', '.join(changed)}")
        program = pathlib.Path(folder, "notebook.py")
        program.write_text("\n".join(cells(ROOT / "notebooks" / f"{NOTEBOOK}.ipynb")[1:]))
        print(run(python, str(program)).splitlines()[-1])
    print(f"fkeras[{extras()}] changes none of {', '.join(PINNED)}; {NOTEBOOK}.ipynb runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
