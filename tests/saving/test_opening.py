"""Cost of opening a file: no program is compiled, and the first prediction compiles one."""

import contextlib

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.engine.call.building import build_shapes
from fkeras.engine.values.random import ShapeKey


@contextlib.contextmanager
def compiled():
    """Yields a list that receives an entry for each program compiled in the block."""
    programs, listening = [], [True]

    def listen(event, duration, **_):
        if listening and event.endswith("backend_compile_duration"):
            programs.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield programs
    listening.clear()


@pytest.mark.exhaustive
def test_opening_compiles_nothing_and_the_first_prediction_one_program(tmp_path, key):
    x = fk.Input((9, 9, 3))
    h = fk.layers.Conv2D(5, 3, use_bias=False)(x)
    h = fk.layers.BatchNormalization()(h)
    h = fk.layers.SpectralNormalization(fk.layers.Dense(7, kernel_initializer="orthogonal"))(h)
    h = fk.layers.Reshape((-1, 7))(h)
    h = fk.layers.LSTM(3)(h)
    model = fk.Model(x, fk.layers.Dropout(0.5)(h)).build(key)
    path = tmp_path / "model.keras"
    fk.save_model(path, model, model.init_state())
    jax.clear_caches()
    image = np.ones((2, 9, 9, 3), "float32")
    with compiled() as programs:
        again, state = jax.block_until_ready(fk.load_model(path))
        assert programs == []
        again(image, state=state).block_until_ready()
        assert len(programs) == 1
        again(image, state=state).block_until_ready()
        assert len(programs) == 1


def test_recording_runs_no_initializer():
    drawn = []

    def initializer(key, shape, dtype):
        drawn.append(shape)
        return jax.numpy.zeros(shape, dtype)

    layer = fk.layers.Dense(2, kernel_initializer=initializer)
    model = fk.Model(x := fk.Input((3,)), layer(x))
    assert drawn == []
    _ = model.build(jax.random.key(0))
    assert drawn == [(3, 2)]


class OwnDraws(fk.Layer):
    """Draws its weights in `build`, and computes with the values."""

    table: jax.Array | None = fk.weight()

    def build(self, key, x):
        table = jax.random.normal(key, x.shape[-1:])
        return self.replace(table=table / table.sum(), _built=True)

    def call(self, x):
        return x * self.table[None]


class LooksAtWeights(fk.layers.Dense):
    """Computes with its weights in `build`."""

    def build(self, key, x):
        built = super().build(key, x)
        return built.replace(kernel=jax.numpy.sin(built.kernel) * 2)


class LooksInside(fk.Layer):
    """Computes with the weights of an inner layer in `build`."""

    layer: fk.Layer
    scale: jax.Array | None = fk.weight()

    def build(self, key, x):
        return self.replace(scale=jax.numpy.abs(self.layer.kernel).max(0), _built=True)

    def call(self, x):
        return self.layer(x) * self.scale[None]


def test_layers_that_use_keys_and_weights_themselves_have_shapes(key):
    assert build_shapes(OwnDraws(), (None, 3))[0].table.shape == (3,)
    assert build_shapes(LooksAtWeights(2), (None, 3))[0].kernel.shape == (3, 2)
    inner = fk.layers.Dense(2).build(key, (None, 3))
    assert LooksInside(inner)(fk.Input((3,))).shape == (None, 2)
    x = fk.Input((3,))
    assert LooksAtWeights(2)(OwnDraws()(x)).shape == (None, 2)


def test_errors_of_build_are_raised_unchanged():
    layer = fk.layers.Dense(2)
    try:
        build_shapes(layer, (None, None))
    except ValueError as error:
        assert "needs known sizes" in str(error)
    else:
        raise AssertionError("a weight of unknown size")


def test_weights_of_shapes_take_no_memory():
    kernel = fk.layers.Dense(1 << 20).build(ShapeKey(), (None, 1 << 20)).kernel
    assert kernel.nbytes == 1 << 42
    assert kernel.base.nbytes == 4
