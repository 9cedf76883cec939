"""Runs the README's first Python block, and the blocks about files that continue it."""

import os
import pathlib
import re
import tempfile

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

text = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
first = BLOCK.search(text)[1]
lines = [line for line in first.splitlines() if line.strip()]
assert len(lines) <= 25, f"the README's example has {len(lines)} lines"
files = re.search(r"^## Files\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)[1]
os.chdir(tempfile.mkdtemp())  # the blocks write files
names = {}
for block in (first, *BLOCK.findall(files)):
    exec(compile(block, "README.md", "exec"), names)
