"""Probes and edits of values inside models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms

KEY = jax.random.key(0)
X = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)


def chain(blocks=3):
    entries = [layers.Dense(4, "tanh", name=f"block{i}") for i in range(blocks)]
    return fk.Sequential([fk.Input((4,)), *entries, layers.Dense(2, name="head")]).build(KEY)


def shared():
    x = fk.Input((4,), name="x")
    dense = layers.Dense(4, "tanh", name="dense")
    return fk.Model(x, layers.Dense(2, name="head")(dense(dense(x)))).build(KEY)


def nested():
    encoder = fk.Sequential([fk.Input((4,)), layers.Dense(4, "tanh", name="d")], name="encoder")
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    return fk.Model([a, b], layers.Add(name="add")([encoder(a), encoder(b)])).build(KEY)


@pytest.mark.exhaustive
def test_a_probe_returns_values_by_call():
    model = chain()
    outputs, values = transforms.probe(model, "block*")(X)
    np.testing.assert_array_equal(outputs, model(X))
    assert list(values) == ["block0_ib-0", "block1_ib-0", "block2_ib-0"]
    x = X
    for i, value in enumerate(values.values()):
        x = model.layers[f"block{i}"](x)
        np.testing.assert_allclose(value, x, rtol=1e-6)


def test_the_name_of_a_layer_finds_its_only_value():
    x = fk.Input((4,), name="x")
    dense, once = layers.Dense(4, name="dense"), layers.Identity(name="once")
    model = fk.Model(x, once(dense(dense(x)))).build(KEY)
    probed = transforms.probe(model, ["dense", "once"])
    for values in (probed(X)[1], probed.outputs[1], jax.jit(probed)(X)[1]):
        assert isinstance(values, dict) and list(values) == [
            "dense_ib-0",
            "dense_ib-1",
            "once_ib-0",
        ]
        assert values["once"] is values.get("once") is values["once_ib-0"]
        with pytest.raises(
            KeyError, match="2 calls. Write one of the keys: 'dense_ib-0', 'dense_ib-1'"
        ):
            _ = values["dense"]
    outer = transforms.probe(fk.Model(x, model(x), name="outer").build(KEY), "functional/once")
    assert (
        list(outer.outputs[1]) == ["functional_ib-0/once_ib-0"]
        and "functional/once" in outer.outputs[1]
    )


@pytest.mark.exhaustive
def test_probed_models_in_files(tmp_path):
    model = transforms.probe(chain(), ["block2", "block1"])
    fk.save_model(tmp_path / "m.keras", model)
    loaded, _ = fk.load_model(tmp_path / "m.keras")
    assert not transforms.diff(model, loaded)
    np.testing.assert_array_equal(loaded(X)[1]["block1"], model(X)[1]["block1_ib-0"])
    # the program needs no class of fkeras
    fk.export(model, None, tmp_path / "m.jax", check=X)
    program = jax.export.deserialize((tmp_path / "m.jax").read_bytes())
    assert type(program.call(X)[1]) is dict
    wrong = transforms.edit(model, {"block2": lambda x: x + 1})
    assert not transforms.agree(wrong, tmp_path / "m.jax", X)
    agreement = transforms.agree(wrong, lambda x: jax.tree.leaves(model(x)), X)
    assert [c.coordinates.layer for c in agreement.calls if c.agrees] == ["block1"]


@pytest.mark.exhaustive
def test_a_trainer_takes_the_values_as_outputs():
    model = transforms.probe(chain(), "block0")
    trainer = fk.Trainer("sgd", {"head": "mse", "block0": "mse"})
    run, history = trainer.fit(trainer.init(model, KEY), X, [X[:, :2], X], verbose=0)
    assert history.history.keys() == {"loss", "head_loss", "block0_loss"}
    outputs, values = trainer.predict(run, X, batch_size=3)
    np.testing.assert_allclose(values["block0"], run.model(X)[1]["block0"], rtol=1e-6)


@pytest.mark.exhaustive
def test_calls_of_shared_layers_and_outputs_of_calls():
    model = shared()
    _, both = transforms.probe(model, "dense")(X)
    _, second = transforms.probe(model, ("dense", 1))(X)
    assert list(both) == ["dense_ib-0", "dense_ib-1"] and list(second) == ["dense_ib-1"]
    np.testing.assert_array_equal(second["dense_ib-1"], both["dense_ib-1"])
    x = fk.Input((3, 4))
    lstm = fk.Model(x, layers.LSTM(2, return_state=True, name="lstm")(x)).build(KEY)
    sequence = np.ones((1, 3, 4), "float32")
    _, states = transforms.probe(lstm, [("lstm", 0, 2), "lstm"])(sequence)
    assert list(states) == ["lstm_ib-0", "lstm_ib-0:2"] and len(states["lstm_ib-0"]) == 3
    np.testing.assert_array_equal(states["lstm_ib-0:2"], states["lstm_ib-0"][2])


def test_each_call_of_a_nested_network():
    model = nested()
    _, values = transforms.probe(model, "encoder/d")([X, 2 * X])
    assert list(values) == ["encoder_ib-0/d_ib-0", "encoder_ib-1/d_ib-0"]
    d = model.layers["encoder"].layers["d"]
    np.testing.assert_allclose(values["encoder_ib-1/d_ib-0"], d(2 * X), rtol=1e-6)


@pytest.mark.exhaustive
def test_a_network_and_a_layer_inside():
    model = nested()
    outputs, values = transforms.probe(model, ["encoder", "encoder/d"])([X, 2 * X])
    assert set(values) == {f"encoder_ib-{i}{end}" for i in range(2) for end in ("/d_ib-0", "")}
    np.testing.assert_array_equal(values["encoder_ib-1"], values["encoder_ib-1/d_ib-0"])
    np.testing.assert_array_equal(outputs, model([X, 2 * X]))
    edited = transforms.edit(model, {"encoder": lambda x: x + 1, "encoder/d": jnp.zeros_like})
    np.testing.assert_array_equal(edited([X, X]), np.full((4, 4), 2.0))
    mean = {"reduce": lambda x: x.mean(), "report": True}
    once = transforms.cut(model, outputs=("encoder", 0))
    reported = transforms.probe(once, ["encoder", "encoder/d"], **mean).apply(X).metrics
    assert set(reported) == {"encoder_ib-0", "encoder/d_ib-0"}


@pytest.mark.exhaustive
def test_the_probes_of_scanned_blocks():
    model = chain(9)
    rolled = transforms.probe(transforms.roll(model), "block*")
    assert rolled.graph.depth == "scan"
    assert str(jax.make_jaxpr(lambda m: m(X))(rolled)).count("tanh") < 9
    _, values = rolled(X)
    _, expected = transforms.probe(model, "block*")(X)
    for key, value in expected.items():
        np.testing.assert_allclose(values[key], value, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
def test_a_probe_that_is_dropped_costs_nothing():
    model = chain()
    probed = transforms.probe(model, "block*")

    def compiled(model, first):
        function = jax.jit(lambda model, x: model(x)[0] if first else model(x))
        return function.lower(model, X).compile().cost_analysis()

    plain, dropped = compiled(model, False), compiled(probed, True)
    for measure in ("flops", "bytes accessed"):
        assert plain.get(measure) == dropped.get(measure)


@pytest.mark.exhaustive
def test_reductions():
    model = chain()
    _, norms = transforms.probe(model, ["block0", "head"], reduce=jnp.linalg.norm)(X)
    np.testing.assert_allclose(
        norms["block0_ib-0"], np.linalg.norm(model.layers["block0"](X)), rtol=1e-5
    )
    _, counts = transforms.probe(model, "head", reduce=lambda x: jnp.histogram(x, 5)[0])(X)
    assert counts["head_ib-0"].sum() == 8


@pytest.mark.exhaustive
def test_reported_probes_are_metrics_of_fit():
    mean = {"reduce": lambda x: jnp.abs(x).mean(), "report": True}
    trainer = fk.Trainer(optimizer=fk.optimizers.SGD(0.0), loss="mse")
    watched = transforms.probe(shared(), "dense", **mean)
    assert watched.outputs.shape == (None, 2)
    run = trainer.init(watched, KEY)
    run, history = trainer.fit(run, X, X[:, :2], verbose=0)
    _, values = transforms.probe(shared(), "dense")(X)
    for name, value in values.items():
        np.testing.assert_allclose(history.history[name], [np.abs(value).mean()], rtol=1e-5)
    with pytest.raises(ValueError, match="'encoder' is called 2 times"):
        _ = transforms.probe(nested(), "encoder/d", **mean)
    opened = transforms.probe(fk.inline(nested(), "encoder"), "encoder_d", **mean)
    assert set(opened.apply([X, X]).metrics) == {"encoder_d_ib-0", "encoder_d_ib-1"}


@pytest.mark.exhaustive
def test_masks_pass_through_probes_and_edits():
    x = fk.Input((5,), dtype="int32")
    e = layers.Embedding(9, 4, mask_zero=True, name="e")(x)
    model = fk.Model(x, layers.LSTM(3, name="lstm")(e)).build(KEY)
    ids = np.array([[1, 2, 3, 0, 0]])
    np.testing.assert_array_equal(transforms.probe(model, "e")(ids)[0], model(ids))
    np.testing.assert_array_equal(transforms.edit(model, {"e": lambda x: x})(ids), model(ids))


def test_a_value_patched_with_itself_changes_no_bit():
    model = chain()
    outputs, values = transforms.probe(model, "block1")(X)
    patched = transforms.edit(model, {"block1": values["block1_ib-0"]})
    np.testing.assert_array_equal(patched(X), outputs)


def test_a_row_is_edited_and_the_others_are_bit_equal():
    model = chain()
    edited = transforms.edit(model, {"block1": lambda x: x.at[3].set(0)})
    old, new = np.asarray(model(X)), np.asarray(edited(X))
    np.testing.assert_array_equal(old[:3], new[:3])
    assert not np.allclose(old[3], new[3])


@pytest.mark.exhaustive
def test_edits_of_one_call_have_an_order():
    model = chain()
    edits = {"block1": lambda x: x + 1, "block[1]": lambda x: x * 2}
    edited = transforms.edit(model, edits)
    _, values = transforms.probe(edited, ["block1", "block1_edit", "block1_edit_1"])(X)
    before = values["block1_ib-0"]
    np.testing.assert_allclose(values["block1_edit_ib-0"], before + 1, rtol=1e-6)
    np.testing.assert_allclose(values["block1_edit_1_ib-0"], (before + 1) * 2, rtol=1e-6)


@pytest.mark.exhaustive
def test_one_call_of_a_shared_layer_is_edited():
    model = shared()
    dense, head = model.layers["dense"], model.layers["head"]
    edited = transforms.edit(model, {("dense", 0): jnp.zeros_like})
    np.testing.assert_allclose(edited(X), head(dense(0 * X)), rtol=1e-6)
    inside = transforms.edit(nested(), {"encoder/d": lambda x: 0 * x})
    assert not np.asarray(inside([X, X])).any()


@pytest.mark.exhaustive
def test_an_edit_in_a_scanned_block():
    model = chain(9)
    change = {"block4": lambda x: x * 0.5}
    edited = transforms.edit(transforms.roll(model), change)
    assert edited.graph.depth == "scan"
    np.testing.assert_allclose(edited(X), transforms.edit(model, change)(X), rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_steering_vectors_under_vmap_and_grad_compile_once():
    model, vectors = chain(), jax.random.normal(KEY, (100, 4))
    traces = []

    @jax.jit
    def steered(vectors):
        traces.append(1)

        def one(v):
            return transforms.edit(model, {"block1": lambda x: x + v[None]})(X)

        return jax.vmap(one)(vectors)

    batch = steered(vectors)
    steered(vectors + 1)
    assert len(traces) == 1
    single = transforms.edit(model, {"block1": lambda x: x + vectors[7][None]})(X)
    np.testing.assert_allclose(batch[7], single, rtol=1e-5, atol=1e-6)
    gradient = jax.grad(lambda v: transforms.edit(model, {"block1": v})(X).sum())(vectors[0])
    np.testing.assert_allclose(gradient, 0 * gradient + gradient)
    assert gradient.shape == (4,) and np.abs(gradient).max() > 0


def test_arrays_are_leaves_of_the_edited_model():
    model = transforms.edit(chain(), {"block1": np.zeros((4,), "float32")})
    assert model.layers["block1_edit"].value.shape == (4,)
    np.testing.assert_allclose(model(X)[0], model(X)[1], rtol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m: transforms.probe(m, "blok*"), ValueError, "no layer matches"),
        (lambda m: transforms.probe(m, ("block0", 0, 1)), ValueError, "asked for output 1"),
        (lambda m: transforms.probe(m, "block0", report=True), ValueError, "expected `reduce`"),
        (
            lambda m: transforms.probe(m, "block0", reduce=lambda x: x, report=True),
            ValueError,
            "expected one number",
        ),
        (lambda m: transforms.probe(layers.Dense(2), "a"), TypeError, "a model with a graph"),
        (
            lambda m: transforms.edit(m, {"block0": lambda x: x[:, :1]})(X),
            ValueError,
            "keeps the shape",
        ),
        (
            lambda m: transforms.edit(m, {"block0": np.zeros((3,))})(X),
            ValueError,
            "broadcasts to the value",
        ),
        (lambda m: transforms.edit(m, {"block0": 0.0}), TypeError, "received 0.0"),
        (lambda m: transforms.edit(m, [1]), TypeError, "a dictionary such as"),
    ],
)
def test_mistakes_say_what_to_do(change, error, message):
    with pytest.raises(error, match=message):
        _ = change(chain())


def test_a_layer_in_a_wrapper_names_the_wrapper():
    x = fk.Input((5, 4))
    model = fk.Model(x, layers.TimeDistributed(layers.Dense(3), name="time")(x)).build(KEY)
    with pytest.raises(fk.FKerasError, match="Probe 'time'"):
        _ = transforms.probe(model, "time/layer")
