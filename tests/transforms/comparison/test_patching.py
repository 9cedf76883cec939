"""Patches: bases, conflicts, and what stays the same array."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.transforms import ConflictError


def model(seed=0, units=3, name="head"):
    x = fk.Input((4,), name="x")
    body = layers.Dense(units, name="body")(x)
    return fk.Model(x, layers.Dense(2, name=name)(body)).build(jax.random.key(seed))


def changed(model, name, **fields):
    return model.replace(layers={**model.layers, name: model.layers[name].replace(**fields)})


BASE = model()
BIAS = changed(BASE, "body", bias=jnp.ones(3))
HEAD = changed(BASE, "head", kernel=jnp.ones((3, 2)))
FROZEN = fk.freeze(BASE, "head")


def test_a_patch_keeps_the_arrays_that_do_not_change():
    patch = transforms.diff(BASE, BIAS)
    assert list(patch.after) == list(patch.before) == ["body/bias"]
    result = transforms.apply(BASE, patch)
    assert result.layers["body"].kernel is BASE.layers["body"].kernel
    assert BASE == model()
    renamed = fk.rename(BASE, {"head": "top"})
    patch = transforms.diff(BASE, renamed)
    assert not patch.after
    assert transforms.apply(BASE, patch).layers["top"].kernel is BASE.layers["head"].kernel


def test_patches_of_one_base_combine_in_any_order():
    patches = [transforms.diff(BASE, other) for other in (BIAS, HEAD, FROZEN)]
    expected = fk.freeze(changed(BIAS, "head", kernel=jnp.ones((3, 2))), "head")
    for order in (patches, patches[::-1]):
        result = transforms.apply(BASE, *order)
        assert result == expected
        assert transforms.revert(result, *order) == BASE
    with pytest.raises(ConflictError, match="has other values than in the result of the patch"):
        transforms.revert(HEAD, *patches[:2])


def test_combined_patches_may_change_dtypes_and_names():
    half = changed(BASE, "body", kernel=BASE.layers["body"].kernel.astype("bfloat16"))
    patches = transforms.diff(BASE, half), transforms.diff(BASE, fk.rename(BASE, {"body": "b"}))
    result = transforms.apply(BASE, *patches)
    renamed = fk.rename(BASE, {"body": "b"})
    assert result == changed(renamed, "b", kernel=half.layers["body"].kernel)
    assert transforms.revert(result, *patches) == BASE
    with pytest.raises(fk.FKerasError, match="conflict: 'b/kernel'"):
        transforms.revert(HEAD, *patches)


def test_a_chain_of_patches_is_applied_one_after_the_other():
    first, second = transforms.diff(BASE, BIAS), transforms.diff(BIAS, FROZEN)
    assert transforms.apply(transforms.apply(BASE, first), second) == FROZEN
    with pytest.raises(fk.FKerasError, match="expected patches of one base"):
        transforms.apply(BASE, first, second)


def test_two_patches_on_one_weight_are_a_conflict():
    patch = transforms.diff(BASE, BIAS)
    other = transforms.diff(BASE, changed(BASE, "body", bias=jnp.full(3, 2.0)))
    with pytest.raises(
        ConflictError, match="patch 2: conflict: two patches change 'body/bias'"
    ) as e:
        transforms.apply(BASE, patch, other)
    assert e.value.paths == ("body/bias",)
    assert pickle.loads(pickle.dumps(e.value)).paths == e.value.paths
    # one after the other: the second patch does not find its base
    with pytest.raises(
        ConflictError, match="'body/bias', which the patch changes, has other values"
    ):
        transforms.apply(BIAS, other)
    with pytest.raises(ConflictError, match="two patches change 'body/bias'"):
        transforms.apply(BASE, patch, patch)


def test_a_structure_that_drops_or_renames_a_patched_weight():
    rename = transforms.diff(BASE, fk.rename(BASE, {"body": "trunk"}))
    bias = transforms.diff(BASE, BIAS)
    assert transforms.apply(BASE, rename, bias) == fk.rename(BIAS, {"body": "trunk"})
    wider = transforms.diff(BASE, model(units=5))
    with pytest.raises(ConflictError, match="two patches change 'body/bias'"):
        transforms.apply(BASE, bias, wider)
    with pytest.raises(ConflictError, match="two patches change layers, configuration or graph"):
        transforms.apply(BASE, rename, transforms.diff(BASE, FROZEN))


def test_other_bases_are_refused():
    patch = transforms.diff(BASE, BIAS)
    with pytest.raises(fk.FKerasError, match="received a model with other weights"):
        transforms.apply(HEAD, patch)
    with pytest.raises(fk.FKerasError, match="other layers, configuration or shapes of weights"):
        transforms.apply(FROZEN, patch)
    with pytest.raises(fk.FKerasError, match=r"this was done\s+already"):
        transforms.apply(BIAS, patch)
    with pytest.raises(fk.FKerasError, match=r"this was done\s+already"):
        transforms.revert(BASE, patch)
    with pytest.raises(fk.FKerasError, match="conflict: 'body/kernel', 'head/kernel'"):
        transforms.revert(BASE, transforms.diff(model(1), model(2)))


@pytest.mark.exhaustive
def test_bad_arguments():
    patch = transforms.diff(BASE, BIAS)
    with pytest.raises(TypeError, match="expected a layer or model, received Difference"):
        transforms.apply(patch, BASE)
    with pytest.raises(TypeError, match="expected a patch, received Model"):
        transforms.apply(BASE, BIAS)
    with pytest.raises(TypeError, match="expected at least one patch"):
        transforms.revert(BASE)
    donated = jax.tree.map(jnp.copy, BASE)
    jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m), donate_argnums=0)(donated)
    with pytest.raises(RuntimeError, match="donated"):
        transforms.diff(donated, BASE)
    with pytest.raises(ValueError, match=r"transforms\.diff: expected arrays with values"):
        transforms.diff(jax.eval_shape(lambda m: m, BASE), BASE)


def test_a_patch_outlives_donated_arrays_and_pickles():
    a, b = (jax.tree.map(jnp.copy, m) for m in (BASE, BIAS))
    patch = transforms.diff(a, b)
    jax.jit(lambda m: jax.tree.map(lambda a: a + 1, m), donate_argnums=0)(b)
    assert transforms.apply(a, patch) == BIAS
    again = pickle.loads(pickle.dumps(patch))
    assert again == patch
    assert hash(again) == hash(patch)
    assert transforms.apply(a, again) == BIAS
    assert patch != transforms.diff(a, HEAD)
    assert patch != 3


def test_a_changed_weight_keeps_the_devices_of_the_old_one():
    mesh = jax.make_mesh((2,), ("a",), devices=jax.devices()[:2])
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("a"))
    split = changed(BASE, "body", kernel=jax.device_put(BASE.layers["body"].kernel, rows))
    patch = transforms.diff(BASE, changed(BASE, "body", kernel=jnp.ones((4, 3))))
    assert transforms.apply(split, patch).layers["body"].kernel.sharding == rows
    host = jax.tree.map(np.asarray, BASE)
    assert isinstance(transforms.apply(host, patch).layers["body"].kernel, np.ndarray)
