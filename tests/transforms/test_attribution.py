"""Saliency, integrated gradients and Grad-CAM beside their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms

RNG = np.random.default_rng(0)
PICTURES = RNG.normal(size=(3, 6, 6, 2)).astype("float32")


def _classifier(last="softmax"):
    x = fk.Input((6, 6, 2))
    maps = layers.Conv2D(4, 3, activation="relu", name="maps")(x)
    # the maps reach the head on two ways: no cut separates the model there
    ways = layers.Add()([maps, layers.Conv2D(4, 1, name="second")(maps)])
    y = layers.GlobalAveragePooling2D()(ways)
    return fk.Model(x, layers.Dense(3, last, name="head")(y)).build(jax.random.key(0))


MODEL = _classifier()
LOGITS = _classifier(None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("targets", [None, [2, 0, 1], 1, lambda y: jnp.log(y[:, 0])])
def test_saliency_is_the_gradient_of_the_logit(targets):
    def score(picture, number):
        y = (MODEL if callable(targets) else LOGITS)(picture[None])
        return targets(y)[0] if callable(targets) else y[0, number]

    numbers = LOGITS(PICTURES).argmax(-1) if targets is None or callable(targets) else targets
    expected = jax.jit(jax.vmap(jax.grad(score)))(PICTURES, np.broadcast_to(numbers, (3,)))
    found = transforms.saliency(MODEL, PICTURES, targets)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.exhaustive
def test_transformations_of_jax_apply():
    expected = transforms.saliency(MODEL, PICTURES, [2, 0, 1])
    found = jax.jit(transforms.saliency)(MODEL, PICTURES, np.array([2, 0, 1]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    each = jax.vmap(lambda x, n: transforms.saliency(MODEL, x[None], n[None]))
    found = each(PICTURES, np.array([2, 0, 1]))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_one_output_and_pictures_of_integers():
    inputs = fk.Input((3,))
    model = fk.Model(inputs, layers.Dense(1, "sigmoid")(inputs)).build(jax.random.key(0))
    kernel = model.layers["dense"].kernel[:, 0]
    x = np.ones((2, 3), "uint8")
    np.testing.assert_allclose(transforms.saliency(model, x), [kernel, kernel], rtol=1e-6)
    np.testing.assert_allclose(transforms.saliency(model, x, [1, 0]), [kernel, -kernel], rtol=1e-6)


def test_ids_have_the_gradient_of_a_layer():
    ids = fk.Input((4,), dtype="int32")
    embedded = layers.Embedding(9, 5, name="embedding")(ids)
    outputs = layers.Dense(2, name="head")(layers.GlobalAveragePooling1D()(embedded))
    model = fk.Model(ids, outputs).build(jax.random.key(0))
    found = transforms.saliency(model, np.array([[1, 2, 3, 4]]), [1], layer="embedding")
    expected = np.broadcast_to(model.layers["head"].kernel[:, 1] / 4, (1, 4, 5))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(TypeError, match="a model of integers"):
        transforms.saliency(model, np.array([[1, 2, 3, 4]]))


@pytest.mark.exhaustive
def test_shares_of_the_inputs_sum_up_to_the_difference_of_the_outputs():
    shares = transforms.integrated_gradients(MODEL, PICTURES, steps=200)
    best = LOGITS(PICTURES).argmax(-1)
    rows = np.arange(3)
    difference = LOGITS(PICTURES)[rows, best] - LOGITS(0 * PICTURES)[rows, best]
    np.testing.assert_allclose(shares.sum((1, 2, 3)), difference, rtol=1e-2)
    same = transforms.integrated_gradients(MODEL, PICTURES, baseline=PICTURES)
    np.testing.assert_array_equal(same, 0 * PICTURES)


def test_grad_cam_weighs_maps_by_the_mean_of_their_gradients():
    found = transforms.grad_cam(MODEL, PICTURES, 2, layer="maps", resize=False)
    _, values = transforms.probe(LOGITS, "maps")(PICTURES)
    maps = values["maps_ib-0"]

    def tail(maps):
        second = LOGITS.layers["second"](maps)
        return LOGITS.layers["head"]((maps + second).mean((1, 2)))[:, 2].sum()

    gradients = np.asarray(jax.jit(jax.grad(tail))(maps))
    weights = gradients.mean((1, 2), keepdims=True)
    expected = np.maximum((np.asarray(maps) * weights).sum(-1), 0)
    assert expected.max() > 0
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-7)
    whole = transforms.grad_cam(MODEL, PICTURES, 2, layer="maps")
    np.testing.assert_allclose(whole, jax.image.resize(found, (3, 6, 6), "linear"), rtol=1e-5)
    # by default the last value with positions, here the sum
    last = transforms.grad_cam(MODEL, PICTURES, 2)
    np.testing.assert_allclose(
        last, transforms.grad_cam(MODEL, PICTURES, 2, layer="add"), rtol=1e-6
    )


@pytest.mark.exhaustive
def test_states_nested_models_and_shared_layers():
    body = fk.Sequential(
        [fk.Input((6, 6, 2)), layers.Conv2D(3, 3, name="conv"), layers.BatchNormalization()],
        name="body",
    )
    inputs = fk.Input((6, 6, 2))
    head = layers.Dense(2, name="head")
    model = fk.Model(inputs, head(layers.GlobalAveragePooling2D()(body(inputs))))
    model = model.build(jax.random.key(0))
    state = jax.tree.map(lambda a: a + 1.0, model.init_state())
    by_default = transforms.grad_cam(model, PICTURES, [0, 1, 0], state=state)
    named = transforms.grad_cam(
        model, PICTURES, [0, 1, 0], layer="body/batch_normalization", state=state
    )
    np.testing.assert_allclose(by_default, named, rtol=1e-5, atol=1e-7)
    other = transforms.grad_cam(model, PICTURES, [0, 1, 0], state=model.init_state())
    assert not np.allclose(by_default, other)
    with pytest.raises(ValueError, match="state"):
        transforms.saliency(model, PICTURES)
    tower = layers.Dense(3, name="tower")
    a, b = fk.Input((4,), name="a"), fk.Input((4,), name="b")
    pair = fk.Model([a, b], layers.Dense(2)(layers.Add()([tower(a), tower(b)])))
    pair = pair.build(jax.random.key(0))
    x = [np.ones((1, 4), "float32")] * 2
    both = transforms.saliency(pair, x, 0)
    assert [array.shape for array in both] == [(1, 4), (1, 4)]
    with pytest.raises(ValueError, match="expected one call, received tower_ib-0, tower_ib-1"):
        transforms.saliency(pair, x, 0, layer="tower")
    assert transforms.saliency(pair, x, 0, layer=("tower", 1)).shape == (1, 3)
    with pytest.raises(TypeError, match="expected one array"):
        transforms.integrated_gradients(pair, x)


_DENSE = fk.Sequential([fk.Input((3,)), layers.Dense(2)]).build(jax.random.key(0))
_ROWS = np.ones((2, 3), "float32")
_BAD = {
    "no model": (lambda: transforms.saliency(_ROWS, _DENSE), TypeError, "expected a model"),
    "no batch": (lambda: transforms.saliency(_DENSE, 3.0), ValueError, "with a batch axis"),
    "one row": (lambda: transforms.saliency(_DENSE, _ROWS[0]), ValueError, "batch axis"),
    "range": (lambda: transforms.saliency(_DENSE, _ROWS, [0, 2]), ValueError, "from 0 to 1.*2"),
    "negative": (lambda: transforms.saliency(_DENSE, _ROWS, -1), ValueError, "received -1"),
    "one-hot": (lambda: transforms.saliency(_DENSE, _ROWS, np.eye(2)), ValueError, "class numbers"),
    "count": (lambda: transforms.saliency(_DENSE, _ROWS, [0, 1, 1]), ValueError, r"shape \(2,\)"),
    "function": (
        lambda: transforms.saliency(_DENSE, _ROWS, lambda y: y.sum()),
        ValueError,
        "a number for each row",
    ),
    "outputs": (
        lambda: transforms.saliency(fk.Model(MODEL.inputs, MODEL.tensor("maps")), PICTURES),
        ValueError,
        "a function of the outputs",
    ),
    "steps": (
        lambda: transforms.integrated_gradients(_DENSE, _ROWS, steps=0),
        ValueError,
        "steps: expected",
    ),
    "baseline": (
        lambda: transforms.integrated_gradients(_DENSE, _ROWS, baseline=np.ones(4)),
        ValueError,
        "baseline",
    ),
    "layers": (
        lambda: transforms.saliency(_DENSE, _ROWS, layer=["dense"]),
        ValueError,
        "layer: expected a selector of one call",
    ),
    "no maps": (lambda: transforms.grad_cam(_DENSE, _ROWS), ValueError, "feature maps"),
    "a vector": (
        lambda: transforms.grad_cam(MODEL, PICTURES, layer="head"),
        ValueError,
        r"received the shape \(3, 3\)",
    ),
    "a name": (
        lambda: transforms.grad_cam(MODEL, PICTURES, layer="map"),
        ValueError,
        "Did you mean 'maps'",
    ),
    "not built": (
        lambda: transforms.saliency(fk.Sequential([fk.Input((3,)), layers.Dense(2)]), _ROWS),
        Exception,
        "build",
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", _BAD)
def test_mistakes_are_explained(case):
    call, error, message = _BAD[case]
    with pytest.raises(error, match=message):
        call()
