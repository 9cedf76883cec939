"""Whole models in `.keras` files, in both directions."""

import io
import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.host.containers.hdf5 import new_store, open_store
from fkeras.saving.quirks.keras2_objects import OBJECTS
from tests.support.keras_oracle import host_weights, keras, keras_rules, values

KEY = jax.random.key(0)


def _outputs(model, state, theirs, inputs, training=False):
    """Returns `(value, expected)` and the new states of fkeras and Keras, from one program."""
    with keras_rules():
        weights, others = values(theirs.trainable_variables), values(theirs.non_trainable_variables)

        def call_theirs():
            return theirs.stateless_call(weights, others, inputs, training=training)

        def call_both():
            with keras_rules():
                expected = call_theirs()
            out = model.apply(inputs, state=state, training=training, key=KEY)
            return (out.value, expected[0]), (state | out.updates, expected[1])

        return jax.jit(call_both)()


def _close(left, right):
    left, right = jax.tree.leaves(left), jax.tree.leaves(right)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(
            np.asarray(a, "float32"), np.asarray(b, "float32"), rtol=1e-5, atol=5e-6
        )


def _rich():
    """Returns a Keras model with most features of a graph."""
    L = keras.layers
    ids = keras.Input((5,), dtype="int32", name="ids")
    x = keras.Input((5, 4), name="x")
    embedded = L.Embedding(7, 4, mask_zero=True)(ids)
    shared = L.Dense(4, activation="tanh", name="shared")
    attended = L.MultiHeadAttention(2, 2, use_gate=True)(shared(x), shared(embedded))
    mixed = L.Add()([attended, L.TimeDistributed(L.Dense(4))(embedded)])
    mixed = L.BatchNormalization(name="first")(mixed)
    mixed = L.BatchNormalization(name="second")(mixed)
    inner = keras.Sequential([keras.Input((5, 4)), L.Dropout(0.0), L.Dense(4)], name="inner")
    mixed = inner(inner(mixed)) + keras.ops.mean(x, axis=1, keepdims=True)
    sequence, h, c = L.LSTM(3, return_sequences=True, return_state=True)(embedded)
    last = L.Bidirectional(L.GRU(2))(sequence)
    again = L.LSTM(3)(mixed, initial_state=[h, c])
    steps = L.SpectralNormalization(L.Dense(2))(mixed[:, 1:3])
    frozen = L.Dense(2, trainable=False)(last)
    return keras.Model({"ids": ids, "x": x}, {"a": [again, frozen], "b": steps}, name="rich")


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """Returns a Keras model, the path of its file, and inputs."""
    path = tmp_path_factory.mktemp("rich") / "rich.keras"
    with keras_rules(), host_weights():
        keras.utils.set_random_seed(0)
        theirs = _rich()
        rng = np.random.default_rng(0)
        for v in theirs.weights:
            drawn = rng.uniform(0.5, 1.5, v.shape) if "var" in v.path else rng.normal(size=v.shape)
            v.assign(drawn.astype(v.dtype))
        theirs.save(path)
    inputs = {"ids": np.array([[1, 2, 3, 0, 0], [4, 5, 6, 1, 2]], "int32")}
    inputs["x"] = rng.normal(size=(2, 5, 4)).astype("float32")
    return theirs, path, inputs


@pytest.mark.one_in(2)
@pytest.mark.parametrize("training", [False, True])
def test_a_rich_model_of_keras_gives_equal_outputs(rich, training):
    # seconds: builds and runs the model in both libraries
    theirs, path, inputs = rich
    model, state = fk.load_model(path)
    (value, expected), (new_state, new_theirs) = _outputs(model, state, theirs, inputs, training)
    _close(value, expected)
    names = {
        v.path: np.asarray(new_state)
        for v, new_state in zip(theirs.non_trainable_variables, new_theirs)
    }
    for name in ("first", "second"):
        for statistic in ("moving_mean", "moving_variance"):
            _close(new_state[name][statistic], names[f"{name}/{statistic}"])
    frozen = [name for name, layer in model.layers.items() if not layer.trainable]
    assert len(frozen) == 1
    assert type(model.layers[frozen[0]]) is layers.Dense


