"""Properties that hold for every layer, checked on each row of the layer table."""

import dataclasses
import functools
import inspect
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import layers_in
from tests.cases import all_cases, marked
from tests.support.quick_keys import QUICK

CASES = all_cases()
KEY = jax.random.key(7, impl=QUICK)


def _ids(case):
    return case.id


# the properties hold for each implementation: CI alone runs the product of rows and properties
each_case = pytest.mark.parametrize("case", marked(CASES), ids=_ids)
# augmentations of images have no weights, and large programs
WITHOUT_IMAGES = [
    pytest.param(case, marks=pytest.mark.exhaustive)
    if case.exhaustive or type(case.layer).__module__.startswith("fkeras.layers.image")
    else case
    for case in CASES
]
# layers that may have state; only a built layer knows whether it has
may_have_state = pytest.mark.parametrize(
    "case", marked(c for c in CASES if c.layer.stateful), ids=_ids
)


def _call(layer, state, inputs, case, key=None, mask="case"):
    return layer.apply(
        *inputs,
        state=state,
        training=case.training,
        key=KEY if key is None else key,
        mask=case.mask_array() if isinstance(mask, str) else mask,
        **case.options,
    )


@functools.cache
def _shapes(case):
    """Returns the output shapes of a row's call, traced once for all tests of the row."""
    layer, state = case.build()
    return jax.eval_shape(lambda s: _call(layer, s, case.arrays(), case), state)


def _is_float(x):
    return jnp.issubdtype(x.dtype, jnp.floating)


def _score(out):
    """Returns a scalar that depends on every element of an output; a NumPy scalar outside of jit."""
    value, losses = out.value, out.losses
    if not any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((value, losses))):
        value, losses = jax.tree.map(np.asarray, (value, losses))
    total = sum(losses, np.float32(0))
    for leaf in jax.tree.leaves(value):
        weights = np.cos(np.arange(leaf.size, dtype="float32")).reshape(leaf.shape)
        total = total + (leaf.astype("float32") * weights).sum()
    return total


def test_every_public_layer_has_a_row():
    public = {
        value
        for name in layers.__all__
        if inspect.isclass(value := getattr(layers, name)) and issubclass(value, fk.Layer)
    }
    covered = {type(case.layer) for case in CASES if not case.exhaustive}
    exempt = {fk.Layer, layers.InputLayer}
    # layers of strings run on the host: see tests/layers/lookup/test_text_vectorization.py
    exempt |= {layers.StringLookup, layers.TextVectorization}
    missing = {cls.__name__ for cls in public - covered - exempt}
    assert not missing, f"layers without a row in tests/cases: {sorted(missing)}"


@pytest.mark.one_a_class(family=True)
@each_case
def test_recorded_shapes_match_the_call(case):
    arrays = case.arrays()
    value = _shapes(case).value
    if getattr(case.layer, "stateful", False) is True and "stateful" in repr(case.layer):
        batch = None
    else:
        batch = "b"
    symbols = jax.tree.map(
        lambda x: fk.Input(batch_shape=(batch or x.shape[0], *x.shape[1:]), dtype=x.dtype), arrays
    )
    recorded = jax.tree.leaves(case.layer(*symbols, **case.options))
    assert recorded[0].node.layer is case.layer
    for tensor, array in zip(recorded, jax.tree.leaves(value), strict=True):
        expected = array.shape
        if batch is not None and array.ndim and tensor.shape[0] is None:
            expected = (None, *array.shape[1:])
        assert tensor.shape == expected
        assert tensor.dtype == str(array.dtype)


def _trained(layer):
    """Returns the number of trained weights of a layer without frozen parts."""
    layers_inside = [layer_inside for _, layer_inside in sublayers(layer)]
    untrained = [
        getattr(layer_inside, name)
        for layer_inside in layers_inside
        for name in (*layer_inside._weight_roles.untrained, *layer_inside._weight_roles.overwritten)
    ]
    return len(jax.tree.leaves(layer)) - len(jax.tree.leaves(untrained))


@pytest.mark.one_a_class(family=True)
@pytest.mark.parametrize("case", WITHOUT_IMAGES, ids=_ids)
def test_jit_grad_and_vmap(case):
    """Two members are built, called and differentiated as one; eagerly the numbers are the same.

    Where Keras is the oracle the numbers of the compiled program are compared with Keras's, so
    that here the program need not run.
    """
    layer, state = case.build()
    arrays = case.arrays()
    keys = jax.random.split(KEY, 2)

    def build(key):
        return case.layer.build(key, *arrays)

    def score(trained, rest, key):  # only trained weights: others may be integers
        return _score(_call(fk.combine(trained, rest), state, arrays, case, key))

    members = jax.vmap(jax.value_and_grad(score))
    built = jax.eval_shape(jax.vmap(build), jax.random.split(jax.random.key(7), 2))
    if case.keras:
        values, grads = jax.eval_shape(members, *fk.partition(built), keys)
        assert values.shape == (2,)
    else:
        first, second = layer, build(jax.random.key(1))
        # eager draws equal draws under vmap: see tests/initializers/test_initializers.py
        stacked = jax.tree.map(lambda *weights: np.stack(weights), first, second)
        chex.assert_trees_all_equal_shapes_and_dtypes(stacked, built)
        values, grads = jax.jit(members)(*fk.partition(stacked), keys)
        value = _score(_call(second, state, arrays, case, keys[1]))
        np.testing.assert_allclose(values[1], value, rtol=1e-4, atol=1e-4)
        chex.assert_tree_all_finite(grads)
    assert jax.tree.structure(grads) == jax.tree.structure(fk.partition(layer)[0])


