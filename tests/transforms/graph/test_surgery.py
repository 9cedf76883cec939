"""Surgery on graphs: replace, insert, remove, cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.engine.migration_hints.dropped import DroppedResultWarning

KEY = jax.random.key(0)
X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)


def chain():
    x = fk.Input((4,), name="x")
    a = layers.Dense(3, "tanh", name="a")(x)
    n = layers.BatchNormalization(name="n")(a)
    return fk.Model(x, layers.Dense(2, name="head")(n), name="chain").build(KEY)


def shared():
    x = fk.Input((3,), name="x")
    dense = layers.Dense(3, name="dense")
    return fk.Model(x, dense(layers.ReLU(name="relu")(dense(x))), name="twice").build(KEY)


def nested():
    """A model that calls one encoder twice."""
    inner = fk.Sequential(
        [fk.Input((4,)), layers.Dense(3, name="d"), layers.BatchNormalization(name="n")],
        name="encoder",
    )
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    joined = layers.Add(name="add")([inner(a), inner(b)])
    return fk.Model([a, b], layers.Dense(2, name="head")(joined)).build(KEY)


def value(model, *inputs, state=None):
    state = model.init_state() if state is None else state
    return np.asarray(model.apply(*inputs, state=state).value)


def test_a_replaced_layer_takes_the_name_and_others_keep_weights():
    model = chain()
    new = transforms.replace(model, {"head": layers.Dense(5)})
    assert list(new.layers) == list(model.layers)
    assert new.layers["a"] is model.layers["a"] and not new.layers["head"].built
    built = new.build(jax.random.key(1))
    assert value(built, X).shape == (2, 5)
    assert built.layers["a"].kernel is model.layers["a"].kernel
    assert model == chain()


@pytest.mark.exhaustive
def test_replace_and_replace_back_is_the_identity():
    for model, path in [(chain(), "head"), (nested(), "encoder/d"), (shared(), "dense")]:
        old = dict(fk.engine.sublayers(model))[path]
        new = transforms.replace(model, {path: layers.Dense(old.units, "relu", name="other")})
        assert new != model
        other = f"{path.rpartition('/')[0]}/other".strip("/")
        back = transforms.replace(new, {other: old})
        assert back == model and hash(back.graph) == hash(model.graph)


def test_a_function_gets_the_old_layer():
    model = chain()
    new = transforms.replace(model, {"n": lambda layer: layers.LayerNormalization()})
    assert isinstance(new.layers["n"], layers.LayerNormalization)
    same = transforms.replace(model, {"n": lambda layer: layer})
    assert same == model


@pytest.mark.exhaustive
def test_a_function_may_return_a_function_of_the_inputs():
    model = shared()
    new = transforms.replace(model, {("dense", 1): lambda dense: lambda x: x + dense(x)})
    x = X[:, :3]
    dense = model.layers["dense"]
    hidden = jax.nn.relu(dense(x))
    np.testing.assert_allclose(new(x), hidden + dense(hidden), rtol=1e-6)
    assert len(new.graph.calls_of["dense"]) == 2


def test_one_call_of_a_shared_layer_is_replaced_and_the_other_stays():
    model = shared()
    new = transforms.replace(model, {("dense", 0): layers.Dense(3, name="own")})
    assert new.graph.calls_of["dense"] and len(new.graph.calls_of["dense"]) == 1
    assert new.layers["dense"] is model.layers["dense"]
    both = transforms.replace(model, {"dense": layers.Dense(3)})
    assert len(both.graph.calls_of["dense"]) == 2 and not both.layers["dense"].built


def test_a_pattern_gives_each_place_its_own_copy():
    x = fk.Input((4,))
    y = x
    for i in range(3):
        y = layers.BatchNormalization(name=f"bn{i}")(layers.Dense(4, name=f"dense{i}")(y))
    model = fk.Model(x, y)
    new = transforms.replace(model, {"bn*": layers.LayerNormalization()})
    assert [type(new.layers[f"bn{i}"]).__name__ for i in range(3)] == ["LayerNormalization"] * 3
    built = new.build(KEY)
    assert built.layers["bn0"] is not built.layers["bn1"]
    named = transforms.replace(model, {"bn*": layers.LayerNormalization(name="ln")})
    assert [n for n in named.layers if n.startswith("ln")] == ["ln", "ln_1", "ln_2"]


@pytest.mark.exhaustive
def test_the_state_of_replaced_layers_is_gone_and_other_state_stays():
    model = chain()
    x = fk.Input((4,), name="x")
    two = fk.Model(
        x,
        layers.BatchNormalization(name="n2")(layers.BatchNormalization(name="n1")(x)),
    ).build(KEY)
    state = jax.tree.map(lambda a: a + 7, two.init_state())
    new, new_state = transforms.replace(two, {"n2": layers.BatchNormalization()}, state)
    assert new_state["n1"] is state["n1"]
    assert new_state["n2"]["moving_mean"].max() == 0
    plain, plain_state = transforms.replace(two, {"n2": layers.ReLU()}, state=state)
    assert list(plain_state) == ["n1"] and plain(X, state=plain_state).shape == (2, 4)
    _, removed = transforms.remove(model, "n", state=model.init_state())
    assert removed == {}
    deep = nested()
    deep_state = jax.tree.map(lambda a: a + 7, deep.init_state())
    _, kept = transforms.insert(deep, layers.ReLU(), after="encoder/d", state=deep_state)
    assert kept["encoder"]["n"] is deep_state["encoder"]["n"]


@pytest.mark.exhaustive
def test_a_changed_copy_of_a_layer_keeps_its_state():
    model = nested()
    state = jax.tree.map(lambda a: a + 7, model.init_state())

    def moved(change):
        return transforms.replace(model, {"encoder/n": change}, state)[1]["encoder"]["n"]

    old = state["encoder"]["n"]
    for change in ({"momentum": 0.5}, {"gamma": 2 * jnp.ones(3)}):
        new = moved(lambda n, change=change: n.replace(**change))
        assert new["moving_mean"] is old["moving_mean"], change
    assert moved(lambda n: fk.engine.unbuilt(n))["moving_mean"].max() == 0
    assert moved(lambda n: jax.tree.map(jnp.copy, n))["moving_mean"].max() == 0
    x = fk.Input((4,))
    wrapper = layers.SpectralNormalization(layers.Dense(3), name="wrapper")
    wrapped = fk.Model(x, wrapper(x)).build(KEY)
    state = wrapped.init_state()
    change = {"wrapper": lambda layer: layer.replace(power_iterations=2)}
    _, kept = transforms.replace(wrapped, change, state)
    assert kept["wrapper"]["vector_u"] is state["wrapper"]["vector_u"]


@pytest.mark.exhaustive
def test_the_inside_of_a_nested_network_called_twice():
    model = nested()
    new = transforms.insert(model, layers.ReLU(name="relu"), after="encoder/d")
    assert isinstance(new.layers["encoder"], fk.Sequential)
    assert list(new.layers["encoder"].layers)[-3:] == ["d", "relu", "n"]
    assert len(new.graph.calls_of["encoder"]) == 2
    assert new.layers["encoder"].layers["d"] is model.layers["encoder"].layers["d"]
    state = new.init_state()
    by_hand = model.layers["encoder"].layers["d"](X)
    relu = new.layers["encoder"].apply(X, state=state["encoder"]).value
    np.testing.assert_allclose(relu, jax.nn.relu(by_hand) / np.sqrt(1 + 1e-3), rtol=1e-5)


@pytest.mark.exhaustive
def test_a_layer_behind_an_output_becomes_the_output():
    model = chain()
    new = transforms.insert(model, layers.Softmax(name="p"), after="head")
    assert new.output_names == ("p",)
    np.testing.assert_allclose(value(new, X), jax.nn.softmax(value(model, X)), rtol=1e-5)


@pytest.mark.exhaustive
def test_after_and_before():
    x = fk.Input((4,), name="x")
    a = layers.Dense(4, name="a")(x)
    model = fk.Model(x, layers.Add(name="add")([a, x])).build(KEY)
    double = layers.Rescaling(2.0, name="double")
    a, x2 = model.layers["a"], X * 2
    np.testing.assert_allclose(
        transforms.insert(model, double, after="x")(X), a(x2) + x2, rtol=1e-6
    )
    np.testing.assert_allclose(
        transforms.insert(model, double, before="a")(X), a(x2) + X, rtol=1e-6
    )
    second = transforms.insert(model, double, before=("add", 0, 1))
    np.testing.assert_allclose(second(X), a(X) + x2, rtol=1e-6)
    with pytest.raises(ValueError, match="'add' has 2 inputs. Give coordinates"):
        transforms.insert(model, double, before="add")
    with pytest.raises(ValueError, match="'x' is an input, in front of which nothing stands"):
        transforms.insert(model, double, before="x")


@pytest.mark.exhaustive
def test_an_output_of_a_call_with_several_outputs():
    x = fk.Input((5, 4), name="x")
    y, h, c = layers.LSTM(3, return_sequences=True, return_state=True, name="lstm")(x)
    model = fk.Model(x, [y, h, c]).build(KEY)
    new = transforms.insert(model, layers.Rescaling(0.0), after=("lstm", 0, 1))
    inputs = np.ones((1, 5, 4), "float32")
    old_values, new_values = model(inputs), new(inputs)
    np.testing.assert_array_equal(new_values[0], old_values[0])
    np.testing.assert_array_equal(new_values[1], 0 * old_values[1])
    with pytest.raises(ValueError, match="'lstm' has 3 outputs. Give coordinates"):
        transforms.insert(model, layers.ReLU(), after="lstm")
    with pytest.raises(ValueError, match="asked for output 3"):
        transforms.insert(model, layers.ReLU(), after=("lstm", 0, 3))


def test_one_part_inserted_twice_gets_another_name():
    part = fk.Sequential([layers.Dense(3)], name="part")
    model = transforms.insert(chain(), part, after="a")
    model = transforms.insert(model, part, after="n")
    assert {"part", "part_1"} <= set(model.layers)
    everywhere = transforms.insert(
        chain(), layers.Dropout(0.1, name="drop"), after=lambda p, _: p in "an"
    )
    assert {"drop", "drop_1"} <= set(everywhere.layers)
    once = transforms.insert(shared(), layers.ReLU(name="r"), after="dense")
    assert len(once.graph.calls_of["r"]) == 2 and "r_1" not in once.layers
    call = transforms.insert(shared(), layers.ReLU(name="r"), after=("dense", 1))
    assert len(call.graph.calls_of["r"]) == 1


@pytest.mark.exhaustive
def test_several_places_of_an_inserted_layer():
    double = layers.Rescaling(2.0, name="double")
    behind = transforms.insert(chain(), double, after=["a", ("head", 0), "a"])
    by_hand = transforms.insert(transforms.insert(chain(), double, after="a"), double, after="head")
    np.testing.assert_allclose(value(behind, X), value(by_hand, X), rtol=1e-6)
    assert {"double", "double_1"} <= set(behind.layers) and "double_2" not in behind.layers
    x = fk.Input((4,), name="x")
    both = fk.Model(x, layers.Subtract(name="minus")([layers.Dense(4, name="a")(x), x])).build(KEY)
    before = transforms.insert(both, double, before=[("minus", 0, 0), ("minus", 0, 1)])
    np.testing.assert_allclose(before(X), 2 * both(X), rtol=1e-5)
    inside = transforms.insert(nested(), double, after=["encoder/d", ("encoder", 1)])
    encoder = inside.layers["encoder"]
    assert "double" in encoder.layers and len(inside.graph.calls_of["double"]) == 1


def test_removed_layers():
    model = fk.Sequential(
        [fk.Input((4,)), layers.Dropout(0.5), layers.Dense(4), layers.Dropout(0.5), layers.Dense(2)]
    ).build(KEY)
    new = transforms.remove(model, "dropout*")
    assert isinstance(new, fk.Sequential) and [type(m).__name__ for m in new] == ["Dense", "Dense"]
    np.testing.assert_array_equal(new(X), model(X))
    back = transforms.remove(transforms.insert(model, layers.ReLU(name="r"), after="dense"), "r")
    assert back == model
    with pytest.raises(
        ValueError, match=r"'add', which takes 2 tensors and returns 1.*leaves\(inputs"
    ):
        transforms.remove(nested(), "add")
    with pytest.raises(ValueError, match="'x', which is an input of the model"):
        transforms.remove(chain(), "x")


@pytest.mark.exhaustive
def test_another_input_size_reaches_nested_networks():
    inner = fk.Sequential([fk.Input((8, 8, 3)), layers.Conv2D(2, 3, name="conv")], name="body")
    x = fk.Input((8, 8, 3), name="image")
    y = layers.GlobalAveragePooling2D()(inner(x))
    model = fk.Model(x, layers.Dense(2, name="head")(y)).build(KEY)
    new = transforms.replace(model, {"image": fk.Input((12, 10, 3))})
    assert new.input_names == ("image",) and new.layers["body"].inputs.shape == (None, 12, 10, 3)
    assert new(np.ones((1, 12, 10, 3), "float32")).shape == (1, 2)
    assert new.layers["head"] is model.layers["head"]
    with pytest.raises(TypeError, match="an input takes another input, such as fk.Input"):
        transforms.replace(model, {"image": layers.Dense(2)})


def test_a_layer_that_no_longer_fits_is_named():
    with pytest.raises(fk.FKerasError) as caught:
        transforms.replace(chain(), {"a": layers.Dense(7)})
    message = str(caught.value)
    assert "transforms.replace: 'n', call 0, no longer fits. It receives (b, 7)" in message
    assert "recorded for (b, 3)" in message and caught.value.layer == "n"
    fresh = transforms.replace(
        chain(),
        {"a": layers.Dense(7), "n": fk.engine.unbuilt, "head": fk.engine.unbuilt},
    )
    assert fresh.build(KEY).layers["head"].kernel.shape == (7, 2)


@pytest.mark.exhaustive
def test_masks_reach_kept_and_new_layers():
    x = fk.Input((5,), dtype="int32", name="x")
    e = layers.Embedding(9, 4, mask_zero=True, name="e")(x)
    model = fk.Model(x, layers.LSTM(3, name="lstm")(e)).build(KEY)
    ids = np.array([[1, 2, 3, 0, 0]])
    new = transforms.insert(model, layers.Dropout(0.5), after="e")
    np.testing.assert_array_equal(new(ids), model(ids))
    unmasked = transforms.replace(model, {"e": lambda e: e.replace(mask_zero=False)})
    assert not np.allclose(unmasked(ids), model(ids))


@pytest.mark.exhaustive
def test_arguments_constants_and_modes_of_calls_stay():
    x = fk.Input((4,), name="x")
    y = layers.Dropout(0.5, name="drop")(x, training=True)
    z = fk.ops.concatenate([y, fk.ops.multiply(y, np.full((1, 4), 2.0, "float32"))], axis=-1)
    model = fk.Model(x, layers.Dense(2, name="head")(z)).build(KEY)
    new = transforms.insert(model, layers.ReLU(name="relu"), after="x")
    back = transforms.remove(new, "relu")
    assert back == model
    key = jax.random.key(3)
    np.testing.assert_array_equal(back.apply(X, key=key).value, model.apply(X, key=key).value)


def test_marks_stay():
    model = fk.freeze(nested(), "encoder")
    new = transforms.insert(model, layers.ReLU(name="r"), after="encoder/d")
    assert not new.layers["encoder"].trainable and not new.layers["encoder"].layers["d"].trainable
    assert new.layers["head"].trainable and new.trainable
    frozen = fk.freeze(chain())
    assert not transforms.replace(frozen, {"head": layers.Dense(2)}).trainable


@pytest.mark.exhaustive
def test_a_rolled_model_stays_rolled():
    model = fk.Sequential([fk.Input((4,)), *(layers.Dense(4, "tanh") for _ in range(5))]).build(KEY)
    rolled = transforms.roll(model)
    new = transforms.insert(rolled, layers.ReLU(), after="dense_4")
    assert new.graph.depth == "scan"
    # another order of sums: the error is relative to the largest number, not to numbers near 0
    np.testing.assert_allclose(new(X), jax.nn.relu(model(X)), rtol=1e-5, atol=1e-7)


@pytest.mark.exhaustive
def test_cut_and_call_again_is_the_whole():
    model = chain()
    head, tail = transforms.cut(model, outputs="a"), transforms.cut(model, inputs="a")
    state = model.init_state()
    hidden = head(X)
    np.testing.assert_array_equal(tail(hidden, state=state), value(model, X))
    whole = fk.Model(model.inputs, tail(head(model.inputs)))
    assert whole.output_names == (tail.name or "functional_1",) or whole.outputs.shape == (None, 2)
    part, part_state = transforms.cut(model, "a", "n", state=jax.tree.map(lambda a: a + 7, state))
    assert part_state["n"]["moving_mean"].min() == 7 and list(part.layers) == ["input_layer", "n"]


class Shifted(fk.Layer):
    """Adds a bias that may be None."""

    def call(self, x, bias=None):
        return x if bias is None else x + bias


def optional_bias(inner_layer):
    """A model with an optional input, which a nested network passes to a layer."""
    x, bias = (fk.Input((3,), name=name, optional=name == "bias") for name in ("x", "bias"))
    y, shift = (fk.Input((3,), name=name, optional=name == "shift") for name in ("y", "shift"))
    inner = fk.Model([y, shift], inner_layer(name="shifted")(y, shift), name="inner")
    hidden = layers.Dense(3, name="dense")(x)
    return fk.Model([x, bias], layers.ReLU(name="relu")(inner([hidden, bias]))).build(KEY)


@pytest.mark.exhaustive
def test_cut_leaves_out_optional_inputs_that_are_not_selected():
    model = optional_bias(Shifted)
    x, bias = X[:, :3], -X[:, 1:4]
    part = transforms.cut(model, inputs="x", name="part")
    assert part.input_names == ("x",) and part.inputs.shape == (None, 3) and part.name == "part"
    np.testing.assert_array_equal(part(x), model(x))
    listed = transforms.cut(model, inputs=["x"])
    np.testing.assert_array_equal(listed([x]), model(x))
    # a selected input stays optional
    both = transforms.cut(model, inputs=["x", "bias"])
    np.testing.assert_array_equal(both([x, bias]), model([x, bias]))
    np.testing.assert_array_equal(both(x), model(x))
    assert transforms.cut(model).input_names == ("x", "bias")
    tail = transforms.cut(model, inputs="dense")
    np.testing.assert_array_equal(tail(transforms.cut(model, outputs="dense")(x)), model(x))
    inside = transforms.cut(model, inputs="x", outputs="inner/shifted")
    np.testing.assert_array_equal(jax.nn.relu(inside(x)), model(x))
    with pytest.raises(fk.DisconnectedGraphError, match="not among the inputs"):
        transforms.cut(model, inputs="bias")


def test_cut_names_optional_inputs_that_a_layer_needs():
    x, other = (fk.Input((3,), name=name, optional=name == "other") for name in ("x", "other"))
    model = fk.Model([x, other], layers.Add(name="add")([x, other]))
    message = r"the optional inputs 'other' .* 'add' cannot compute .* inputs=\[..., 'other'\]"
    with pytest.raises(fk.FKerasError, match=message):
        transforms.cut(model, inputs="x")


@pytest.mark.exhaustive
def test_cut_decoder_without_segments():
    model = fk.pretrained.build(fk.pretrained.LlamaConfig(11, 8, 12, 1, 2)).build(KEY)
    part = transforms.cut(model, inputs="ids")
    ids = jnp.array([[1, 2, 3]])
    assert part.input_names == ("ids",)
    assert jax.tree.structure(part.init_cache(1, 8)) == jax.tree.structure(model.init_cache(1, 8))
    np.testing.assert_array_equal(part(ids), model(ids))


def test_cut_by_coordinates_patterns_and_paths():
    model = nested()
    with pytest.raises(ValueError, match="'encoder' is called 2 times. Give coordinates"):
        transforms.cut(model, outputs="encoder")
    first = transforms.cut(model, outputs=("encoder", 0))
    assert first.input_names == ("a",) and first.inputs.shape == (None, 4)
    inside = transforms.cut(model, outputs=[("encoder/d", 0), "head"])
    values = inside([X, X], state=inside.init_state())
    np.testing.assert_array_equal(values[0], model.layers["encoder"].layers["d"](X))
    both = transforms.cut(chain(), outputs="[an]")
    assert [t.shape for t in both.outputs] == [(None, 3), (None, 3)]
    state = jax.tree.map(lambda a: a + 7, model.init_state())
    _, flat = transforms.cut(model, outputs=("encoder/n", 1), state=state)
    assert flat["encoder_n"] is state["encoder"]["n"]
    with pytest.raises(fk.DisconnectedGraphError, match="not among the inputs"):
        transforms.cut(chain(), inputs="head", outputs="n")


def test_the_layer_in_a_wrapper_is_replaced_by_a_layer():
    x = fk.Input((5, 4))
    model = fk.Model(x, layers.TimeDistributed(layers.Dense(3), name="time")(x))
    new = transforms.replace(model, {"time/layer": layers.Dense(6)})
    assert new.outputs.shape == (None, 5, 6)
    with pytest.raises(fk.FKerasError, match="which the layer around it calls"):
        transforms.insert(model, layers.ReLU(), after="time/layer")
    with pytest.raises(TypeError, match="needs a layer in its place"):
        transforms.replace(model, {"time/layer": lambda layer: lambda x: x})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda m: transforms.replace(m, {"haed": layers.Dense(2)}),
            ValueError,
            "Did you mean 'head'",
        ),
        (
            lambda m: transforms.replace(m, {"head": layers.Dense}),
            TypeError,
            "Write Dense\\(...\\)",
        ),
        (lambda m: transforms.replace(m, {"head": 3}), TypeError, "received 3"),
        (
            lambda m: transforms.replace(m, {"head": lambda layer: None}),
            TypeError,
            "function's result",
        ),
        (lambda m: transforms.replace(m, layers.Dense(2)), TypeError, "a dictionary such as"),
        (
            lambda m: transforms.replace(m, {"*": layers.ReLU(), "head": layers.ReLU()}),
            ValueError,
            "two selectors",
        ),
        (lambda m: transforms.replace(m, {("head", 1): layers.ReLU()}), ValueError, "has 1 calls"),
        (
            lambda m: transforms.replace(m, {("head", 0, 0): layers.ReLU()}),
            ValueError,
            "the output",
        ),
        (
            lambda m: transforms.replace((m, {}), {"head": layers.ReLU()}),
            TypeError,
            "received a tuple",
        ),
        (lambda m: transforms.replace("m", {"head": layers.ReLU()}), TypeError, "received str"),
        (lambda m: transforms.insert(m, layers.ReLU()), TypeError, "received neither"),
        (
            lambda m: transforms.insert(m, layers.ReLU(), after="a", before="n"),
            TypeError,
            "received both",
        ),
        (
            lambda m: transforms.insert(m, lambda x: [x, x], after="a"),
            TypeError,
            "one symbolic tensor",
        ),
        (
            lambda m: transforms.insert(m, layers.ReLU(), after=m.layers["a"]),
            TypeError,
            "Pass its name",
        ),
        (
            lambda m: transforms.insert(m, layers.ReLU(), after=["a", ("a", 0)]),
            ValueError,
            "two selectors",
        ),
        (lambda m: transforms.remove(m, ("a", 0, 0)), ValueError, "the output"),
        (lambda m: transforms.remove(m, "zzz"), ValueError, "no layer matches"),
        (lambda m: transforms.remove(m, 3), TypeError, "expected a path"),
        (
            lambda m: transforms.cut(m, outputs=("a", 0, 1)),
            ValueError,
            "1\n? ?outputs|asked for output 1",
        ),
        (
            lambda m: transforms.replace(m, {"head": lambda layer: lambda x: [x]}),
            TypeError,
            "in this structure",
        ),
    ],
)
def test_mistakes_say_what_to_do(change, error, message):
    with pytest.raises(error, match=message):
        _ = change(chain())


def test_a_model_without_a_graph_says_how_to_get_one():
    model = fk.Sequential([layers.Dense(2, name="a")])
    with pytest.raises(fk.FKerasError, match="has no graph to rewrite"):
        _ = transforms.replace(model, {"a": layers.Dense(3)})


@pytest.mark.exhaustive
def test_results_train_and_save(tmp_path):
    model = transforms.replace(chain(), {"head": layers.Dense(3)})
    trainer = fk.Trainer(optimizer="sgd", loss="mse")
    run = trainer.init(model, jax.random.key(0))
    run, _ = trainer.fit(run, X, np.ones((2, 3), "float32"), epochs=1, verbose=0)
    fk.save_model(tmp_path / "m.keras", run.model, run.state)
    loaded, state = fk.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(X, state=state), run.model(X, state=run.state), rtol=1e-6)


@pytest.mark.exhaustive
def test_surgery_commutes_with_saving(tmp_path):
    model = nested()
    fk.save_model(tmp_path / "m.keras", model, model.init_state())
    loaded, _ = fk.load_model(tmp_path / "m.keras")
    change = {"encoder/d": lambda d: d.replace(activation="relu")}
    new = transforms.replace(model, change)
    fk.save_model(tmp_path / "n.keras", new, new.init_state())
    saved_after, _ = fk.load_model(tmp_path / "n.keras")
    after_loading = transforms.replace(loaded, change)
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), saved_after, after_loading))
    assert saved_after.to_json() == after_loading.to_json()


def test_dropped_results_warn():
    model = chain()
    with pytest.warns(DroppedResultWarning, match="Write `model = transforms.remove"):
        transforms.remove(model, "n")


def test_a_subclass_becomes_its_graph():
    class Block(fk.Model):
        units: int

        def call(self, x):
            return x + layers.Dense(self.units, name="d")(x)

    x = fk.Input((4,), name="x")
    model = fk.Model(x, Block(4, name="block")(x)).build(KEY)
    new = transforms.insert(model, layers.ReLU(), after="block/d")
    assert type(new.layers["block"]) is fk.Model
    d = model.layers["block"].layers["d"]
    np.testing.assert_allclose(new(jnp.asarray(X)), X + jax.nn.relu(d(X)), rtol=1e-6)
