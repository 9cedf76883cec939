"""Runs the first Python block of the README, as a reader would."""

import pathlib
import re

text = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
block = re.search(r"```python\n(.*?)```", text, re.DOTALL).group(1)
lines = [line for line in block.splitlines() if line.strip()]
assert len(lines) <= 25, f"the README's example has {len(lines)} lines"
exec(compile(block, "README.md", "exec"), {})
