"""Mixtures of experts with quantized kernels: values, gradients, memory and roles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.tree.axes import weight_axis_roles, weight_units

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
# the sizes divide neither into bytes nor into blocks
OPTIONS = {
    "plain": {},
    "biases": {"use_bias": True, "limit": 0.7, "gate_scale": 1.7, "up_offset": 1.0},
    "groups": {"router": "sigmoid", "corrected": True, "groups": 3, "top_groups": 2},
    "weighted": {"weighted_inputs": True},
}


def _layer(**options):
    layer = layers.MixtureOfExperts(6, 5, **options).build(KEY, (None, 7))
    layer = jax.tree.map(lambda w: RNG.normal(size=w.shape).astype("float32"), layer)
    # with a scale for several experts, the large numbers would cost the others their digits
    names = ("gate_kernel", "up_kernel", "down_kernel")
    sizes = np.logspace(-2, 0, 6, dtype="float32")[:, None, None]
    return layer.replace(**{name: getattr(layer, name) * sizes for name in names})


@pytest.mark.parametrize(
    ("mode", "name", "counts"),
    [
        ("int8", "biases", (9,)),
        ("int4/3", "plain", (2, 9)),
        *(
            pytest.param(mode, name, (2, 9), marks=pytest.mark.exhaustive)
            for mode in ("int8", "int4", "int4/-1", "int4/3")
            for name in OPTIONS
        ),
    ],
)
def test_numbers_are_those_of_the_dequantized_layer(mode, name, counts):
    layer = _layer(**OPTIONS[name])
    coded = fk.quantize(layer, mode)
    floats = fk.dequantize(coded)
    for kernel in coded.separate:
        own, back = (np.asarray(getattr(layer, kernel)) for layer in (layer, floats))
        step = np.abs(own).max(axis=1, keepdims=True) / (127 if mode == "int8" else 7)
        assert (np.abs(own - back) <= 1.01 * step).all()
        assert getattr(coded, kernel).dtype == "int8"

    # few rows gather the kernels in use, many are sorted by expert
    @jax.jit
    def compute(layer, *tokens):
        def score(x):
            y = layer(x)
            return jnp.sum(jnp.sin(y)), y

        return [jax.grad(score, has_aux=True)(x) for x in tokens]

    tokens = [RNG.normal(size=(count, 7)).astype("float32") for count in counts]
    pairs = zip(*map(jax.tree.leaves, (compute(coded, *tokens), compute(floats, *tokens))))
    for actual, expected in pairs:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["int8", "int4/3"])
def test_a_program_for_any_number_of_tokens(mode):
    coded = fk.quantize(_layer(use_bias=True), mode)
    (count,) = jax.export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((count, 7), "float32")
    exported = jax.export.export(jax.jit(lambda x: coded(x)))(spec)
    x = RNG.normal(size=(9, 7)).astype("float32")
    np.testing.assert_allclose(exported.call(x), coded(x), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other platforms decode all experts")
@pytest.mark.parametrize("rows", [8, 40])
@pytest.mark.parametrize("mode", ["int8", pytest.param("int4", marks=pytest.mark.exhaustive)])
def test_no_program_holds_the_floats_of_all_experts(mode, rows):
    layer = layers.MixtureOfExperts(16, 128, 1)
    layer = jax.eval_shape(lambda: fk.quantize(layer.build(KEY, (None, 128)), mode))
    x = jax.ShapeDtypeStruct((rows, 128), "float32")
    memory = jax.jit(lambda layer, x: layer(x)).lower(layer, x).compile().memory_analysis()
    assert memory is not None
    # the codes of the chosen experts, and the floats of one or two
    limit = 3 * 16 * 128**2 + 2 * 4 * 128**2
    assert memory.temp_size_in_bytes < limit < 3 * 4 * 16 * 128**2


def test_codes_have_the_roles_and_units_of_the_floats():
    letters = {None: "_", "experts": "e", "hidden": "f"}
    for mode, hidden, expected in (
        ("int8", 5, {"gate_kernel": ("e_f", None), "down_kernel_scale": ("e_", None)}),
        ("int4/3", 5, {"up_kernel": ("e_f", (6, 7, 1)), "up_kernel_zero": ("e_f", None)}),
        ("int4/-1", 8, {"gate_kernel": ("e_f", (6, 7, 4)), "down_kernel": ("ef_", (6, 8, 1))}),
    ):
        layer = layers.MixtureOfExperts(6, hidden).build(KEY, (None, 7))
        coded = fk.quantize(layer, mode)
        roles, units = weight_axis_roles(coded), weight_units(coded)
        for name, (text, sizes) in expected.items():
            own = "".join(letters[role] for role in roles[name])
            assert own == (text if len(roles[name]) == len(text) else "e_f")
            assert sizes is None or units[name] == sizes


def test_trained_weights_and_refused_adapters():
    x = fk.Input((7,))
    layer = layers.MixtureOfExperts(6, 5, use_bias=True, name="experts")
    model = fk.quantize(fk.Model(x, layer(x)).build(KEY), "int4")
    names = {name.removeprefix("experts/") for name in fk.engine.trainable_weights(model)}
    biases = {"logit_bias", "gate_bias", "up_bias", "down_bias"}
    assert names == {"router_kernel", *biases}
    with pytest.raises(ValueError, match="'experts' cannot be adapted"):
        fk.transforms.adapt(model, "experts", fk.transforms.LoRA(2), KEY)
