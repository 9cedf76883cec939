"""Weights in every kind of file, in both directions; Keras is the oracle for its own files."""

import os

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import fkeras as fk
from fkeras import layers
from fkeras.host.containers.safetensors import write as write_safetensors
from fkeras.training.callbacks import ModelCheckpoint
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)
SUFFIXES = (".weights.h5", ".safetensors", ".npz")


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def network(head="head", units=2, width=3):
    x = fk.Input((4,))
    y = layers.BatchNormalization(name="norm")(layers.Dense(width, name="body")(x))
    return fk.Model(x, layers.Dense(units, name=head)(y))


def shifted(model):
    """Returns the built model and its state with 1 added to every number."""
    model = model.build(KEY)
    return jax.tree.map(lambda a: a + jnp.ones_like(a), (model, model.init_state()))


MODEL, STATE = shifted(network())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_saved_weights_are_loaded(tmp_path, suffix):
    path = tmp_path / "deep" / f"w{suffix}"
    fk.save_weights(path, MODEL, STATE)
    for other in (network(), network().build(jax.random.key(1))):
        model, state = fk.load_weights(path, other)
        assert model == MODEL
        chex.assert_trees_all_equal(state, STATE)
    # frozen layers are loaded too, and stay frozen
    model, _ = fk.load_weights(path, fk.freeze(network(), "body"))
    assert not model.layers["body"].trainable
    np.testing.assert_array_equal(model.layers["body"].kernel, MODEL.layers["body"].kernel)


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_bfloat16_stays_and_other_dtypes_follow_the_model(tmp_path, suffix):
    def dense(dtype):
        return fk.Sequential([fk.Input((3,)), layers.Dense(2, name="d", dtype=dtype)])

    half, path = dense("bfloat16").build(KEY), tmp_path / f"half{suffix}"
    fk.save_weights(path, half)
    kernel = fk.load_weights(path, dense("bfloat16"))[0].layers["d"].kernel
    assert kernel.dtype == jnp.bfloat16
    np.testing.assert_array_equal(kernel, half.layers["d"].kernel)
    wide = fk.load_weights(path, dense("float32"))[0].layers["d"].kernel
    np.testing.assert_array_equal(wide, kernel.astype("float32"))
    fk.save_weights(path, dense("float32").build(KEY))
    narrow = fk.load_weights(path, dense("bfloat16"))[0].layers["d"].kernel
    np.testing.assert_array_equal(narrow, kernel)


@pytest.mark.exhaustive
def test_saved_carries_of_stateful_layers(tmp_path):
    cell = layers.GRU(2, stateful=True, name="gru")
    model = fk.Sequential([fk.Input((3, 2), batch_size=1), cell]).build(KEY)
    state = model.apply(normal(0, 1, 3, 2), state=model.init_state()).updates
    for suffix in (".npz", ".safetensors"):
        fk.save_weights(tmp_path / f"w{suffix}", model, state)
        chex.assert_trees_all_equal(fk.load_weights(tmp_path / f"w{suffix}", model)[1], state)
    # Keras's files do not store carries: the passed state stays, or the initial state
    fk.save_weights(tmp_path / "w.weights.h5", model, state)
    loaded_state = fk.load_weights(tmp_path / "w.weights.h5", model, state)[1]
    chex.assert_trees_all_equal(loaded_state, state)
    initial_state = fk.load_weights(tmp_path / "w.weights.h5", model)[1]
    chex.assert_trees_all_equal(initial_state, model.init_state())


def test_other_programs_read_and_write_safetensors(tmp_path):
    path = tmp_path / "w.safetensors"
    fk.save_weights(path, MODEL, STATE)
    arrays = safetensors.numpy.load_file(path)
    assert sorted(arrays) == [
        *("body/bias", "body/kernel", "head/bias", "head/kernel", "norm/beta", "norm/gamma"),
        *("norm/moving_mean", "norm/moving_variance"),
    ]
    np.testing.assert_array_equal(arrays["head/kernel"], MODEL.layers["head"].kernel)
    theirs = {name: array * 2 for name, array in arrays.items()}
    safetensors.numpy.save_file(theirs, path, metadata={"by": "another"})
    model, state = fk.load_weights(path, MODEL, STATE)
    np.testing.assert_array_equal(model.layers["head"].kernel, theirs["head/kernel"])
    np.testing.assert_array_equal(state["norm"]["moving_mean"], theirs["norm/moving_mean"])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", ">f4"])