@pytest.mark.exhaustive
def test_keras_opens_a_rich_model_saved_by_fkeras(rich, tmp_path):
    theirs, path, inputs = rich
    model, state = fk.load_model(path)
    fk.save_model(tmp_path / "ours.keras", model, state)
    with keras_rules(), host_weights():
        again = keras.models.load_model(tmp_path / "ours.keras")
    assert len(theirs.variables) == len(again.variables)
    for weight, weight_again in zip(theirs.weights, again.weights, strict=True):
        np.testing.assert_array_equal(weight.value, weight_again.value)
        assert weight.trainable == weight_again.trainable
    assert fk.load_model(tmp_path / "ours.keras")[0] == model
    with keras_rules():
        weights, others = values(again.trainable_variables), values(again.non_trainable_variables)
        models = theirs, again
        calls = jax.jit(lambda: [m.stateless_call(weights, others, inputs)[0] for m in models])
        _close(*calls())


@pytest.mark.exhaustive
def test_dtype_policies_and_short_floats_are_preserved(tmp_path):
    L = keras.layers
    with keras_rules():
        theirs = keras.Sequential(
            [
                keras.Input((3,)),
                L.Dense(2, dtype="bfloat16"),
                L.Dense(2, dtype="mixed_bfloat16"),
                L.Dense(2, dtype="float16"),
            ]
        )
        theirs.save(tmp_path / "short.keras")
    model, _ = fk.load_model(tmp_path / "short.keras")
    kernels = [layer.kernel for layer in model]
    assert [str(k.dtype) for k in kernels] == ["bfloat16", "float32", "float16"]
    for kernel, layer in zip(kernels, theirs.layers, strict=True):
        np.testing.assert_array_equal(np.asarray(kernel), np.asarray(layer.kernel.value))
    fk.save_model(tmp_path / "again.keras", model)
    with keras_rules():
        again = keras.models.load_model(tmp_path / "again.keras")
    for weight, weight_again in zip(theirs.weights, again.weights, strict=True):
        assert weight.dtype == weight_again.dtype
        np.testing.assert_array_equal(np.asarray(weight.value), np.asarray(weight_again.value))


class _Forbidden(fk.initializers.Initializer):
    """An initializer that fails outside of tracing."""

    value: float

    def __call__(self, key, shape, dtype="float32"):
        assert isinstance(key, jax.core.Tracer), "a weight was initialised"
        return jnp.zeros(shape, dtype)


def test_opening_runs_no_initializer(tmp_path):
    start = fk.initializers.Constant(0.5)
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(2, kernel_initializer=start, name="d")(x)).build(KEY)
    fk.save_model(tmp_path / "m.keras", model)
    again, _ = fk.load_model(tmp_path / "m.keras", custom_objects={"Constant": _Forbidden})
    np.testing.assert_array_equal(again.layers["d"].kernel, np.full((3, 2), 0.5, "float32"))


@pytest.mark.exhaustive
def test_a_composed_model_opens_in_keras_as_its_graph(tmp_path):
    class Block(fk.Model):
        units: int

        def call(self, x):
            y = layers.Dense(self.units, activation="relu")(x)
            return layers.LayerNormalization()(x + layers.Dense(self.units)(y))

    x = fk.Input((4,))
    model = fk.Model(x, Block(4, name="two")(Block(4, name="one")(x))).build(KEY)
    fk.save_model(tmp_path / "blocks.keras", model)
    data = np.random.default_rng(0).normal(size=(2, 4)).astype("float32")
    with keras_rules():
        theirs = keras.models.load_model(tmp_path / "blocks.keras")
        (value, expected), _ = _outputs(model, {}, theirs, data)
    _close(value, expected)
    again, _ = fk.load_model(tmp_path / "blocks.keras")
    _close(jax.tree.leaves(again), jax.tree.leaves(model))


