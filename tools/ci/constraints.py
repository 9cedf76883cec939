"""Writes constraints.txt: the exact version of every package that CI installs.

    python tools/ci/constraints.py

makes a fresh environment with this Python, installs fkeras with the extra `dev` at the newest
versions, and lists them. CI gives the file to pip as PIP_CONSTRAINT, so that a new release of a
dependency changes CI only when somebody runs this program and commits the result.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = """\
# Exact versions for CI, which exports PIP_CONSTRAINT=constraints.txt. Written by
# tools/ci/constraints.py with Python {version}; do not edit by hand.
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = pathlib.Path(folder, "bin", "python")
        # no constraints while the newest versions are looked up
        environment = {k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"}

        def pip(*arguments):
            command = [python, "-m", "pip", *arguments]
            return subprocess.run(
                command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
            ).stdout

        pip("install", "-q", "-e", ".[dev]")
        frozen = pip("freeze", "--exclude", "fkeras", "--exclude-editable")
    lines = sorted(filter(None, frozen.splitlines()), key=str.lower)
    unpinned = [line for line in lines if "==" not in line]
    if unpinned:
        raise SystemExit(f"not versions of a package index: {', '.join(unpinned)}")
    version = ".".join(map(str, sys.version_info[:2]))
    text = HEADER.format(version=version) + "\n".join(lines) + "\n"
    (ROOT / "constraints.txt").write_text(text)
    print(f"constraints.txt: {len(lines)} packages")


if __name__ == "__main__":
    main()
