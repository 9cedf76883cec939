"""Keras on TensorFlow, in a process of another interpreter, as a contender of benchmarks."""

import pathlib
import subprocess
import tempfile

import meter


class TensorFlow:
    """A program that answers one line to each line.

    Attributes:
        folder: for files that go to the program and come back.
    """

    def __init__(self, interpreter, script):
        path = pathlib.Path(__file__).with_name(script)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([interpreter, str(path)], **pipes)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self._wait()

    def _wait(self):
        answer = self.process.stdout.readline().strip()
        assert answer, "the process of TensorFlow has ended"
        return answer

    def ask(self, *request):
        print(*request, file=self.process.stdin, flush=True)
        return self._wait()

    def seconds(self, *request):
        """CPU seconds of a request that answers them."""
        return meter.Seconds(self.ask(*request))
