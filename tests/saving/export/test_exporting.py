"""Exported models and training steps, which need only JAX to run."""

import hashlib
import json
import subprocess
import sys

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.saving.tracing.trace import trace, uses_key
from fkeras.training.callbacks import load_weights
from tests.cases import all_cases, wrappers
from tests.support.models_of_cases import model_of

KEY = jax.random.key(0)
CPU = ("cpu",)


def read(path):
    return jax.export.deserialize(path.read_bytes())


def about(path):
    return json.loads(path.with_name(f"{path.name}.json").read_text())


def built(model):
    model = model.build(KEY)
    return model, model.init_state()


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


CHILD = """
import sys
import jax
import numpy as np
from jax import export

folder = sys.argv[1]
with open(f"{folder}/model.jax", "rb") as file:
    program = export.deserialize(file.read())
data = np.load(f"{folder}/data.npz")
for size in (1, 5):
    out = program.call({"picture": data["x"][:size], "words": data["ids"][:size]})
    np.testing.assert_allclose(out["score"], data["score"][:size], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(out["other"], data["other"][:size], rtol=1e-6, atol=1e-6)

with open(f"{folder}/step.jax", "rb") as file:
    step = export.deserialize(file.read())
run = dict(np.load(f"{folder}/step.jax.npz"))
for number in range(3):
    rows = slice(4 * number, 4 * number + 4 - number)
    run, logs = step.call(run, data["sx"][rows], data["sy"][rows])
np.savez(f"{folder}/after.npz", **run)
assert "fkeras" not in sys.modules and "optax" not in sys.modules
"""


@pytest.mark.exhaustive
def test_a_process_that_imports_jax_alone_computes_the_same(tmp_path):
    picture = fk.Input((8, 8, 2), name="picture")
    words = fk.Input((None,), dtype="int32", name="words")
    a = layers.BatchNormalization()(layers.Conv2D(3, 3, activation="relu")(picture))
    b = layers.LSTM(4)(layers.Embedding(9, 4, mask_zero=True)(words))
    both = layers.Concatenate()([layers.GlobalAveragePooling2D()(a), b])
    outputs = {"score": layers.Dense(2, name="score")(both), "other": b}
    model, state = built(fk.Model({"picture": picture, "words": words}, outputs))
    data = {"x": normal(0, 5, 8, 8, 2), "ids": np.random.default_rng(0).integers(0, 9, (5, 6))}
    data["ids"] = data["ids"].astype("int32")
    data |= model({"picture": data["x"], "words": data["ids"]}, state=state)
    fk.export(model, state, tmp_path / "model.jax")

    head = [layers.Dense(4), layers.BatchNormalization(), layers.Dropout(0.5), layers.Dense(2)]
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer("adam", loss, ["accuracy"])
    run = trainer.init(fk.Sequential([fk.Input((3,)), *head]), KEY)
    data |= {"sx": normal(1, 12, 3), "sy": np.arange(12, dtype="int32") % 2}
    fk.export_step(trainer, run, (data["sx"], data["sy"]), tmp_path / "step.jax")
    np.savez(tmp_path / "data.npz", **data)

    process = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True
    )
    assert not process.returncode, process.stderr

    after = run
    for number in range(3):
        rows = slice(4 * number, 4 * number + 4 - number)
        after, _ = trainer.step(after, (data["sx"][rows], data["sy"][rows]))
    read_back = load_weights(tmp_path / "after.npz", run)
    assert int(read_back.step) == 3
    for name in ("model", "state", "opt_state"):
        for ours, theirs in zip(
            jax.tree.leaves(getattr(after, name)),
            jax.tree.leaves(getattr(read_back, name)),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6, err_msg=name)


