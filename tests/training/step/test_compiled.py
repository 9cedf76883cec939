import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.training.step.compiled import compiled

SMALL, LARGE = jnp.ones(4), jnp.ones(8 * 2**20)


def test_large_arrays_keep_one_block_of_memory():
    function = compiled(lambda x: x[:4].sum())
    assert function.suited("cpu", SMALL) is function.in_blocks
    assert function.suited("cpu", LARGE) is function.in_blocks  # computes no large array
    assert function.suited("tpu", SMALL) is function.by_default
    function = compiled(jax.jit(lambda x: jnp.where(x > 2, x, x * 2)[-1]))
    assert function.suited("cpu", LARGE) is function.by_default
    assert float(function("small", SMALL)) == float(function("large", LARGE)) == 2


def test_programs_of_the_compilation_cache_have_one_block(tmp_path):
    """XLA stores no program with several blocks."""
    function = compiled(lambda x: x + 1)
    assert function.suited("cpu", SMALL) is function.in_blocks
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert function.suited("cpu", SMALL) is function.by_default
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert function.suited("cpu", SMALL) is function.in_blocks


def test_a_key_chooses_once(monkeypatch):
    function = compiled(lambda x: x + 1)
    for _ in range(2):
        assert float(function("key", SMALL)[0]) == 2
        monkeypatch.setattr(type(function), "suited", None)  # would raise


def test_a_call_inside_of_a_transformation_takes_the_options_of_the_outer_program():
    function = compiled(lambda x: x + 1)
    assert float(jax.jit(lambda y: y + function("a", 1.0))(2.0)) == 4
    failing = compiled(_raise_error)
    with pytest.raises(ValueError, match="mine"):
        failing("b", 1.0)


def _raise_error(x):
    raise ValueError("mine")


def test_a_step_over_known_arrays_inside_of_jit():
    x = fk.Input((3,))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(fk.Model(x, layers.Dense(1)(x)), jax.random.key(0))
    batch = np.ones((2, 3), "float32"), np.ones((2, 1), "float32")
    expected = trainer.step(run, batch)[1]["loss"]
    assert float(jax.jit(lambda: trainer.step(run, batch)[1]["loss"])()) == pytest.approx(expected)
