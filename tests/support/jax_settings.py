"""Settings of JAX for all tests, and a key: a plugin of the processes that run tests."""

import jax
import pytest

from tests.support.private_jax import share_mlir_contexts

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_filtering", "off")
jax.config.update("jax_traceback_in_locations_limit", 0)  # nothing reads the lines in programs
share_mlir_contexts()


@pytest.fixture(scope="session")
def key():
    return jax.random.key(0)