def test_small_floats_and_any_layout_in_safetensors(tmp_path, kind):
    path = tmp_path / "w.safetensors"
    kernel = np.arange(6.0).reshape(2, 3).astype(getattr(ml_dtypes, kind, kind)).T
    arrays = {"d/kernel": kernel, "d/bias": np.ones(2, kernel.dtype)}
    with path.open("wb") as file:
        write_safetensors(file, arrays, {"format": "x"})
    dense = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="d")])
    loaded_kernel = fk.load_weights(path, dense)[0].layers["d"].kernel
    np.testing.assert_array_equal(loaded_kernel, kernel.astype("float32"))
    data = path.read_bytes()
    with path.open("wb") as file:
        write_safetensors(file, arrays, {"format": "x"})
    assert path.read_bytes() == data


@pytest.mark.exhaustive
def test_weights_load_from_model_files_and_checkpoints(tmp_path):
    fk.save_model(tmp_path / "m.keras", MODEL, STATE)
    run = fk.Trainer("adam", "mse").init(MODEL, KEY, state=STATE)
    ModelCheckpoint(tmp_path / "m.npz").on_epoch_end(0, run, {})
    for name in ("m.keras", "m.npz"):
        os.rename(tmp_path / name, tmp_path / "m.bin")  # the content determines the format
        model, state = fk.load_weights(tmp_path / "m.bin", network())
        assert model == MODEL
        chex.assert_trees_all_equal(state, STATE)


def test_a_single_layer_is_saved_and_loaded(tmp_path):
    layer = layers.BatchNormalization().build(KEY, (None, 3))
    state = layer.init_state((None, 3))
    fk.save_weights(tmp_path / "w.npz", layer, state)
    assert fk.load_weights(tmp_path / "w.npz", layer, state)[0] == layer
    with pytest.raises(ValueError, match="expected the layer's state, received none"):
        fk.load_weights(tmp_path / "w.npz", layer)


def graph(kit, make):
    inner = make([kit.Input((4,)), kit.layers.Dense(3), kit.layers.BatchNormalization()])
    x = kit.Input((5, 4))
    y = kit.layers.Dropout(0.3, seed=1)(inner(kit.layers.LSTM(4, dropout=0.2, seed=2)(x)))
    return kit.Model(x, kit.layers.Dense(2)(y))


@pytest.fixture(scope="module")
def pair():
    with keras_rules():
        theirs = graph(keras, keras.Sequential)
        theirs.set_weights([normal(i, *w.shape) ** 2 for i, w in enumerate(theirs.get_weights())])
        theirs.compile("adam", "mse")
        theirs.optimizer.build(theirs.trainable_variables)
    return graph(fk, fk.Sequential), theirs


def compute(theirs, x):
    with keras_rules():
        return np.asarray(theirs(x))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["k.weights.h5", "k.weights.json"])
