"""Damages valid files at random, opens them, and reports those that neither open nor are rejected.

    python tools/stress/fuzz_files.py [seconds] [seed]

The files are models (`.keras`, legacy `.h5`), trainings, weights of every kind, GGUF files, and folders of
pretrained models. Each load must return
the file's content or raise `fk.FileError`. Everything else is a finding: another exception, a crash, a
load that takes long or allocates more memory than the file justifies, and, for damages that a
checksum covers, other values than the saved ones. Files are opened in child processes, so that a
crash or an endless loop in C ends only one process. Each finding is printed with a number that
reproduces it:

    python tools/stress/fuzz_files.py --again SEED:NUMBER
"""

from __future__ import annotations

import faulthandler
import os
import pathlib
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import fkeras as fk
from tools.stress.fuzz_corpus import Corpus, Good, same
from tools.stress.fuzz_damage import damaged

# what a load may take of the processor, on which others may be at work
_SECONDS = 20
_MEMORY = 4 << 30
# how long the parent waits for a line of a child: for a case, and for the good files at the start
_PATIENCE = 120
_START = 600


def case(corpus: Corpus, rng: random.Random) -> tuple[str, Good, bytes, bool]:
    """What was done, to which file, the damaged file, and whether it may only open as it was."""
    good = rng.choice(corpus.goods)
    what, data, checked = damaged(good.data, rng)
    return f"{good.what}: {what}", good, data, checked


def attempt(folder: pathlib.Path, good: Good, data: bytes, checked: bool) -> str | None:
    """What is wrong with how a damaged file is opened, or None."""
    path = folder / good.name
    path.write_bytes(data)
    try:
        opened = good.open(path)
    except fk.FileError as error:
        text = str(error)
        if "more memory than there is" in text or "RESOURCE_EXHAUSTED" in text:
            return f"asks for memory: {text[:300]}"
        # the files of a folder may contradict each other
        named = error.file == str(path) or (
            path.parent != folder and str(error.file).startswith(str(path.parent))
        )
        return None if named and len(text) < 4000 else f"unclear: {text[:300]}"
    except (Exception, Late) as error:
        lines = traceback.extract_tb(error.__traceback__)
        own = [
            f"{pathlib.Path(x.filename).name}:{x.lineno}" for x in lines if "fkeras" in x.filename
        ]
        return f"{type(error).__name__}: {str(error)[:300]} ({' '.join(own[-4:])})"
    if checked and not same(opened, good.holds):
        return "opens as something else than was saved"
    return None


class Late(BaseException):
    """Raised where a case takes too long; no handler of exceptions takes it for a damaged file."""


def _late(*_) -> None:
    raise Late(f"more than {_SECONDS} seconds")


def work(seed: str, first: int, seconds: float, count: int | None = None) -> None:
    """The child: cases from `first` on, each announced before it begins."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(folder)
        size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
        signal.signal(signal.SIGPROF, _late)
        end = time.monotonic() + seconds
        number = first
        while time.monotonic() < end and (count is None or number < first + count):
            print(f"case {number}", flush=True)
            what, good, data, checked = case(corpus, random.Random(f"{seed}:{number}"))
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            try:
                found = attempt(corpus.folder, good, data, checked)
            except Late as error:
                found = f"Late: {error}"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            if found:
                print(f"FOUND {number} {what}: {found}", flush=True)
            number += 1
    print("end", flush=True)


def lines_of(command: list[str], patience: float, start: float) -> Iterator[str]:
    """What a child process prints, line by line, and at last how it ended.

    The last line is "ended " with the exit code, or "hangs" where the child printed nothing for
    longer than it may; it is killed then.

    Args:
        command: the child.
        patience: how many seconds it may be silent.
        start: how many before its first line.
    """
    held, wait = b"", start
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as child,
    ):
        assert child.stdout is not None
        try:
            while select.select([child.stdout], [], [], wait)[0]:
                part = os.read(child.stdout.fileno(), 1 << 16)
                if not part:
                    code = child.wait()
                    errors.seek(0)
                    if code:
                        yield from errors.read()[-2000:].decode(errors="replace").splitlines()
                    yield f"ended {code}"
                    return
                *whole, held = (held + part).split(b"\n")
                yield from (line.decode(errors="replace") for line in whole)
                wait = patience
            yield "hangs"
        finally:
            child.kill()


class Findings:
    """What was found, by kind; each kind is printed once."""

    def __init__(self, seed: str):
        self.seed = seed
        self.counts: dict[str, int] = {}

    def add(self, kind: str, number: int, text: str) -> None:
        """Counts a finding, and prints it where it is the first of its kind."""
        if kind not in self.counts:
            again = f"python tools/stress/fuzz_files.py --again {self.seed}:{number}"
            print(f"{text}\n    again: {again}", flush=True)
        self.counts[kind] = self.counts.get(kind, 0) + 1


def watch(
    command: list[str], findings: Findings, number: int, patience: float = _PATIENCE
) -> tuple[int, bool]:
    """Follows a child through its cases: `(number of the next one, whether it came to its end)`.

    Args:
        command: the child.
        findings: takes what it finds.
        number: its first case.
        patience: how many seconds a case may take.
    """
    now, told, ended = number - 1, [], False
    for line in lines_of(command, patience, _START):
        word, _, rest = line.partition(" ")
        if word == "case":
            now = int(rest)
        elif word == "FOUND":
            place, _, what = rest.partition(" ")
            findings.add(what.split("(")[-1] if "(" in what else what[:80], int(place), what)
        elif line == "hangs":
            findings.add(f"hangs {now}", now, f"HANGS: no answer within {patience} seconds")
        elif word == "ended" and rest != "0":
            findings.add(f"crash {now}", now, "\n".join([*told[-30:], f"CRASH {rest}"]))
        elif line == "end":
            ended = True
        else:
            told.append(line)
    if now < number:
        sys.exit("\n".join([*told[-30:], "The child made no case."]))
    return now + 1, ended


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        seed, first, seconds, *count = sys.argv[2:]
        work(seed, int(first), float(seconds), *map(int, count))
        return
    child = [sys.executable, __file__, "--work"]
    if sys.argv[1:2] == ["--again"]:
        seed, _, place = sys.argv[2].rpartition(":")
        findings = Findings(seed)
        watch([*child, seed, place, "600", "1"], findings, int(place))
        sys.exit(bool(findings.counts))
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = sys.argv[2] if len(sys.argv) > 2 else "0"
    findings, number, ended = Findings(seed), 0, False
    while seconds > 0 and not ended:
        start = time.monotonic()
        number, ended = watch([*child, seed, str(number), str(seconds)], findings, number)
        seconds -= time.monotonic() - start
    total, kinds = sum(findings.counts.values()), len(findings.counts)
    print(f"{number} files, {total} findings of {kinds} kinds, seed {seed}.")
    sys.exit(bool(findings.counts))


if __name__ == "__main__":
    main()