def test_the_description_names_inputs_and_outputs(tmp_path):
    left, right = fk.Input((3,), name="left"), fk.Input((None, 3), name="right")
    summed = layers.Dense(2, name="sum")(left + layers.GlobalMaxPooling1D()(right))
    model, state = built(fk.Model([left, right], [summed], name="pair"))
    path = tmp_path / "deep" / "m.jax"
    fk.export(model, state, path)
    description, exported = about(path), read(path)
    assert description["model"] == "pair" and description["call"] == "program.call(inputs)"
    assert description["inputs"] == [
        {"name": "left", "shape": ["b", 3], "dtype": "float32"},
        {"name": "right", "shape": ["b", "d1", 3], "dtype": "float32"},
    ]
    assert description["input_structure"] == [0, 1] and description["output_structure"] == [0]
    assert description["outputs"] == [{"name": "sum", "shape": ["b", 2], "dtype": "float32"}]
    assert description["platforms"] == ["cpu", "cuda", "tpu"] == list(exported.platforms)
    assert description["calling_convention_version"] == exported.calling_convention_version
    assert description["jax"] == jax.__version__
    assert description["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_jax_setting_selects_an_older_calling_convention(tmp_path):
    model, state = built(fk.Sequential([fk.Input((3,)), layers.Dense(2)]))
    oldest = jax.export.minimum_supported_calling_convention_version
    before = jax.config.jax_export_calling_convention_version
    jax.config.update("jax_export_calling_convention_version", oldest)
    try:
        fk.export(model, state, tmp_path / "m.jax")
    finally:
        jax.config.update("jax_export_calling_convention_version", before)
    assert about(tmp_path / "m.jax")["calling_convention_version"] == oldest < before
    x = normal(0, 2, 3)
    np.testing.assert_allclose(read(tmp_path / "m.jax").call(x), model(x), rtol=1e-6)


@pytest.mark.exhaustive
def test_sizes_are_open_fixed_or_constrained(tmp_path):
    sequence = fk.Sequential([fk.Input((None, 3)), layers.GRU(2, return_sequences=True)])
    model, state = built(sequence)
    path = tmp_path / "m.jax"
    fk.export(model, state, path, platforms="cpu", shapes=("n", "2*t", 3), constraints=["t <= 8"])
    program = read(path)
    assert about(path)["outputs"][0]["shape"] == ["n", "2*t", 2]
    for size, steps in ((1, 2), (3, 6)):
        x = normal(0, size, steps, 3)
        np.testing.assert_allclose(program.call(x), model(x), rtol=1e-5, atol=1e-6)
    assert about(path)["constraints"] == ["t <= 8"]
    fk.export(model, state, path, platforms="cpu", shapes=(2, 4, 3))
    assert read(path).in_avals[0].shape == (2, 4, 3)


@pytest.mark.exhaustive
def test_a_mask_is_a_keyword_argument_of_the_program(tmp_path):
    model, state = built(fk.Sequential([fk.Input((None, 3)), layers.LSTM(2)]))
    path, x, mask = tmp_path / "m.jax", normal(0, 2, 5, 3), np.arange(5)[None] < [[2], [5]]
    fk.export(model, state, path, platforms="cpu", mask=(None, None))
    assert about(path)["call"] == "program.call(inputs, mask=mask)"
    expected = model(x, mask=mask)
    np.testing.assert_allclose(read(path).call(x, mask=mask), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("inner", [layers.Dense(2), layers.Dropout(0.5)], ids=["dense", "dropout"])
def test_inference_with_keys_that_nothing_draws_from_takes_no_key(inner, tmp_path):
    x = fk.Input((3, 4))
    model, state = built(fk.Model(x, layers.TimeDistributed(inner)(x)))
    fk.export(model, state, tmp_path / "m.jax", platforms=CPU)
    rows = normal(0, 2, 3, 4)
    np.testing.assert_allclose(read(tmp_path / "m.jax").call(rows), model(rows), rtol=1e-6)
    assert about(tmp_path / "m.jax")["call"] == "program.call(inputs)"


class Idle(fk.Layer):
    """Draws, and returns its input."""

    def forward(self, context, x):
        jax.random.normal(context.key, (3,))
        return fk.Output(x)


def test_a_key_without_effect_on_the_results_is_no_argument(tmp_path):
    model, state = built(fk.Sequential([fk.Input((3,)), Idle()]))
    fk.export(model, state, tmp_path / "m.jax", platforms=CPU)
    x = normal(0, 2, 3)
    np.testing.assert_array_equal(read(tmp_path / "m.jax").call(x), x)


# the first row of each class, of wrappers in each run: no layer draws in inference
ROWS = {type(case.layer): case for case in reversed(all_cases()) if not case.training}
WRAPPERS = {type(case.layer) for case in wrappers.CASES}


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, id=kind.__name__, marks=() if kind in WRAPPERS else pytest.mark.exhaustive
        )
        for kind, case in ROWS.items()
    ],
)
def test_no_layer_uses_a_key_in_inference(case):
    model, state, values, _ = model_of(case)
    inputs = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]

    def compute(*inputs, key):
        return model.apply(
            inputs[0] if len(inputs) == 1 else list(inputs), state=state, key=key
        ).value

    traced = trace("the layer", compute, tuple(inputs), {"key": jax.eval_shape(lambda: KEY)})
    assert not uses_key(traced)


