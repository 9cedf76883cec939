"""Checks that this commit is the release of a tag, before anything is published.

    python tools/ci/check_release.py v0.2.0

prints each document that is not ready, and fails: the version, the changelog's section, the public
address, and the README's command to install.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

from address import read_address, read_version  # noqa: E402


def faults(tag, version, settled, changelog, readme):
    """Returns a sentence for each document that is not ready."""
    if tag != f"v{version}":
        yield f"the tag is {tag}, and fkeras/__init__.py has version {version}"
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"version {version} is no release, such as 0.2.0"
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M):
        yield f"CHANGELOG.md has no section of {version} with its date"
    if not settled:
        yield "docs/address.toml has no owner, so the index would show no links"
    for name, text in (("CHANGELOG.md", changelog), ("README.md", readme)):
        if "on a package index yet" in text:
            yield f"{name} says that fkeras is not on a package index"


def main(arguments):
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    texts = [(ROOT / name).read_text("utf-8") for name in ("CHANGELOG.md", "README.md")]
    found = list(faults(arguments[0], read_version(), read_address().settled, *texts))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
