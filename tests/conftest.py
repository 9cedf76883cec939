"""Configuration of all tests: strict promotion, Keras on JAX, scheduling for xdist."""

import gc
import os
import random
import signal

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "agg")
# the suite compiles some thousand small programs that run once: compiling quickly is what counts
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    # its MLIR pipeline makes quicker loops and takes half of the time to compile them
    "--xla_cpu_use_fusion_emitters=false "
    # one piece of code a program: cutting it up for several threads costs more than it saves here
    "--xla_cpu_parallel_codegen_split_count=1 "
    # eight devices, of which tests use the first unless they ask for more
    "--xla_force_host_platform_device_count=8",
)

import jax
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.private_jax import share_mlir_contexts

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
share_mlir_contexts()

# a shell that starts the suite in the background makes it ignore Ctrl-C
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)


@pytest.fixture(autouse=True)
def _same_weights_of_keras():
    random.seed(0)  # Keras draws the seeds of its initializers from Python's generator


def pytest_collection_finish(session):
    gc.freeze()  # what is imported stays: collections need not look through it again and again
    gc.set_threshold(200_000, 20, 50)  # tracing makes many small objects: rare collections do


class ByPrograms(LoadScopeScheduling):
    """Tests that share compiled programs run in one worker: those of a file, or of a table's row."""

    def _split_scope(self, nodeid):
        file, _, test = nodeid.partition("::")
        if file.endswith(("test_layer_table.py", "test_keras_parity.py")) and "[" in test:
            return test.partition("[")[2]
        # scopes of many tests begin first. Early are processes of their own, which take long, and
        # what throws all programs away, while there are few
        if "kills_leave_no_trace" in test or file.endswith("test_opening.py"):
            return "tests/layers/test_keras_json.py"
        # last are single tests that take seconds: one worker need not wait for the other
        spread = "test_applications.py", "keras/test_layer_files.py", "keras/test_compositions.py"
        if file.endswith(spread):
            return nodeid
        # both draw from the same distributions
        return file.replace("image/test_mixing", "image/test_color")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return ByPrograms(config, log)