def test_a_sequential_without_input_opens_built_and_unbuilt(tmp_path):
    with keras_rules():
        theirs = keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2)])
        theirs.save(tmp_path / "unbuilt.keras")
        theirs.build((None, 4))
        theirs.save(tmp_path / "built.keras")
    model, state = fk.load_model(tmp_path / "unbuilt.keras")
    assert not model.built
    assert state == {}
    model, _ = fk.load_model(tmp_path / "built.keras")
    for expected, weight in zip(values(theirs.weights), model.get_weights(), strict=True):
        np.testing.assert_array_equal(expected, weight)


@pytest.mark.exhaustive
def test_the_carry_of_a_stateful_layer_is_reset(tmp_path):
    x = fk.Input((3, 2), batch_size=2)
    model = fk.Model(x, layers.LSTM(2, stateful=True, name="lstm")(x)).build(KEY)
    state = jax.tree.map(lambda leaf: leaf + 1, model.init_state())
    fk.save_model(tmp_path / "m.keras", model, state)
    again, carried = fk.load_model(tmp_path / "m.keras")
    assert again == model
    _close(carried, model.init_state())
    with keras_rules():
        keras.models.load_model(tmp_path / "m.keras")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_objects_of_keras_2_need_no_custom_objects(name, tmp_path):
    function_or_class, x = OBJECTS[name], fk.Input((3,))
    activation = function_or_class if name == "keras2_hard_sigmoid" else None
    model = fk.Model(x, layers.Dense(2, activation=activation)(x))
    optimizer = function_or_class() if isinstance(function_or_class, type) else "sgd"
    trainer = fk.Trainer(optimizer, function_or_class if "hinge" in name else "mse")
    run = trainer.init(model, KEY)
    fk.save_model(tmp_path / "m.keras", run.model, run.state, trainer=trainer, run=run)
    again, resumed = fk.load_training(tmp_path / "m.keras")
    assert again == trainer
    assert resumed.model == run.model


def _rewritten(path, change):
    """Rewrites the archive at `path` with its members changed by `change(members)`."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def _unpacked(path):
    """Returns the path of a folder with the entries of the archive at `path`."""
    folder = path.with_suffix("")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder


def _without_vocabulary(members, text):
    config = json.loads(members["config.json"])
    for layer in config["config"]["layers"]:
        if layer["class_name"] == "IntegerLookup":
            layer["config"].update(vocabulary=None)
    members["config.json"] = json.dumps(config).encode()
    members["assets/layers/integer_lookup_1/vocabulary.txt"] = text


def test_a_vocabulary_that_keras_learned_is_read_from_the_assets(tmp_path):
    ids = fk.Input((3,), dtype="int32")
    first = layers.IntegerLookup(vocabulary=[1, 2], name="first")(ids)
    second = layers.IntegerLookup(vocabulary=[8, 9], name="second")(first)
    path = tmp_path / "m.keras"
    fk.save_model(path, fk.Model(ids, second).build(KEY))

    def change(members):
        _without_vocabulary(members, b"-1\n9\n7\n5")
        members["assets/layers/integer_lookup/vocabulary.txt"] = b"-1\n4\n3"

    _rewritten(path, change)
    assert fk.load_model(_unpacked(path)) == fk.load_model(path)
    model, _ = fk.load_model(path)
    np.testing.assert_array_equal(model.layers["second"](np.array([5, 7, 1])), [3, 2, 0])
    np.testing.assert_array_equal(model.layers["first"](np.array([3, 4, 1])), [2, 1, 0])
    _rewritten(path, lambda members: _without_vocabulary(members, b"-1\nx"))
    with pytest.raises(
        fk.FileError, match=r"integer_lookup_1/vocabulary.txt.*'second'.*expected integers"
    ):
        fk.load_model(path)


@pytest.fixture
def saved(tmp_path):
    """Returns the path of a small saved model."""
    x = fk.Input((3,), name="x")
    y = layers.BatchNormalization(name="norm")(layers.Dense(2, name="dense")(x))
    model = fk.Model(x, y, name="small").build(KEY)
    fk.save_model(tmp_path / "m.keras", model, model.init_state())
    return tmp_path / "m.keras"


def _weights(change):
    """Returns a change of an archive's members that applies `change` to the arrays by path."""

    def rewrite(members):
        arrays = {}
        with open_store(members["model.weights.h5"]) as store:
            groups = ["layers/dense/vars", "layers/batch_normalization/vars"]
            for group in groups:
                for name in store.datasets(group):
                    arrays[f"{group}/{name}"] = store.read(f"{group}/{name}")
        change(arrays)
        target = io.BytesIO()
        with new_store(target) as writer:
            for name, array in arrays.items():
                writer.write(name, array)
        members["model.weights.h5"] = target.getvalue()

    return rewrite


