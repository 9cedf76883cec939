"""What all tests share: strict promotion, Keras on JAX, no progress on the screen."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "agg")
# the suite compiles some thousand small programs that run once: compiling quickly is what counts
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    # its MLIR pipeline makes quicker loops and takes half of the time to compile them
    "--xla_cpu_use_fusion_emitters=false "
    # eight devices, of which tests use the first unless they ask for more
    "--xla_force_host_platform_device_count=8",
)

import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)
