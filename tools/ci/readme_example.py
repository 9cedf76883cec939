"""Runs all Python blocks of the README in their order, as one program.

    python tools/ci/readme_example.py [--write]

The block of text after the first Python block is the output of that block: words must be equal, and
numbers with a point may differ by 0.05, since processors round differently. `--write` writes the
output into the README instead. The blocks write their files to a temporary folder.
"""

import argparse
import contextlib
import io
import os
import pathlib
import re
import sys
import tempfile

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHOWN = re.compile(r"(?<=```text\n).*?(?=```)", re.DOTALL)
NUMBER = re.compile(r"\d+\.\d+")
LINES, TOLERANCE = 25, 0.05


def run_blocks(text):
    """The output of the first block; the other blocks continue its program."""
    first, *others = BLOCK.findall(text)
    lines = [line for line in first.splitlines() if line.strip()]
    if len(lines) > LINES:
        raise SystemExit(f"the README's example has {len(lines)} lines, more than {LINES}")
    names = {"__name__": "readme"}
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(first, "README.md", "exec"), names)
    for block in others:
        exec(compile(block, "README.md", "exec"), names)
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def equal_output(shown, output):
    """Whether two texts have the same words, and numbers that differ by rounding alone."""
    if NUMBER.sub("#", shown) != NUMBER.sub("#", output):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(output), strict=True)
    return all(abs(float(one) - float(other)) <= TOLERANCE for one, other in pairs)


def main():
    parser = argparse.ArgumentParser(description="The README's programs and their output.")
    parser.add_argument("--write", action="store_true", help="write the output into the README")
    write = parser.parse_args().write
    text = README.read_text()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        output = run_blocks(text)
    if write:
        README.write_text(SHOWN.sub(lambda _: output, text, count=1))
    elif not equal_output(SHOWN.search(text)[0], output):
        print(output, file=sys.stderr)
        raise SystemExit(
            "the README shows another output: python tools/ci/readme_example.py --write"
        )
    print(f"the README's {len(BLOCK.findall(text))} blocks run")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
