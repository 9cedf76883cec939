"""The rule for `trainable`: a weight is trained if and only if every layer around it is trainable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine import Spec
from tests.cases import all_cases
from tests.support.quick_keys import QUICK

KEY = jax.random.key(0, impl=QUICK)
SEQUENCE = Spec(("b", 3, 4))
CONTAINERS = {
    "TimeDistributed": lambda **flag: layers.TimeDistributed(layers.Dense(2), **flag),
    "Bidirectional": lambda **flag: layers.Bidirectional(layers.LSTM(2), **flag),
    "RNN": lambda **flag: layers.RNN(
        [layers.GRUCell(2), layers.StackedRNNCells([layers.LSTMCell(2)])], **flag
    ),
    "SpectralNormalization": lambda **flag: layers.SpectralNormalization(layers.Dense(2), **flag),
    "Sequential": lambda **flag: fk.Sequential(
        [layers.Dense(2), fk.Sequential([layers.Dense(3), layers.BatchNormalization()])], **flag
    ),
    "nested wrappers": lambda **flag: layers.TimeDistributed(
        fk.Sequential([layers.Dense(2, kernel_regularizer="l2")]), **flag
    ),
}


def trained_paths(layer):
    return list(fk.engine.trainable_weights(layer))


def model_of(trainable=True):
    x = fk.Input((3, 4), name="x")
    y = layers.TimeDistributed(
        layers.Dense(2, kernel_regularizer="l2", kernel_constraint="non_neg"), name="wrapper"
    )(x)
    inner = fk.Sequential([layers.BatchNormalization(name="norm")], name="inner")
    return fk.Model(x, inner(y), name="model", trainable=trainable)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_frozen_container_has_no_trained_weight(name):
    make = CONTAINERS[name]
    assert trained_paths(make().build(KEY, SEQUENCE))
    for layer in (make(trainable=False), make().replace(trainable=False), fk.freeze(make())):
        built = layer.build(KEY, SEQUENCE)
        assert trained_paths(built) == []
        assert jax.tree.leaves(fk.partition(built)[0]) == []
        assert not any(sublayer.trainable for _, sublayer in fk.engine.sublayers(built))


@pytest.mark.exhaustive
@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", CONTAINERS)
def test_all_ways_of_freezing_give_one_value(name):
    make = CONTAINERS[name]
    frozen = fk.freeze(make())
    assert make(trainable=False) == frozen == make().replace(trainable=False)
    assert hash(make().replace(trainable=False)) == hash(frozen)
    built = make().build(KEY, SEQUENCE)
    assert built.replace(trainable=False) == fk.freeze(built) == frozen.build(KEY, SEQUENCE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", all_cases(), ids=lambda case: case.id)
def test_no_layer_of_the_table_keeps_a_trainable_layer_inside_when_frozen(case):
    frozen = case.layer.replace(trainable=False)
    assert frozen == fk.freeze(case.layer)
    assert not any(sublayer.trainable for _, sublayer in fk.engine.sublayers(frozen))


@pytest.mark.exhaustive
def test_replacing_trainable_of_a_model_equals_freezing_it():
    model = model_of().build(KEY)
    replaced, frozen = model.replace(trainable=False), fk.freeze(model)
    assert replaced == frozen == model_of(trainable=False).build(KEY)
    assert hash(replaced) == hash(frozen)
    assert fk.partition(replaced) == fk.partition(frozen)
    for value in (replaced, frozen):
        assert value.graph.losses == value.graph.updates == ()
    x, state = jnp.ones((2, 3, 4)), model.init_state()
    outs = [m.apply(x, state=state, training=True) for m in (replaced, frozen)]
    assert [(len(out.losses), out.updates) for out in outs] == [(0, {}), (0, {})]


def test_layers_replaced_in_a_network_change_its_losses_and_updates():
    model = model_of()
    assert model.graph.losses == ("wrapper",)
    assert model.graph.updates == ("inner_ib-0",)
    frozen = {name: fk.freeze(layer) for name, layer in model.layers.items()}
    replaced = model.replace(layers=frozen)
    assert replaced.graph.losses == replaced.graph.updates == ()
    assert replaced.replace(trainable=False) == fk.freeze(model)
    partly = model.replace(layers={**model.layers, "inner": frozen["inner"]})
    assert partly == fk.freeze(model, "inner")
    assert partly.graph == model.graph, "graphs hold no effects"
    assert partly.graph.losses == ("wrapper",)
    assert partly.graph.updates == ()
    assert partly.graph.layer("wrapper").get_losses_for(None) == ("wrapper",)


def test_a_node_infers_its_effects_from_its_layer():
    x = fk.Input((3,))
    norm = layers.BatchNormalization(gamma_regularizer="l2")
    node, frozen = norm(x).node, norm.replace(trainable=False)(x).node
    assert (node.losses, node.penalties, node.metrics, node.updates) == (0, 1, (), True)
    assert (frozen.losses, frozen.penalties, frozen.metrics, frozen.updates) == (0, 0, (), False)
    assert node.signature == frozen.signature


@pytest.mark.exhaustive
def test_frozen_wrappers_regularize_and_constrain_nothing():
    model = model_of().build(KEY)
    model = fk.engine.replace_weights(model, {"wrapper/layer/kernel": -jnp.ones((4, 2))})
    assert (fk.constrain(model).layers["wrapper"].layer.kernel == 0).all()
    frozen = model.replace(layers={**model.layers, "wrapper": fk.freeze(model.layers["wrapper"])})
    assert fk.constrain(frozen) == frozen
    assert frozen.apply(jnp.ones((1, 3, 4)), state=model.init_state()).losses == ()


@pytest.mark.exhaustive
def test_frozen_wrappers_overwrite_no_weights():
    dense = fk.quantize(layers.Dense(2).build(KEY, (None, 4)), "float8")
    model = fk.Sequential([fk.Input((4,)), dense])
    assert len(fk.engine.overwritten_weights(model)) == 6
    assert fk.engine.overwritten_weights(model.replace(trainable=False)) == {}


@pytest.mark.exhaustive
def test_training_leaves_the_weights_of_a_frozen_wrapper_alone():
    model = fk.Sequential(
        [
            fk.Input((3, 4)),
            layers.TimeDistributed(layers.Dense(2), trainable=False, name="frozen"),
            layers.Dense(1, name="head"),
        ]
    )
    trainer = fk.Trainer(optimizer=fk.optimizers.AdamW(0.1, weight_decay=0.1), loss="mse")
    run = trainer.init(model, jax.random.key(0))
    trained_run, _ = trainer.step(
        run, (np.ones((2, 3, 4), "float32"), np.zeros((2, 3, 1), "float32"))
    )
    assert trained_run.model.layers["frozen"] == run.model.layers["frozen"]
    assert trained_run.model.layers["head"] != run.model.layers["head"]


@pytest.mark.exhaustive
def test_a_frozen_layer_freezes_the_layers_put_into_it():
    wrapper = layers.TimeDistributed(layers.Dense(2), trainable=False)
    assert not wrapper.replace(layer=layers.Dense(3)).layer.trainable
    model = fk.freeze(model_of())
    replaced = model.replace(layers={n: fk.unfreeze(layer) for n, layer in model.layers.items()})
    assert replaced == model


@pytest.mark.exhaustive
def test_making_a_frozen_layer_trainable_applies_to_all_layers_inside():
    model = model_of().build(KEY)
    assert model.replace(trainable=False).replace(trainable=True) == model
    assert fk.unfreeze(fk.freeze(model)) == model
    partly = fk.freeze(model, "inner")
    assert partly.replace(trainable=True) == partly, "the flag does not change"
    assert fk.unfreeze(partly) == model


def test_unfreezing_a_layer_opens_the_layers_around_it_alone():
    frozen = fk.freeze(model_of().build(KEY))
    model = fk.unfreeze(frozen, "inner/norm")
    assert trained_paths(model) == ["inner/norm/gamma", "inner/norm/beta"]
    assert model.trainable
    assert model.layers["inner"].trainable
    assert not model.layers["wrapper"].trainable
    assert model.graph.updates == ("inner_ib-0",)
    wrapper = fk.unfreeze(frozen, "wrapper/layer")
    assert trained_paths(wrapper) == ["wrapper/layer/kernel", "wrapper/layer/bias"]
    unfrozen = fk.unfreeze(wrapper, "inner")
    assert trained_paths(unfrozen) == trained_paths(model_of().build(KEY))


def test_a_subclassed_model_freezes_the_layers_of_its_call():
    class Block(fk.Model):
        dense: fk.Layer

        def call(self, x):
            return layers.TimeDistributed(self.dense)(x)

    block = Block(layers.Dense(2), trainable=False).build(KEY, SEQUENCE)
    assert trained_paths(block) == []
    assert block == fk.freeze(Block(layers.Dense(2)).build(KEY, SEQUENCE))


@pytest.mark.exhaustive
def test_each_pattern_of_a_list_matches_a_layer():
    x = fk.Input((4,))
    model = fk.Model(x, fk.layers.Dense(2, name="head")(fk.layers.Dense(3, name="body")(x)))
    assert not fk.freeze(model, ["bo*", "head"]).layers["head"].trainable
    for transform in (fk.freeze, fk.unfreeze, lambda m, p: fk.quantize(m, "int8", p)):
        with pytest.raises(ValueError, match="no layer matches 'heads'. Did you mean 'head'"):
            transform(model.build(jax.random.key(0)), ["body", "heads"])
