"""`MixtureOfExperts`: roles, masks, losses in training, arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.tree.axes import weight_axis_roles
from fkeras.nn import experts

KEY = jax.random.key(0)


@pytest.mark.exhaustive
def test_kernels_have_roles_and_scales_of_one_expert():
    layer = layers.MixtureOfExperts(16, 24).build(KEY, (None, 8))
    assert weight_axis_roles(layer) == {
        "router_kernel": (None, "experts"),
        "gate_kernel": ("experts", None, "hidden"),
        "up_kernel": ("experts", None, "hidden"),
        "down_kernel": ("experts", "hidden", None),
    }
    # glorot_uniform of a kernel (8, 24), without the number of experts
    assert 0.95 * np.sqrt(6 / 32) < float(jnp.max(layer.gate_kernel)) <= np.sqrt(6 / 32)
    assert not np.array_equal(layer.gate_kernel[0], layer.gate_kernel[1])


@pytest.mark.exhaustive
def test_the_loss_counts_tokens_of_the_mask_only():
    layer = layers.MixtureOfExperts(3, 4, load_balancing=0.5).build(KEY, (None, None, 6))
    x = jax.random.normal(KEY, (2, 5, 6))
    mask = jnp.arange(5)[None] < jnp.array([[3], [3]])
    out = layer.apply(x, mask=mask)
    np.testing.assert_allclose(out.losses[0], layer.apply(x[:, :3]).losses[0], rtol=1e-5)
    np.testing.assert_array_equal(out.mask, mask)
    assert layers.MixtureOfExperts(3, 4).build(KEY, x).apply(x).losses == ()
    # a row of the batch alone: the mask has fewer axes than the tokens
    images = jax.random.normal(KEY, (2, 5, 3, 6))
    one = layer.apply(images, mask=mask).losses[0]
    np.testing.assert_allclose(one, layer.apply(images[:, :3]).losses[0], rtol=1e-5)


@pytest.mark.exhaustive
def test_training_balances_the_experts():
    x = fk.Input((6,))
    model = fk.Model(x, layers.MixtureOfExperts(4, 3, 1, load_balancing=1.0, name="experts")(x))
    trainer = fk.Trainer(fk.optimizers.SGD(0.5))
    run = trainer.init(model, KEY)
    data = np.random.default_rng(0).normal(size=(64, 6)).astype("float32") + 1

    def largest_share(model):
        logits = data @ model.layers["experts"].router_kernel
        return np.bincount(np.argmax(logits, -1), minlength=4).max() / 64

    before = largest_share(run.model)
    fitted = trainer.fit(run, data, epochs=20, batch_size=64, verbose=0)
    assert largest_share(fitted.run.model) < before - 0.1


@pytest.mark.parametrize("corrected", [False, True])
def test_a_token_chooses_experts_of_the_best_groups(corrected):
    rng = np.random.default_rng(0)
    logits, bias = rng.normal(size=(40, 6)).astype("float32"), rng.normal(size=6) * corrected
    options = {"independent": True, "groups": 3, "top_groups": 2}
    weights, chosen, scores = experts.route(
        logits, 3, True, bias=bias.astype("float32") if corrected else None, **options
    )
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    others = 0
    for token, (score, weight) in enumerate(zip(np.asarray(scores), weights, strict=True)):
        pairs = (score + bias).reshape(3, 2)
        best = pairs.sum(1) if corrected else pairs.max(1)
        kept = np.argsort(best)[1:]
        allowed = np.concatenate([2 * kept, 2 * kept + 1])
        right = allowed[np.argsort(-(score + bias)[allowed])][:3]
        np.testing.assert_array_equal(chosen[token], right)
        np.testing.assert_allclose(weight, score[right] / score[right].sum(), rtol=1e-5)
        others += {*right} != {*np.argsort(-score)[:3]}
    assert others > 5


@pytest.mark.parametrize("mode", [None, pytest.param("int8", marks=pytest.mark.exhaustive)])
def test_the_router_is_float32_with_every_policy(mode):
    layer = layers.MixtureOfExperts(6, 4, 1, router="sigmoid", corrected=True, use_bias=True)
    specs = jax.eval_shape(lambda: layer.build(KEY, (None, 8)))
    rng = np.random.default_rng(0)
    wide = jax.tree.map(lambda w: rng.normal(size=w.shape).astype("float32"), specs)
    # bfloat16 holds only 20 of these numbers, and no logits that differ in the fourth digit
    wide = wide.replace(
        router_bias=np.float32(20 + 1e-3 * rng.normal(size=6)),
        router_kernel=np.float32(0.2 + 1e-3 * rng.normal(size=(8, 6))),
        logit_bias=np.float32(1e-3 * rng.normal(size=6)),
    )
    x = np.abs(rng.normal(size=(24, 8))).astype("bfloat16").astype("float32")

    def error(layer):
        """The largest difference from the outputs in float32, and whether the router is in float32."""
        y = np.float32(jax.jit(lambda layer, x: layer(x))(layer, x))
        router = (layer.router_kernel, layer.router_bias, layer.logit_bias)
        is_wide = {w.dtype.name for w in router} == {"float32"}
        return np.abs(y - expected).max() / np.abs(expected).max(), is_wide

    expected = jax.jit(lambda layer, x: layer(x))(wide, x)
    for dtype in ("bfloat16", "mixed_bfloat16"):
        half = fk.cast(wide, dtype)
        difference, is_wide = error(half if mode is None else fk.quantize(half, mode))
        assert difference < 0.02 and is_wide
    # a cast of all arrays casts the router, too; another expert gives other numbers
    difference, is_wide = error(jax.tree.map(lambda w: w.astype("bfloat16"), wide))
    assert 0.2 < difference and not is_wide


def test_biases_bounds_and_offsets():
    layer = layers.MixtureOfExperts(
        3, 4, 2, use_bias=True, limit=0.6, gate_scale=1.702, up_offset=1.0
    ).build(KEY, (None, 5))
    rng = np.random.default_rng(0)
    names = ("router_kernel", "logit_bias", "gate_kernel", "gate_bias", "up_kernel", "up_bias")
    names = (*names, "down_kernel", "down_bias")
    w = {n: rng.normal(size=getattr(layer, n).shape).astype("float32") for n in names}
    x = rng.normal(size=(4, 5)).astype("float32")
    y = jax.jit(lambda layer, x: layer(x))(layer.replace(**w), x)
    logits = x @ w["router_kernel"] + w["logit_bias"]
    for token, own, result in zip(x, logits, y, strict=True):
        chosen = np.argsort(-own)[:2]
        # a softmax of the chosen logits
        weights = np.exp(own[chosen]) / np.exp(own[chosen]).sum()
        expected = 0
        for e, weight in zip(chosen, weights, strict=True):
            gate = np.minimum(token @ w["gate_kernel"][e] + w["gate_bias"][e], 0.6)
            up = np.clip(token @ w["up_kernel"][e] + w["up_bias"][e], -0.6, 0.6)
            hidden = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
            expected += weight * (hidden @ w["down_kernel"][e] + w["down_bias"][e])
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("weighted_inputs", [False, True])
@pytest.mark.parametrize("use_bias", [False, True])
def test_a_program_for_any_number_of_tokens(use_bias, weighted_inputs):
    options = {"use_bias": use_bias, "weighted_inputs": weighted_inputs, "up_offset": 1.0}
    layer = layers.MixtureOfExperts(5, 3, **options).build(KEY, (None, 6))
    rng = np.random.default_rng(1)
    layer = jax.tree.map(lambda array: rng.normal(size=array.shape).astype("float32"), layer)
    (count,) = jax.export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((count, 6), "float32")
    exported = jax.export.export(jax.jit(lambda x: layer(x)))(spec)
    x = rng.normal(size=(7, 6)).astype("float32")
    np.testing.assert_allclose(exported.call(x), layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.MixtureOfExperts(0, 4), "num_experts.*received 0"),
        (lambda: layers.MixtureOfExperts(2, 4, top_k=3), "top_k of at most num_experts=2.*3"),
        (lambda: layers.MixtureOfExperts(2, 4, load_balancing=-1), "load_balancing.*-1"),
        (lambda: layers.MixtureOfExperts(4, 4, router="top"), "router.*top"),
        (lambda: layers.MixtureOfExperts(4, 4, limit=0), "limit.*above 0.*received 0"),
        (lambda: layers.MixtureOfExperts(4, 4, gate_scale=-1), "gate_scale.*above 0.*-1"),
        (lambda: layers.MixtureOfExperts(4, 4, up_offset="one"), "up_offset.*'one'"),
        (lambda: layers.MixtureOfExperts(4, 4, groups=3), "divisor of num_experts=4.*received 3"),
        (lambda: layers.MixtureOfExperts(4, 4, groups=4, corrected=True), "at least two experts"),
        (lambda: layers.MixtureOfExperts(4, 4, 1, groups=2, top_groups=3), "at most groups=2"),
        (lambda: layers.MixtureOfExperts(4, 4, 3, groups=2), "top_k=3.*1 groups of 2"),
        (lambda: layers.MixtureOfExperts(2, 4).build(KEY, (None, None)), "needs known sizes"),
        (lambda: layers.MixtureOfExperts(2, 4)(np.ones(3, "float32")), "MixtureOfExperts"),
        (
            lambda: layers.MixtureOfExperts(2, 4).build(KEY, (None, 3))(np.ones((2, 4), "float32")),
            "MixtureOfExperts.*3.*4",
        ),
        (
            lambda: (
                layers.MixtureOfExperts(2, 4, load_balancing=1.0, kernel_initializer="zeros")
                .build(KEY, (None, 3))
                .apply(np.ones((2, 3), "float32"), mask=np.ones((2, 3), bool))
            ),
            "expected a mask of shape",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        make()
