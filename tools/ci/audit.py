"""Checks the exact versions of constraints.txt for known vulnerabilities, with pip-audit.

    python tools/ci/audit.py

fails if an advisory matches. If the advisories cannot be reached, the program reports that nothing
was audited and passes, so that an outage does not stop CI; with FKERAS_AUDIT=required it fails.
ACCEPTED lists advisories that do not concern this project, with reasons.
"""

import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = 180
# (advisory, the reason why it is accepted)
ACCEPTED = ()


def report():
    """pip-audit's report, or the reason why there is none."""
    command = [sys.executable, "-m", "pip_audit", "-r", str(ROOT / "constraints.txt")]
    command += ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    for advisory, _ in ACCEPTED:
        command += ["--ignore-vuln", advisory]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {SECONDS} s"
    try:
        return json.loads(done.stdout)["dependencies"], ""
    except (json.JSONDecodeError, KeyError, TypeError):
        lines = done.stderr.strip().splitlines() or ["no output"]
        return None, lines[-1]


def judge(dependencies, reason, required):
    """`(exit status, lines to print)` of a report.

    Args:
        dependencies: the entries of pip-audit's report, or None.
        reason: why there is no report.
        required: whether packages that were not audited are a failure.
    """
    entries = dependencies or []
    skipped = [entry["name"] for entry in entries if "skip_reason" in entry]
    audited = [entry for entry in entries if "skip_reason" not in entry]
    lines, status = [], 0
    for entry in audited:
        for found in entry.get("vulns", ()):
            status = 1
            fixed = ", ".join(found.get("fix_versions", ())) or "no release"
            lines.append(f"{entry['name']} {entry['version']}: {found['id']}, fixed in {fixed}")
    if not audited:
        why = reason or next((entry["skip_reason"] for entry in entries), "no packages")
        lines.append(f"NOTHING WAS AUDITED: {why}. Run it where the advisories can be reached.")
    elif skipped:
        lines.append(f"NOT AUDITED: {', '.join(skipped)}.")
    if (skipped or not audited) and required:
        status = 1
    lines.append(f"dependency audit: {len(audited)} audited, {len(skipped)} skipped")
    return status, lines


def main():
    status, lines = judge(*report(), os.environ.get("FKERAS_AUDIT") == "required")
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(main())