@pytest.mark.exhaustive
def test_training_mode_takes_key_data_and_returns_the_state(tmp_path):
    head = [layers.BatchNormalization(), layers.Dropout(0.5)]
    model, state = built(fk.Sequential([fk.Input((3,)), *head]))
    path, x, key = tmp_path / "m.jax", normal(0, 6, 3), jax.random.key(5)
    fk.export(model, state, path, platforms="cpu", training=True, updates=True)
    assert about(path)["call"] == "program.call(inputs, state=state, key=key)"
    out = model.apply(x, state=state, training=True, key=key)
    value, after = read(path).call(x, state=state, key=jax.random.key_data(key))
    np.testing.assert_allclose(value, out.value, rtol=1e-5, atol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), after, state | out.updates
    )
    # without random layers the program takes no key, and without updates no state
    model, state = built(fk.Sequential([fk.Input((3,)), layers.BatchNormalization()]))
    fk.export(model, state, path, platforms="cpu", training=True)
    value = model.apply(x, state=state, training=True).value
    np.testing.assert_allclose(read(path).call(x), value, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_a_stream_is_computed_piece_by_piece(tmp_path):
    gru = layers.GRU(2, stateful=True, return_sequences=True)
    model, state = built(fk.Sequential([fk.Input((None, 3), batch_size=1), gru, layers.Dense(1)]))
    path, x = tmp_path / "m.jax", normal(0, 1, 7, 3)
    fk.export(model, state, path, platforms="cpu", updates=True)
    program, current, pieces = read(path), state, []
    for piece in (x[:, :2], x[:, 2:3], x[:, 3:]):
        value, current = program.call(piece, state=current)
        pieces.append(value)
    out = model.apply(x, state=state)
    np.testing.assert_allclose(np.concatenate(pieces, 1), out.value, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), current, out.updates)


def test_a_layer_alone_and_bfloat16(tmp_path):
    layer = layers.Dense(4, dtype="mixed_bfloat16").build(KEY, (None, 3))
    fk.export(layer, None, tmp_path / "m.jax", platforms="cpu", shapes=(None, 3))
    x = normal(0, 2, 3)
    out = read(tmp_path / "m.jax").call(x)
    assert out.dtype == jnp.bfloat16
    np.testing.assert_array_equal(out.astype("float32"), layer(x).astype("float32"))