@pytest.mark.one_a_class(family=True)
@pytest.mark.parametrize("case", WITHOUT_IMAGES, ids=_ids)
def test_half_precision_computes_in_half_precision(case):
    half = case.layer.replace(dtype="mixed_bfloat16")
    if any(True for value in vars(half).values() for _ in layers_in(value)):
        pytest.skip("the layers inside keep their own policies")
    arrays = case.arrays()
    layer = half.build(jax.random.key(7), *arrays)
    chex.assert_tree_all_finite(layer)
    assert all(w.dtype == jnp.float32 for w in jax.tree.leaves(layer) if _is_float(w))
    shapes = jax.eval_shape(
        lambda l, s: _call(l, s, arrays, case).value, layer, layer.init_state(*arrays)
    )
    for leaf in jax.tree.leaves(shapes):
        assert not _is_float(leaf) or leaf.dtype == jnp.bfloat16


@pytest.mark.one_a_class
@each_case
def test_configuration_round_trip(case):
    config = layers.serialize(case.layer)
    try:
        again = layers.deserialize(config)
    except ValueError as error:
        assert "custom_objects" in str(error)
        functions = {f.__name__: f for f in vars(case.layer).values() if inspect.isfunction(f)}
        again = layers.deserialize(config, custom_objects=functions)
    assert again == case.layer
    assert hash(again) == hash(case.layer)
    assert layers.serialize(again) == config


@pytest.mark.one_in(4)  # equality is implemented once, in the base class
@each_case
def test_equal_builds_are_equal(case):
    (first, state), (second, second_state) = case.build(), case.build_again()
    assert first == second
    assert hash(first) == hash(second)
    assert jax.tree.structure(first) == jax.tree.structure(second)
    chex.assert_trees_all_equal(state, second_state)
    if jax.tree.leaves(first):
        assert first != case.layer
        assert fk.engine.unbuilt(first) == case.layer
        weights, _ = first.set_weights([w + 1 for w in first.get_weights()])
        assert weights != first


@pytest.mark.one_in(5)
@may_have_state
def test_state_goes_through_scan(case):
    layer, state = case.build()
    if not state:
        return
    arrays = case.arrays()

    def step(state, key):
        out = _call(layer, state, arrays, case, key)
        return state | out.updates, _score(out)

    keys = jax.random.split(KEY, 2)
    last, scores = jax.lax.scan(step, state, keys)
    assert jax.tree.structure(last) == jax.tree.structure(state)
    by_hand, first = step(state, keys[0])
    by_hand, second = step(by_hand, keys[1])
    chex.assert_trees_all_close(last, by_hand, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores, np.stack([first, second]), rtol=1e-4, atol=1e-4)


@pytest.mark.one_a_class
@each_case
def test_a_mask_is_used_or_rejected(case):
    """No mask is dropped silently: a layer either uses the mask or raises an error."""
    layer, state = case.build()
    first = case.arrays()[0]
    array = first[0] if isinstance(first, list) else first
    if array.ndim < 3 or case.mask is not None:
        return
    mask = np.ones(array.shape[:2], bool)
    masks = [mask] + [None] * (len(first) - 1) if isinstance(first, list) else mask
    if len(case.inputs) > 1:
        masks = (masks, *[None] * (len(case.inputs) - 1))
    if layer.supports_masking:
        try:
            shapes = jax.eval_shape(
                lambda s: _call(layer, s, case.arrays(), case, mask=masks), state
            )
        except ValueError as error:
            assert "expected a mask" in str(error)
            return
        chex.assert_trees_all_equal_shapes_and_dtypes(shapes.value, _shapes(case).value)
    else:
        with pytest.raises(fk.FKerasError, match=r"mask.*fk\.ops\.unmask"):
            _call(layer, state, case.arrays(), case, mask=masks)


@pytest.mark.one_a_class(family=True)
@each_case
def test_weight_lists_round_trip(case):
    layer, state = case.build()
    values = layer.get_weights(state)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    listed = [
        path for path in paths if "state_" not in path
    ]  # Keras's weight lists exclude RNN carries
    assert len(values) == len(jax.tree.leaves(layer)) + len(listed)
    again, new_state = layer.set_weights(values, state)
    assert again == layer
    chex.assert_trees_all_equal(new_state, state)
    with pytest.raises(ValueError, match="expected"):
        layer.set_weights([*values, np.zeros(1)], state)


@pytest.mark.one_a_class(family=True)
@each_case
def test_freezing_reaches_every_weight(case):
    layer, _ = case.build()
    frozen = fk.freeze(layer)
    assert fk.engine.trainable_weights(frozen) == {}
    assert frozen.get_config()["trainable"] is False
    thawed = fk.unfreeze(frozen)
    assert len(fk.engine.trainable_weights(thawed)) == _trained(layer)


def _argument_text(cls):
    """Returns the docstring of a class and those referenced by "Other arguments: those of `Name`"."""
    docstring = inspect.cleandoc(cls.__doc__ or "")
    references = re.findall(r"[Aa]rguments: those of `(\w+)`", docstring)
    return "\n".join(
        [docstring, *(_argument_text(getattr(fk.layers, name)) for name in references)]
    )


def test_docstrings_have_all_sections():
    for cls in {type(case.layer) for case in CASES}:
        docstring = inspect.cleandoc(cls.__doc__ or "")
        assert docstring, f"{cls.__name__} has no docstring"
        general = ("name", "trainable", "dtype")
        declared = [f.name for f in dataclasses.fields(cls) if f.init and f.name not in general]
        assert not declared or "Args:" in docstring, f"{cls.__name__}: no Args"
        for field in declared:
            documented = re.search(rf"\b{field}\b[\w, ]*:", _argument_text(cls))
            assert documented, f"{cls.__name__}: {field} is not documented"