def _config(change):
    def rewrite(members):
        config = json.loads(members["config.json"])
        change(config)
        members["config.json"] = json.dumps(config).encode()

    return rewrite


def _metadata(text):
    return lambda members: members.update({"metadata.json": text})


REJECTED = [
    (
        _weights(lambda arrays: arrays.pop("layers/dense/vars/1")),
        r"model.weights.h5:/layers/dense/vars/1.*layer 'dense'.*\(2,\) for 'dense/bias'",
    ),
    (
        _weights(lambda arrays: arrays.update({"layers/dense/vars/1": np.zeros(5)})),
        r"model.weights.h5:/layers/dense/vars/1.*\(2,\), received \(5,\)",
    ),
    (
        _weights(lambda arrays: arrays.update({"layers/dense_1/vars/0": np.zeros(2)})),
        r"model.weights.h5.*1 arrays that belong to no layer.*layers/dense_1/vars/0",
    ),
    (
        _weights(lambda arrays: arrays.pop("layers/batch_normalization/vars/3")),
        r"batch_normalization/vars/3.*layer 'norm'.*'norm/moving_variance'",
    ),
    (_metadata(b"{}"), r"metadata.json: the key 'keras_version' is missing"),
    (
        _metadata(b'{"keras_version": "1.2"}'),
        r"metadata.json: expected 'keras_version' of Keras 2 or 3.*1\.2",
    ),
    (_metadata(b"{"), "metadata.json"),
    (lambda members: members.pop("metadata.json"), "metadata.json: is missing; found"),
    (lambda members: members.pop("model.weights.h5"), "model.weights.h5: is missing"),
    (
        lambda members: members.update({"config.json": b"[1]"}),
        "config.json: expected the configuration as a dictionary, received",
    ),
    (
        _config(lambda config: config.update(class_name="Dense", module="keras.layers")),
        "config.json",
    ),
    (
        _config(lambda config: config["config"]["layers"][1].update(class_name="Dens")),
        r"config.json.*'Dens'.*Dense",
    ),
    (
        _config(lambda config: config["config"]["layers"][1]["config"].update(units="two")),
        r"config.json.*layer 'dense'.*units.*'two'",
    ),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("change", "message"), REJECTED, ids=range(len(REJECTED)))
def test_a_malformed_model_file_is_rejected_with_member_and_layer(saved, change, message):
    _rewritten(saved, change)
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.load_model(saved)
    assert caught.value.file == str(saved)


@pytest.mark.exhaustive
def test_a_folder_that_keras_wrote_is_a_model(tmp_path):
    with keras_rules():
        theirs = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        theirs.compile("adam", "mse")
        theirs.fit(x := np.ones((4, 3), "float32"), np.ones((4, 2), "float32"), verbose=0)
        theirs.save(tmp_path / "model", zipped=False)
        theirs.save(tmp_path / "model.keras")
        expected = np.asarray(theirs(x))
    model, state = fk.load_model(tmp_path / "model")
    assert (model, state) == fk.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(model(x), expected, rtol=1e-6)
    trainer, run = fk.load_training(str(tmp_path / "model"))
    assert trainer == fk.load_training(tmp_path / "model.keras")[0] and int(run.step) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"config.json: is missing; found .*metadata.json"),
        (lambda f: (f / "model.weights.h5").unlink(), r"model.weights.h5: is missing; found"),
        (lambda f: (f / "metadata.json").unlink(), r"metadata.json: is missing; found"),
        (lambda f: (f / "config.json").write_text("{"), r"config.json: .*JSON"),
        (lambda f: (f / "model.weights.h5").write_bytes(b""), r"model.weights.h5: .*an empty file"),
        (lambda f: (f / "link").symlink_to(f.parent), r"link: expected files, .* link to a folder"),
        (lambda f: [(f / n).unlink() for n in ("metadata.json", "model.weights.h5")], "a folder"),
    ],
)
def test_a_folder_without_its_files_is_rejected_with_the_file(saved, change, message):
    folder = _unpacked(saved)
    change(folder)
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.load_model(folder)
    assert caught.value.file == str(folder)