def test_weights_of_keras_give_equal_outputs(tmp_path, pair, name):
    ours, theirs = pair
    shards = {"max_shard_size": 3e-7} if name.endswith(".json") else {}
    with keras_rules():
        theirs.save_weights(tmp_path / name, **shards)
    model, state = fk.load_weights(tmp_path / name, ours)
    assert len(os.listdir(tmp_path)) > 2 or not shards
    x = normal(0, 3, 5, 4)
    np.testing.assert_allclose(model(x, state=state), compute(theirs, x), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_saved_weights_give_equal_outputs_in_keras(tmp_path, pair):
    ours, theirs = pair
    model, state = shifted(ours)
    fk.save_weights(tmp_path / "w.weights.h5", model, state)
    with keras_rules():
        theirs.load_weights(tmp_path / "w.weights.h5")
    x = normal(0, 3, 5, 4)
    np.testing.assert_allclose(compute(theirs, x), model(x, state=state), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_legacy_weights(tmp_path):
    with keras_rules():
        members = [keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(2)]
        theirs = keras.Sequential(members)
        theirs.save(tmp_path / "m.h5")
    ours = fk.Sequential([fk.Input((4,)), layers.Dense(3), layers.Dense(2)])
    x = normal(0, 2, 4)
    model, state = fk.load_weights(tmp_path / "m.h5", ours)
    assert state == {}
    np.testing.assert_allclose(model(x), compute(theirs, x), rtol=1e-5, atol=1e-6)


def test_legacy_weights_of_another_structure(tmp_path):
    with keras_rules():
        body, norm = (
            keras.layers.Dense(3, name="body"),
            keras.layers.BatchNormalization(name="norm"),
        )
        members = [keras.Input((4,)), body, norm, keras.layers.Dense(2, name="head")]
        keras.Sequential(members).save(tmp_path / "m.h5")
    new = [
        fk.Input((4,)),
        layers.Dense(3, use_bias=False, name="body"),
        layers.Dense(5, name="new"),
        layers.Dense(7, name="head"),
    ]
    model = fk.Sequential(new).build(KEY)
    with pytest.raises(fk.FileError) as caught:
        fk.load_weights(tmp_path / "m.h5", model)
    for part in (
        "missing in the file: new/kernel (3, 5), new/bias (5,)",
        "not in the model: body/bias (3,), norm/gamma (3,)",
        "norm/moving_variance (3,)",
        "head/kernel (5, 7) (file: (3, 2))",
    ):
        assert part in str(caught.value), str(caught.value)
    assert caught.value.file == str(tmp_path / "m.h5")
    loaded_model, _ = fk.load_weights(
        tmp_path / "m.h5", model, skip=["body/bias", "norm", "new", "head/*"]
    )
    np.testing.assert_array_equal(loaded_model.layers["body"].kernel, body.kernel)
    for name in ("head", "new"):
        assert loaded_model.layers[name] == model.layers[name]
    # other names: layers that are not skipped match by order
    renamed = [layers.Dense(3, name="a"), layers.BatchNormalization(name="b"), layers.Dense(9)]
    other = fk.Sequential([fk.Input((4,)), *renamed]).build(KEY)
    loaded_model, _ = fk.load_weights(tmp_path / "m.h5", other, skip=["dense", "head"])
    np.testing.assert_array_equal(loaded_model.layers["a"].kernel, body.kernel)
    with pytest.raises(fk.FileError, match=r"missing in the file: .*dense/kernel \(3, 9\)"):
        fk.load_weights(tmp_path / "m.h5", other, skip="head")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("suffix", [*SUFFIXES, ".keras"])
def test_one_error_lists_every_difference(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    save = fk.save_model if suffix == ".keras" else fk.save_weights
    save(path, MODEL, STATE)
    x = fk.Input((4,))
    y = layers.Dense(5, name="body")(x)
    new = layers.LayerNormalization(name="new")(y)
    other_model, state = shifted(fk.Model(x, layers.Dense(2, name="head")(new)))
    with pytest.raises(fk.FileError) as caught:
        fk.load_weights(path, other_model, state)
    text = str(caught.value)
    assert caught.value.file == str(path)
    for part in ("new/gamma (5,)", "new/beta (5,)", "norm/", "body/kernel (4, 5) (file: (4, 3))"):
        assert part in text, text
    assert "skip=['new', " in text and "nothing was loaded" in text
    before = other_model
    model, _ = fk.load_weights(
        path, other_model, state, skip=("body/*", "new", "norm", "head/kernel")
    )
    assert model.layers["new"] == before.layers["new"]
    np.testing.assert_array_equal(model.layers["body"].kernel, before.layers["body"].kernel)
    np.testing.assert_array_equal(model.layers["head"].bias, MODEL.layers["head"].bias)


def test_a_new_head_on_an_old_body(tmp_path):
    for suffix in SUFFIXES:
        path = tmp_path / f"w{suffix}"
        fk.save_weights(path, MODEL, STATE)
        model_with_new_head = network("top", 7).build(jax.random.key(3))
        model, state = fk.load_weights(path, model_with_new_head, skip=["head/*", "top/*"])
        assert model.layers["body"] == MODEL.layers["body"]
        assert model.layers["top"] == model_with_new_head.layers["top"]
        chex.assert_trees_all_equal(state, STATE)
        with pytest.raises(ValueError, match="'top/kernel' is skipped.*Build it first"):
            fk.load_weights(path, network("top", 7), skip=["head", "top"])
    with pytest.raises(ValueError, match=r"matches skip='boddy/\*'. Did you mean 'body"):
        fk.load_weights(path, MODEL, STATE, skip="boddy/*")


def test_arrays_of_another_kind_are_rejected(tmp_path):
    path = tmp_path / "w.safetensors"
    arrays = {"d/kernel": np.ones((3, 2), "complex64"), "d/bias": np.ones(2, "int32")}
    with path.open("wb") as file:
        write_safetensors(file, arrays, {})
    model = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="d")])
    with pytest.raises(fk.FileError, match=r"d/kernel float32 \(file: complex64\)") as caught:
        fk.load_weights(path, model)
    assert "d/bias float32 (file: int32)" in str(caught.value)  # integers never become floats


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_failed_save_preserves_the_old_file(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"w{suffix}"
    fk.save_weights(path, MODEL, STATE)

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        fk.save_weights(path, *shifted(network("top", 9)))
    assert os.listdir(tmp_path) == [path.name]
    assert fk.load_weights(path, network())[0] == MODEL


def _with_kind(name):
    return f"{'state' if 'moving' in name else 'weights'}/{name}"


@pytest.mark.one_in(4)
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("named", [str, _with_kind])
def test_names_may_begin_with_the_kind_of_the_array(suffix, named, tmp_path):
    fk.save_weights(tmp_path / "w.safetensors", MODEL, STATE)
    arrays = safetensors.numpy.load_file(tmp_path / "w.safetensors")
    arrays = {named(name): 2 * array for name, array in arrays.items()}
    path = tmp_path / f"named{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        safetensors.numpy.save_file(arrays, path)
    model, state = fk.load_weights(path, MODEL, STATE)
    np.testing.assert_array_equal(model.layers["head"].kernel, 2 * MODEL.layers["head"].kernel)
    np.testing.assert_array_equal(
        state["norm"]["moving_variance"], arrays[named("norm/moving_variance")]
    )


def test_a_layer_may_have_the_name_weights(tmp_path):
    model = fk.Sequential([fk.Input((3,)), layers.Dense(2, name="weights")]).build(KEY)
    for suffix in (".npz", ".safetensors"):
        fk.save_weights(tmp_path / f"w{suffix}", model)
        assert fk.load_weights(tmp_path / f"w{suffix}", model)[0] == model


def test_wrong_calls_name_a_remedy(tmp_path):
    with pytest.raises(ValueError, match="'w.safetensor'. Did you mean '.safetensors'"):
        fk.save_weights("w.safetensor", MODEL, STATE)
    with pytest.raises(ValueError, match="has no weights yet"):
        fk.save_weights(tmp_path / "w.npz", network())
    with pytest.raises(ValueError, match="the state with 'norm/moving_mean', received none"):
        fk.save_weights(tmp_path / "w.npz", MODEL)
    with pytest.raises(TypeError, match="run.model, run.state"):
        fk.save_weights(tmp_path / "w.npz", fk.Trainer("sgd", "mse").init(MODEL, KEY))
    with pytest.raises(TypeError, match="model, state = fk.load_weights"):
        fk.load_weights(tmp_path / "w.npz", fk.Trainer("sgd", "mse").init(MODEL, KEY))
    with pytest.raises(FileNotFoundError):
        fk.load_weights(tmp_path / "w.npz", MODEL)
    fk.save_weights(tmp_path / "w.npz", MODEL, STATE)
    with pytest.raises(ValueError, match="needs input shapes"):
        fk.load_weights(tmp_path / "w.npz", fk.Sequential([layers.Dense(2)]))


def test_loaded_weights_take_over_the_sharding(tmp_path):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    model = jax.tree.map(lambda w: jax.device_put(w, rows) if w.shape[0] == 4 else w, MODEL)
    fk.save_weights(tmp_path / "w.npz", model, STATE)
    loaded, _ = fk.load_weights(tmp_path / "w.npz", model, STATE)
    assert loaded.layers["body"].kernel.sharding == rows
    assert loaded == MODEL
