"""Builds the source archive and the wheel, and runs a sample of the archive's own tests.

    python tools/ci/check_sdist.py

unpacks the archive into an empty folder and runs tests there, which fail if the archive lacks a
file that they need. The wheel is built from the archive and must have the same version; twine reads the metadata of both.
"""

import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = (
    "tests/package/test_installation.py",
    "tests/package/test_layout.py",
    "tests/engine/network/test_network.py",
    "tests/saving/test_weight_files.py",
    "tests/saving/legacy/test_keras1.py",
    "tests/training/test_training.py",
)


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        built = folder / "dist"
        build = [sys.executable, "-m", "build", "-o", built, ROOT]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (archive,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
        check = [sys.executable, "-m", "twine", "check", "--strict", archive, wheel]
        subprocess.run(check, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        unpacked = folder / archive.name.removesuffix(".tar.gz")
        where = "import fkeras; print(fkeras.__file__, fkeras.__version__)"
        shown = subprocess.run(
            [sys.executable, "-c", where], check=True, cwd=unpacked, capture_output=True, text=True
        )
        file, version = shown.stdout.split()
        if not file.startswith(str(unpacked)):
            raise SystemExit(f"the tests would import {file}, which is not in the archive")
        for name in (archive.name, wheel.name):
            if f"-{version}" not in name:
                raise SystemExit(f"{name} is not version {version}")
        with zipfile.ZipFile(wheel) as packed:
            others = {name.split("/")[0] for name in packed.namelist()}
        if others != {"fkeras", f"fkeras-{version}.dist-info"}:
            raise SystemExit(f"the wheel holds {', '.join(sorted(others))}")
        # every test file must at least import there
        test = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        collected = [*test, "--collect-only", "-qq", "tests"]
        subprocess.run(collected, check=True, cwd=unpacked, stdout=subprocess.DEVNULL)
        subprocess.run([*test, "-n", "2", *SAMPLE], check=True, cwd=unpacked)
    print(f"{archive.name} and {wheel.name} hold what they need")


if __name__ == "__main__":
    main()
