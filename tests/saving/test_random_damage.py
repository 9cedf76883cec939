"""Valid files, damaged at random: each opens or raises one clear error.

A short run of `tools/stress/fuzz_files.py`.
"""

import os
import random
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.stress import fuzz_files


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return fuzz_files.Corpus(str(tmp_path_factory.mktemp("good")))


@pytest.mark.exhaustive
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(number=st.integers(0, 10**6))
def test_damaged_files_open_or_are_rejected(corpus, number):
    what, good, data, checked = fuzz_files.case(corpus, random.Random(number))
    finding = fuzz_files.attempt(corpus.folder, good, data, checked)
    assert finding is None, f"{what}, number {number}: {finding}"


@pytest.mark.skipif(os.name != "posix", reason="the watched program is asked by a signal")
def test_findings_of_child_processes_are_reported(capsys):
    """A loop in C ignores signals: the parent kills the process and reports the case."""

    def watch(program, patience=60):
        findings = fuzz_files.Findings("7")
        result = fuzz_files.watch([sys.executable, "-c", program], findings, 3, patience)
        return result, list(findings.counts), capsys.readouterr().out

    cases = "print('case 3'); print('case 4', flush=True)"
    assert watch(f"{cases}; print('end')") == ((5, True), [], "")
    loop = f"import signal, time; signal.pthread_sigmask(0, [signal.SIGPROF]); {cases}; time.sleep(600)"
    result, kinds, text = watch(loop, 1)
    assert result == (5, False) and kinds == ["hangs 4"] and "--again 7:4" in text
    result, kinds, text = watch(f"import os; {cases}; os.abort()")
    assert result == (5, False) and kinds == ["crash 4"] and "--again 7:4" in text
    program_with_finding = "print('case 3'); print('FOUND 3 its bytes: Late: slow'); print('end')"
    result, kinds, text = watch(program_with_finding)
    assert result == (4, True) and kinds == ["its bytes: Late: slow"] and "--again 7:3" in text
    with pytest.raises(SystemExit, match="no case"):
        watch("raise ValueError('broken')")
