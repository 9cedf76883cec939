"""Configuration of all tests: strict promotion, Keras on JAX, scheduling for xdist."""

import argparse
import gc
import importlib
import os
import pathlib
import random
import re
import signal
import zlib

from tests.support.quick_flags import QUICK

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("FKERAS_TRACEBACK_FILTERING", "off")  # a failed test shows all frames
# the tests compile thousands of small programs; eight devices: tests use the first unless they ask for more
os.environ.setdefault("XLA_FLAGS", f"{QUICK} --xla_force_host_platform_device_count=8")

import pytest
from xdist.scheduler import LoadScopeScheduling

# imports and items stay alive, and tracing makes many short-lived objects: collect rarely
gc.set_threshold(200_000, 20, 50)
# processes that a shell starts in the background ignore Ctrl-C, which some tests send
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    # the process that distributes the tests to others needs no JAX
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        settings = importlib.import_module("tests.support.jax_settings")
        config.pluginmanager.register(settings)


@pytest.fixture(autouse=True)
def _same_weights_of_keras():
    random.seed(0)  # Keras takes the seeds of initializers from Python's generator


def pytest_addoption(parser):
    parser.addoption(
        "--part",
        metavar="K/N",
        type=_part,
        help="run part K of N, where each test is in exactly one part, whatever other tests exist",
    )


def _part(text):
    number, slash, count = text.partition("/")
    if not (slash and number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"expected K/N with 1 <= K <= N, such as 2/4, received {text!r}"
        )
    return int(number), int(count)


def pytest_collection_modifyitems(config, items):
    for item in _others_of_products(items):
        item.add_marker(pytest.mark.exhaustive)
    if (part := config.getoption("part")) is None:
        return
    number, count = part
    selected = [zlib.crc32(item.nodeid.encode()) % count == number - 1 for item in items]
    others = [item for item, chosen in zip(items, selected, strict=True) if not chosen]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item, chosen in zip(items, selected, strict=True) if chosen]


def _others_of_products(items):
    """Returns the cases of products that the default suite leaves to the exhaustive tests.

    `one_in(n)` runs one case in `n` of a parametrized test. `one_a_class` runs one row of the layer
    table for each class, or for each family: the classes of all ranks, such as `Conv1D` and
    `Conv2D`. The name of the test determines which row, so that tests differ in their rows;
    `first` takes the first row. `one_a_class(each=n)` runs one row in `n` of
    each class and form of call (with a mask or without, in training or not), at least one.
    """
    groups, others = {}, []
    for item in items:
        product = item.get_closest_marker("one_in") or item.get_closest_marker("one_a_class")
        if product is not None and item.get_closest_marker("exhaustive") is None:
            test = item.nodeid.partition("[")[0]
            key = None if product.name == "one_in" else _class_of(item, product.kwargs)
            groups.setdefault((test, key), (product, []))[1].append(item)
    for (test, _), (product, cases) in groups.items():
        step = product.args[0] if product.args else product.kwargs.get("each", len(cases))
        start = zlib.crc32(test.encode()) % min(step, len(cases))
        start = 0 if product.kwargs.get("first") else start
        chosen = {id(case) for case in cases[start::step]}
        others += [case for case in cases if id(case) not in chosen]
    return others


def _class_of(item, options):
    case = item.callspec.params["case"]
    name = type(case.layer).__name__
    name = re.sub("[123]D", "", name) if options.get("family") else name
    return (name, case.mask is not None, case.training) if "each" in options else name


def pytest_collection_finish(session):
    gc.freeze()  # imported modules stay alive: collections can skip them


class ByPrograms(LoadScopeScheduling):
    """Runs tests that share compiled programs in one worker: those of a file or of a table row."""

    def __init__(self, config, log=None):
        super().__init__(config, log)
        files = pathlib.Path(__file__).parent.rglob("test_*.py")
        drawn = (f for f in files if re.search("^(from|import) hypothesis", f.read_text(), re.M))
        self._drawn = {file.relative_to(config.rootpath).as_posix() for file in drawn}

    def _split_scope(self, nodeid):
        file, _, test = nodeid.partition("::")
        if file.endswith(("test_layer_table.py", "test_keras_parity.py")) and "[" in test:
            return test.partition("[")[2]
        # xdist starts scopes of many tests first. Tests with long child processes join such a scope,
        # and so do tests that clear JAX's caches, while these are small
        if "kills_leave_no_trace" in test or file.endswith("test_opening.py"):
            return "tests/layers/test_keras_json.py"
        # single tests that take seconds are scopes of one, so that workers finish together
        spread = (
            "test_applications.py",
            "test_damaged_keys.py",
            "keras/test_layer_files.py",
            "keras/test_compositions.py",
        )
        if file.endswith(spread):
            return nodeid
        # hypothesis reads all sources of the package in each worker that runs its tests
        if file in self._drawn:
            return "hypothesis"
        # both read all sources of the package
        if file.endswith("package/test_wings.py"):
            return file.replace("test_wings", "test_layout")
        # both draw from the same distributions
        return file.replace("image/test_mixing", "image/test_color")


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config):
    # The results of a worker are sent. To free its modules and programs one by one takes seconds.
    if hasattr(config, "workerinput"):
        os._exit(0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return ByPrograms(config, log)