@pytest.mark.exhaustive
def test_a_step_stores_bfloat16_weights_as_integers(tmp_path):
    model = fk.Sequential([fk.Input((3,)), layers.Dense(1, name="d", dtype="bfloat16")])
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    x, y = normal(0, 4, 3), normal(1, 4, 1)
    spec = jax.ShapeDtypeStruct((4, 3), "float32"), jax.ShapeDtypeStruct((4, 1), "float32")
    fk.export_step(trainer, run, spec, tmp_path / "s.jax", platforms="cpu")
    description = about(tmp_path / "s.jax")
    assert description["views"]["weights/d/kernel"] == "bfloat16"
    assert description["batch"][0]["shape"] == [4, 3]
    arrays, logs = read(tmp_path / "s.jax").call(dict(np.load(tmp_path / "s.jax.npz")), x, y)
    assert arrays["weights/d/kernel"].dtype == "uint16"
    after, expected = trainer.step(run, (x, y))
    np.testing.assert_allclose(logs["loss"], expected["loss"], rtol=1e-5)
    np.savez(tmp_path / "after.npz", **arrays)
    kernel = load_weights(tmp_path / "after.npz", run).model.layers["d"].kernel
    np.testing.assert_array_equal(kernel, after.model.layers["d"].kernel)


def test_errors_name_the_layer_and_a_remedy(tmp_path):
    path = tmp_path / "m.jax"

    def sort_on_the_host(x):
        return jax.pure_callback(np.sort, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    inner = fk.Sequential([layers.Lambda(sort_on_the_host, name="sort")], name="inner")
    model, state = built(fk.Model(x := fk.Input((3,)), inner(layers.Dense(2)(x))))
    with pytest.raises(fk.FKerasError, match="inner/sort.*calls back to Python") as caught:
        fk.export(model, state, path)
    assert caught.value.layer.endswith("inner/sort")

    def branches(x):
        return x if x.shape[1] > 3 else -x

    model, state = built(fk.Sequential([fk.Input((4,)), layers.Lambda(branches)]))
    with pytest.raises(fk.FKerasError, match="constraints=.*shapes="):
        fk.export(model, state, path, shapes=(None, None))
    fk.export(model, state, path, shapes=(None, "d1"), constraints=["d1 >= 4"])

    dense, _ = built(fk.Sequential([fk.Input((3,)), layers.Dense(2)]))
    with pytest.raises(ValueError, match="'gpu'. Did you mean 'cuda'"):
        fk.export(dense, None, path, platforms=("gpu",))
    with pytest.raises(ValueError, match="no weights yet"):
        fk.export(fk.engine.unbuilt(dense), None, path)
    with pytest.raises(ValueError, match="shapes=\\(None, 8\\)"):
        fk.export(dense.layers["dense"], None, path)
    with pytest.raises(ValueError, match="structure of the inputs"):
        fk.export(dense, None, path, shapes=[(None, 3), (None, 3)])
    with pytest.raises(TypeError, match="fk.export_step"):
        fk.export(fk.Trainer("sgd", "mse"), None, path)
    with pytest.raises(TypeError, match="expected a run"):
        fk.export_step(fk.Trainer("sgd", "mse"), dense, (1, 2), path)
    counted, _ = built(fk.Sequential([fk.Input((3,)), layers.BatchNormalization()]))
    with pytest.raises(ValueError, match="state="):
        fk.export(counted, None, path)


def test_a_mesh_is_rejected(tmp_path):
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    trainer = fk.Trainer("sgd", "mse", mesh=mesh)
    run = trainer.init(fk.Sequential([fk.Input((3,)), layers.Dense(1)]), KEY)
    with pytest.raises(ValueError, match="mesh=None"):
        fk.export_step(trainer, run, (normal(0, 2, 3), normal(0, 2, 1)), tmp_path / "s.jax")


def test_shapes_without_an_optional_input_name_a_program_without_this_input(tmp_path):
    x = fk.Input((3,), name="x")
    masked = fk.Input((), dtype="bool", name="masked", optional=True)
    model = fk.Model([x, masked], fk.layers.MaskedPatches()(x, masked))
    model = model.build(jax.random.key(0))
    with pytest.raises(fk.FKerasError, match=r"cut\(model, inputs=\['x'\]\)"):
        fk.export(model, {}, tmp_path / "m.jax", shapes=(None, 3))
