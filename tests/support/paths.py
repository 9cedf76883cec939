"""Folders of the repository."""

import pathlib

ROOT = pathlib.Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
