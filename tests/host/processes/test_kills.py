"""Trainings of several processes that are killed again and again."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


def _kill(*arguments):
    command = [sys.executable, "tools/stress/kill_processes.py", "--quiet", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


@pytest.mark.exhaustive
def test_two_processes_continue_bit_for_bit_after_ten_kills():
    result = _kill("--kills", "10", "--seed", "1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "10 kills" in result.stdout and "results identical" in result.stdout


@pytest.mark.exhaustive
def test_other_numbers_of_processes_continue_after_kills():
    result = _kill("--kills", "5", "--change", "--seed", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "results within 1e-5" in result.stdout
