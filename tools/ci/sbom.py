"""Writes the software bill of materials of the installed fkeras, in the form of CycloneDX.

    python tools/ci/sbom.py sbom.json

lists fkeras and all packages that pip installs with it, at the installed versions, and which package
needs which.
"""

import importlib.metadata
import json
import pathlib
import re
import sys

from packaging.requirements import Requirement


def needed(name):
    """Returns the names of the packages that a package needs here, without its extras."""
    lines = importlib.metadata.requires(name) or ()
    found = (Requirement(line) for line in lines)
    return sorted(
        {_normal(r.name) for r in found if not r.marker or r.marker.evaluate({"extra": ""})}
    )


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(root):
    """Returns the bill of an installed package as a dictionary."""
    graph, open_ = {}, [root]
    while open_:
        name = open_.pop()
        if name not in graph:
            graph[name] = needed(name)
            open_ += graph[name]
    versions = {name: importlib.metadata.version(name) for name in sorted(graph)}
    where = {name: f"pkg:pypi/{name}@{version}" for name, version in versions.items()}

    def component(name):
        facts = {"type": "library", "bom-ref": where[name], "purl": where[name]}
        return facts | {"name": name, "version": versions[name]}

    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(root)},
        "components": [component(name) for name in versions if name != root],
        "dependencies": [
            {"ref": where[name], "dependsOn": [where[other] for other in graph[name]]}
            for name in versions
        ],
    }


def main(arguments):
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    pathlib.Path(arguments[0]).write_text(json.dumps(bill("fkeras"), indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
