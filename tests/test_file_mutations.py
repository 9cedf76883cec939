"""Good files, damaged at random: each opens or is refused with one clear error.

A short look at what `tools/fuzz_files.py` does for as long as one likes.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools import fuzz_files


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return fuzz_files.Corpus(str(tmp_path_factory.mktemp("good")))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(number=st.integers(0, 10**6))
def test_damaged_files_open_or_are_refused(corpus, number):
    what, data, same = fuzz_files.case(corpus, random.Random(number))
    path = corpus.folder / "case.keras"
    found = fuzz_files.attempt(path, data, None if same is None else corpus.models[same])
    assert found is None, f"{what}, number {number}: {found}"
