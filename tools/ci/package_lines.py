"""Prints the lines of each top package, and the budgets of docs/architecture.md.

    python tools/ci/package_lines.py [--write]

`--write` rewrites the table: new counts, budgets rounded up to the next hundred, and the old reasons.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/architecture.md"
_HEAD = "| package | lines | budget | reason of a raised budget |\n|---|--:|--:|---|\n"
_ROW = re.compile(r"\| `([\w.]+)` \| [\d,]+ \| ([\d,]+) \|(.*)\|\n")


def package_lines() -> dict[str, int]:
    """The lines of each top package and module, and of the whole package as "fkeras"."""
    lines: dict[str, int] = {}
    for path in sorted((ROOT / "fkeras").rglob("*.py")):
        top = path.relative_to(ROOT / "fkeras").parts[0].removesuffix(".py")
        count = len(path.read_text().splitlines())
        for name in ("fkeras", top):
            if name not in ("__init__", "__main__"):
                lines[name] = lines.get(name, 0) + count
    return dict(sorted(lines.items()))


def budgets() -> dict[str, tuple[int, str]]:
    """The budget and the reason of each row of the table."""
    _, _, table = DOCUMENT.read_text().partition(_HEAD)
    rows = _ROW.findall(table)
    return {name: (int(budget.replace(",", "")), reason.strip()) for name, budget, reason in rows}


def _write() -> None:
    reasons = budgets()
    rows = []
    for name, count in package_lines().items():
        reason = reasons.get(name, (0, ""))[1]
        rows.append(f"| `{name}` | {count:,} | {-(-count // 100) * 100:,} | {reason} |\n")
    before, head, after = DOCUMENT.read_text().partition(_HEAD)
    rest = after[len("".join(match[0] for match in _ROW.finditer(after))) :]
    DOCUMENT.write_text(before + head + "".join(rows) + rest)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        _write()
    for name, count in package_lines().items():
        print(f"{name:14} {count:7,} of {budgets()[name][0]:7,}")