@pytest.mark.parametrize("limits", [{"members": 2}, {"member_bytes": 1000}, {"config_bytes": 10}])
def test_limits_hold_for_folders(saved, limits):
    with pytest.raises(fk.FileError, match=rf"limits=fk.Limits\({next(iter(limits))}="):
        fk.load_model(_unpacked(saved), limits=fk.Limits(**limits))


def test_files_without_layer_names_follow_the_numbering_of_keras(saved):
    model, state = fk.load_model(saved)
    _rewritten(saved, _weights(lambda arrays: None))  # writes no names
    again, same = fk.load_model(saved)
    assert again == model
    _close(same, state)


def test_saving_names_missing_arguments(tmp_path):
    path = tmp_path / "m.keras"
    x = fk.Input((3,))
    model = fk.Model(x, layers.BatchNormalization(name="norm")(x))
    with pytest.raises(ValueError, match="expected a built model"):
        fk.save_model(path, model)
    with pytest.raises(ValueError, match=r"state of norm, received the state of no layer"):
        fk.save_model(path, model.build(KEY))
    with pytest.raises(TypeError, match="expected fk.Model or fk.Sequential, received Dense"):
        fk.save_model(path, layers.Dense(2).build(KEY, (None, 3)))
    lost = fk.Model(x, layers.Dense(2, activation=lambda x: x)(x)).build(KEY)
    with pytest.raises(TypeError, match="<lambda> has no name"):
        fk.save_model(path, lost)
    with pytest.raises(ValueError, match=r"ends in .keras, received '.*m.h5'"):
        fk.save_model(tmp_path / "m.h5", lost)
    for load in (fk.load_model, fk.load_training):
        with pytest.raises(TypeError, match="expected a path, .* received 3"):
            load(3)
    assert not list(tmp_path.iterdir())


def test_a_failed_save_preserves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()
    model, state = fk.load_model(saved)

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fkeras.host.containers.hdf5.Writer.write", fail)
    with pytest.raises(OSError, match="No space left"):
        fk.save_model(saved, model, state)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_a_list_of_one_input_accepts_a_single_array():
    """Keras 3.0 to 3.5 wrote models with one input as models with a list of one input."""
    x = fk.Input((3,))
    model = fk.Model([x], layers.Dense(2)(x)).build(KEY)
    data = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(model(data), model([data]))
    with pytest.raises(fk.FKerasError, match="expected 1 inputs"):
        model([data, data])


@pytest.mark.exhaustive
def test_lora_factors_are_merged_into_the_kernels(tmp_path):
    L = keras.layers
    ids = keras.Input((5,), dtype="int32")
    tuned = [L.Embedding(7, 4), L.Conv1D(3, 2), L.EinsumDense("abc,cd->abd", (None, 2)), L.Dense(2)]
    with keras_rules():
        x = ids
        for layer in tuned:
            x = layer(x)
            layer.enable_lora(2)
            embeds = isinstance(layer, L.Embedding)
            factor = layer.lora_embeddings_b if embeds else layer.lora_kernel_b  # zeros before
            size = int(np.prod(factor.shape))
            factor.assign(np.linspace(-1, 1, size, dtype="float32").reshape(factor.shape))
        theirs = keras.Model(ids, x)
        theirs.save(tmp_path / "lora.keras")
    model, state = fk.load_model(tmp_path / "lora.keras")
    results, _ = _outputs(model, state, theirs, np.arange(10).reshape(2, 5) % 7)
    _close(*results)
