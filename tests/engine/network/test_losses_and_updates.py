"""Losses and updates that a network returns: of calls, weights, frozen and stateful layers."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.compile_counts import count_compiles
from tests.support.engine_layers import Noisy

KEY = jax.random.key(9)
X = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")


def test_a_frozen_layer_has_no_penalty():
    layer = layers.Dense(2, kernel_regularizer="l2").build(KEY, (None, 4))
    assert len(layer.apply(X).losses) == 1
    assert fk.freeze(layer).apply(X).losses == ()
    trainable, frozen = fk.partition(fk.freeze(layer))
    assert jax.tree.leaves(trainable) == []
    assert len(jax.tree.leaves(frozen)) == 2


def noisy_graph(**fields):
    """Noisy layer `lay` on x1 and x2; x3 goes through another layer."""
    x1, x2, x3 = (fk.Input((4,), name=n) for n in ("x1", "x2", "x3"))
    lay = Noisy(name="lay", **fields)
    outputs = [lay(x1), lay(x2), layers.Dense(2, name="other")(x3)]
    return [x1, x2, x3], outputs


def test_losses_of_calls_and_penalties_of_weights():
    inputs, outputs = noisy_graph()
    model = fk.Model(inputs, outputs).build(KEY)
    out = model.apply([X, 2 * X, X], state=model.init_state())
    assert len(out.losses) == 3
    first, second, penalty = map(float, out.losses)
    assert first == pytest.approx(np.mean(X**2), rel=1e-5)
    assert second == pytest.approx(4 * np.mean(X**2), rel=1e-5)
    assert penalty == pytest.approx(0.5 * 4), "once, however often the layer is called"
    assert fk.Output(X).losses == ()


def test_apply_changes_none_of_its_arguments():
    model = fk.Sequential([fk.Input((4,)), layers.BatchNormalization(), layers.Dropout(0.5)])
    model = model.build(KEY)
    state = model.init_state()
    arguments = jax.tree.map(np.array, (model, state, X))
    out = model.apply(X, state=state, training=True, key=KEY)
    chex.assert_trees_all_equal((model, state, X), arguments)
    chex.assert_trees_all_equal_shapes_and_dtypes(out.updates, state)
    new_mean = out.updates["batch_normalization"]["moving_mean"]
    assert not np.array_equal(new_mean, state["batch_normalization"]["moving_mean"])
    assert model.apply(X, state=state).updates == {}


def test_losses_and_updates_that_depend_on_an_input():
    graph = fk.Model(*noisy_graph()).graph
    view = graph.layer("lay")
    x1, x2, x3 = (graph.layer(name).output for name in ("x1", "x2", "x3"))
    assert view.get_losses_for(x1) == ("lay_ib-0",)
    assert view.get_losses_for([x2]) == ("lay_ib-1",)
    assert view.get_losses_for(None) == ("lay",)
    assert view.get_losses_for(x3) == ()
    assert view.get_losses_for([x1, x2]) == (), "no call takes both"
    assert view.get_losses_for(x1.coord) == ("lay_ib-0",)
    assert view.get_updates_for(x1) == ("lay_ib-0",)
    assert view.get_updates_for([x2]) == ("lay_ib-1",)
    assert view.get_updates_for(x3) == ()
    assert view.get_updates_for(None) == ()


@pytest.mark.parametrize("when", ["before", "after", "whole"])
def test_a_frozen_layer_has_no_updates(when):
    inputs, outputs = noisy_graph(trainable=when != "before")
    model = fk.Model(inputs, outputs, trainable=when != "whole")
    if when == "after":
        recorded = model
        model = fk.freeze(model, "lay")
        assert fk.unfreeze(model, "lay").graph == recorded.graph
    graph = model.graph
    view, x1 = graph.layer("lay"), graph.layer("x1").output
    assert view.get_updates_for(x1) == ()
    assert view.get_losses_for(x1) == ("lay_ib-0",)
    assert view.get_losses_for(None) == ()
    assert graph.updates == ()
    assert graph == fk.freeze(fk.Model(*noisy_graph()), "lay").graph, "however it was frozen"


def test_results_do_not_share_mutable_objects_with_the_model():
    model = fk.Sequential([fk.Input((4,)), Noisy(name="lay")]).build(KEY)
    state = model.init_state()
    out = model.apply(X, state=state, training=True)
    assert isinstance(out.losses, tuple)
    out.updates["lay"]["calls"] = "broken"
    out.metrics["mine"] = 1.0
    next_out = model.apply(X, state=state, training=True)
    assert float(next_out.updates["lay"]["calls"]) == 1.0
    assert next_out.metrics == {}
    assert float(state["lay"]["calls"]) == 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize(("count", "losses", "updates"), [(1, 2, 1), (2, 3, 2)])
def test_only_calls_of_the_graph_add_losses_and_updates(count, losses, updates):
    inputs, outputs = noisy_graph()
    model = fk.Model(inputs[:count], outputs[:count]).build(KEY)
    out = model.apply([X] * count, state=model.init_state(), training=True)
    assert len(out.losses) == losses
    assert len(model.graph.losses) == losses
    assert model.graph.losses == ("lay", *(f"lay_ib-{i}" for i in range(count)))
    assert len(model.graph.updates) == updates
    assert float(out.updates["lay"]["calls"]) == updates


def test_updates_of_a_nested_model_count_once():
    inner = fk.Sequential([fk.Input((4,)), layers.BatchNormalization(name="bn")], name="inner")
    outer = fk.Sequential([fk.Input((4,)), inner, layers.Dense(1)]).build(KEY)
    out = outer.apply(X, state=outer.init_state(), training=True)
    assert len(jax.tree.leaves(out.updates)) == 2
    assert set(out.updates["inner"]["bn"]) == {"moving_mean", "moving_variance"}
    assert outer.graph.updates == ("inner_ib-0",)
    assert fk.freeze(outer, "inner/bn").graph.updates == ()


def test_the_loss_sums_all_outputs_and_all_layers():
    x = fk.Input((4,))
    hidden = layers.Dense(3, "tanh", kernel_regularizer="l2", name="hidden")(x)
    early = layers.Dense(1, name="early")(hidden)
    late = layers.Dense(1, name="late", activity_regularizer="l1")(
        layers.Dense(3, "tanh", bias_regularizer="l2")(hidden)
    )
    trainer = fk.Trainer("sgd", "mse", loss_weights={"early": 0.25, "late": 1.0})
    run = trainer.init(fk.Model(x, {"early": early, "late": late}), KEY)
    y = {"early": X[:, :1], "late": X[:, 1:2]}
    _, logs = jax.jit(trainer.step)(run, (X, y))
    out = run.model.apply(X)
    mse = {n: float(np.mean((np.asarray(out.value[n]) - y[n]) ** 2)) for n in y}
    assert len(out.losses) == 3
    expected = 0.25 * mse["early"] + mse["late"] + float(sum(out.losses))
    assert float(logs["loss"]) == pytest.approx(expected, rel=1e-6)
    assert float(logs["early_loss"]) == pytest.approx(mse["early"], rel=1e-6)


def test_moving_statistics_are_updates():
    x = np.arange(12, dtype="float32").reshape(4, 3)
    layer = layers.BatchNormalization(momentum=0.9).build(KEY, (None, 3))
    state = layer.init_state((None, 3))
    out = layer.apply(x, state=state, training=True)
    np.testing.assert_allclose(out.updates["moving_mean"], [0.45, 0.55, 0.65], rtol=1e-6)
    np.testing.assert_allclose(out.updates["moving_variance"], [2.0250001] * 3, rtol=1e-6)
    with pytest.raises(ValueError, match="changes state.*apply"):
        layer(x, state=state, training=True)
    with pytest.raises(fk.FKerasError, match=r"without it.*'moving_mean': \(3,\).*init_state"):
        layer(x)


@pytest.mark.exhaustive
def test_a_frozen_normalization_uses_moving_statistics():
    layer = layers.BatchNormalization().build(KEY, (None, 4))
    state = {"moving_mean": jnp.full(4, 2.0), "moving_variance": jnp.full(4, 0.25)}
    x = 3 * X + 1
    frozen = fk.freeze(layer).apply(x, state=state, training=True)
    assert frozen.updates == {}
    np.testing.assert_allclose(frozen.value, (x - 2) / np.sqrt(0.251), rtol=1e-5)
    np.testing.assert_allclose(frozen.value, layer(x, state=state), rtol=1e-6)
    trained = layer.apply(x, state=state, training=True)
    assert abs(float(jnp.mean(trained.value))) < 1e-5 < abs(float(jnp.mean(frozen.value)))


@pytest.mark.exhaustive
def test_a_frozen_normalization_can_use_the_batch():
    """Pairs of training loss and test loss: two pairs for Keras 2, one pair for Keras 3."""
    x = 3 * X + 1
    state = {"moving_mean": jnp.full(4, 2.0), "moving_variance": jnp.full(4, 0.25)}
    losses = {}
    for frozen in ("batch", "moving"):
        layer = layers.BatchNormalization(trainable=False, frozen=frozen, epsilon=0.0)
        layer = layer.build(KEY, (None, 4))
        outs = [layer.apply(x, state=state, training=training) for training in (True, False)]
        assert all(out.updates == {} for out in outs)
        losses[frozen] = [float(jnp.mean(jnp.square(out.value))) for out in outs]
    at_test = float(np.mean(np.square((x - 2) / 0.5)))
    np.testing.assert_allclose(losses["batch"], [1.0, at_test], rtol=1e-5)
    np.testing.assert_allclose(losses["moving"], [at_test, at_test], rtol=1e-5)


def test_a_shared_layer_updates_its_state_in_call_order():
    a, b = fk.Input((1,)), fk.Input((1,))
    bn = layers.BatchNormalization(name="bn")
    model = fk.Model([a, b], [bn(a), bn(b)]).build(KEY)
    first, second = (np.arange(i, i + 4, dtype="float32")[:, None] for i in (1, 10))
    state = model.init_state()
    step = jax.jit(lambda s: model.apply([first, second], state=s, training=True).updates)
    updates = step(state)
    # means 2.5 and 11.5, variances 1.25, momentum 0.99
    np.testing.assert_allclose(updates["bn"]["moving_mean"], [0.13975], rtol=1e-5)
    np.testing.assert_allclose(updates["bn"]["moving_variance"], [1.004975], rtol=1e-6)
    other = fk.Model([a, b], [bn(b), bn(a)]).build(KEY)
    reversed_updates = other.apply([first, second], state=state, training=True).updates
    np.testing.assert_allclose(reversed_updates["bn"]["moving_mean"], [0.13885], rtol=1e-5)
    for _ in range(100):
        chex.assert_trees_all_equal(step(state), updates)


@pytest.mark.exhaustive
def test_a_training_step_is_one_program():
    x = fk.Input((4,))
    y = layers.Dense(1, name="head")(layers.BatchNormalization()(layers.Dense(3, name="first")(x)))
    trainer = fk.Trainer("adam", "mse", metrics=["mae"])
    run = trainer.init(fk.Model(x, y, name="net"), KEY)
    step = jax.jit(trainer.step)
    batch = X, X[:, :1]
    with count_compiles() as first_compiles:
        new, logs = step(run, batch)
    with count_compiles() as later_compiles:
        newer, _ = step(new, batch)
    assert len(first_compiles) == 1
    assert len(later_compiles) == 0
    text = step.lower(run, batch).as_text(debug_info=True)
    assert "jvp(net)/head" in text, "forward"
    assert "transpose(jvp(net))/first" in text, "backward"
    assert not np.array_equal(new.model.layers["first"].kernel, run.model.layers["first"].kernel)
    moments = [a for a in jax.tree.leaves(new.opt_state) if a.ndim == 2]
    assert all(np.any(np.asarray(a)) for a in moments), "optimizer"
    new_mean = new.state["batch_normalization"]["moving_mean"]
    assert not np.array_equal(new_mean, run.state["batch_normalization"]["moving_mean"])
    assert set(logs) == {"loss", "mae"} or set(logs) == {"loss", "mean_absolute_error"}
    assert int(newer.step) == 2


@pytest.mark.exhaustive
def test_inference_advances_carries_but_not_statistics():
    x = fk.Input((3, 4), batch_size=2)
    y = layers.SimpleRNN(2, stateful=True, name="rnn")(layers.BatchNormalization(name="bn")(x))
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(fk.Model(x, y), KEY)
    data = np.random.default_rng(2).normal(size=(4, 3, 4)).astype("float32")
    out = run.model.apply(data[:2], state=run.state)
    chex.assert_trees_all_equal(out.updates["bn"], run.state["bn"])
    assert not np.array_equal(*map(jax.tree.leaves, (out.updates["rnn"], run.state["rnn"])))
    state_copy = jax.tree.map(np.array, run.state)
    trainer.evaluate(run, data, np.zeros((4, 2), "float32"), batch_size=2, verbose=0)
    chex.assert_trees_all_equal(run.state, state_copy)


@pytest.mark.exhaustive
@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: fk.Sequential([m], name="outer")])
def test_reset_state_resets_carries_and_keeps_statistics(wrap):
    inner = fk.Sequential(
        [
            layers.BatchNormalization(name="bn"),
            layers.GRU(2, stateful=True, return_sequences=True, name="gru"),
            layers.Bidirectional(layers.LSTM(2, stateful=True), name="both"),
        ],
        name="inner",
    )
    model = wrap(inner).build(KEY, (2, 3, 4))
    data = np.random.default_rng(3).normal(size=(2, 3, 4)).astype("float32")
    start = model.init_state()
    state = start | model.apply(data, state=start, training=True).updates
    reset_state = model.reset_state(state)
    after_training, after_reset, initial = (s.get("inner", s) for s in (state, reset_state, start))
    chex.assert_trees_all_equal(after_reset["bn"], after_training["bn"])
    assert not np.array_equal(after_reset["bn"]["moving_mean"], initial["bn"]["moving_mean"])
    for name in ("gru", "both"):
        chex.assert_trees_all_equal(after_reset[name], initial[name])
        assert all(np.any(np.asarray(a)) for a in jax.tree.leaves(after_training[name]))
    assert jax.tree.structure(reset_state) == jax.tree.structure(state)


def test_carries_of_the_wrong_shape_are_errors():
    assert layers.Dense(2).reset_state({}) == {}
    with pytest.raises(AttributeError, match=r"reset_states.*layer\.reset_state\(state\)"):
        layers.LSTM(2).reset_states()
    layer = layers.LSTM(2, stateful=True, name="lstm").build(KEY, (2, None, 4))
    with pytest.raises(
        ValueError, match=r"'lstm' \(LSTM\): stateful=True needs a known batch size"
    ):
        layer.init_state((None, None, 4))
    state = layer.init_state((2, None, 4))
    with pytest.raises(ValueError, match="lstm"):
        layer.apply(np.ones((3, 5, 4), "float32"), state=state)
    with pytest.raises(
        ValueError, match=r"'lstm' .*expected the state {.*}, received {'state_0': "
    ):
        layer.apply(np.ones((2, 5, 4), "float32"), state={"state_0": state["state_0"]})


@pytest.mark.exhaustive
def test_freezing_takes_effect_at_the_next_step():
    model = fk.Sequential(
        [fk.Input((4,)), layers.Dense(3, name="body"), layers.Dense(1, name="head")]
    )
    optimizer = fk.optimizers.SGD(0.1)
    trainer = fk.Trainer(optimizer, "mse")
    step = jax.jit(trainer.step)
    batch = X, X[:, :1]
    run, _ = step(trainer.init(model, KEY), batch)
    frozen = fk.freeze(run.model, "body")
    run = trainer.init(frozen, KEY)
    with count_compiles() as compiled:
        run, _ = step(run, batch)
    assert len(compiled) == 1
    with count_compiles() as compiled:
        run, _ = step(run, batch)
    assert len(compiled) == 0
    chex.assert_trees_all_equal(run.model.layers["body"].kernel, frozen.layers["body"].kernel)
    assert not np.array_equal(run.model.layers["head"].kernel, frozen.layers["head"].kernel)


@pytest.mark.exhaustive
def test_a_masked_loss_is_the_mean_over_unmasked_steps():
    y_true = np.zeros((1, 3, 1), "float32")
    y_pred = np.sqrt(np.array([[[1.0], [4.0], [9.0]]], "float32"))
    mask = np.array([[True, True, False]])
    loss = fk.losses.MeanSquaredError()
    assert float(loss(y_true, y_pred, mask=mask)) == pytest.approx(2.5)
    weights = mask.astype("float32")
    assert float(loss(y_true, y_pred, sample_weight=weights)) == pytest.approx(5 / 3)
    ids = fk.Input((3,), dtype="int32")
    model = fk.Model(ids, layers.Embedding(4, 1, mask_zero=True)(ids)).build(KEY)
    model, _ = model.set_weights([np.array([[3.0], [1.0], [2.0], [0.0]])])
    trainer = fk.Trainer("sgd", "mse")
    logs = trainer.evaluate(trainer.init(model, KEY), np.array([[1, 2, 0]]), y_true, verbose=0)
    assert logs["loss"] == pytest.approx(2.5)


def test_a_trainer_without_a_loss_is_an_error():
    model = fk.Sequential([fk.Input((4,)), layers.Dense(1)])
    with pytest.raises(ValueError, match=r"Trainer: no loss to minimize.*loss='mse'"):
        fk.Trainer("sgd").init(model, KEY)


def test_effects_of_calls_are_known_without_a_call_on_data():
    x = fk.Input((3,))
    plain = layers.Dense(2, kernel_regularizer="l2")(x)
    penalized = layers.Dense(2, activity_regularizer="l1")(plain)
    # its regularizer is a property, the others are fields
    again = layers.ActivityRegularization(l1=0.1)(penalized)
    graph = fk.Model(x, layers.BatchNormalization()(again)).graph
    found = [(e.losses, e.penalties, e.updates) for e in graph.effects]
    assert found == [(0, 0, False), (0, 1, False), (1, 0, False), (1, 0, False), (0, 0, True)]
