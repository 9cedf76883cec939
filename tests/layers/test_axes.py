"""Letters and roles of the axes of weights, checked on each row of the layer table."""

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.call.building import build_shapes
from fkeras.engine.tree.axes import ROLES, UNNAMED, WHOLE, weight_axis_roles, weight_letters
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.layers.quantized.base import Quantized
from tests.cases import all_cases, marked

KEY = jax.random.key(0)
WITH_WEIGHTS = [
    c for c in all_cases() if any(skeleton_of(o).weights for _, o in sublayers(c.layer))
]
EINSUMS = [
    ("abc,cde->abde", (None, 2, 16), "de", {"d": "hidden"}),
    ("abcd,cde->abe", (None, 8), "e", {"c": "hidden"}),
    ("...x,xy->...y", (4,), None, {"x": "hidden"}),
    ("bed,edf->bef", (3, 32), "ef", {"f": "hidden", "e": "experts"}),
]


def _shapes(case):
    # some cells take their state as further inputs, which do not determine the weights
    return build_shapes(case.layer, *case.arrays())[0]


def _sizes(owner):
    """Returns the size of each letter of a layer's own weights."""
    skeleton, arrays = skeleton_of(owner), leaves_of(owner)
    sizes = {}
    pairs = list(zip(skeleton.weights, arrays, strict=False))
    for name, array in sorted(pairs, key=lambda pair: pair[0] in owner.axis_names.units):
        if array is None:
            continue
        letters = weight_letters(owner)[name]
        assert len(letters) == array.ndim, f"{name}: {letters} for {array.shape}"
        named = [n for n in letters if n != UNNAMED]
        assert len(set(named)) == len(named)
        # packed codes count whole units, of which an axis of the float weights has a multiple
        units = owner.axis_names.units.get(name)
        for letter, size in zip(letters, array.shape if units is None else units, strict=True):
            if letter == UNNAMED:
                continue
            known = sizes.setdefault(letter, size)
            if units is None:
                assert known == size, f"{letter!r} has two sizes"
            assert known % size == 0, f"{letter!r} has {size} units of {known}"
    return sizes


@pytest.mark.one_a_class(family=True)
@pytest.mark.parametrize("case", marked(WITH_WEIGHTS), ids=lambda case: case.id)
def test_every_weight_has_a_letter_for_each_axis(case):
    built = _shapes(case)
    for path, owner in sublayers(built):
        if not skeleton_of(owner).weights:
            continue
        sizes = _sizes(owner)
        # a class with weights states its roles, also that there are none
        stating = [c for c in type(owner).__mro__ if "axis_names" in c.__dict__]
        assert stating[0] is not fk.Layer, f"{type(owner).__name__} states no axis_names"
        # packed codes have no letters, and their layer has the roles of the float layer
        if not isinstance(owner, Quantized):
            assert set(owner.axis_names.roles) <= set(sizes), (
                f"{path}: {dict(owner.axis_names.roles)}"
            )
        assert set(owner.axis_names.roles.values()) <= {*ROLES, WHOLE}
    assert set(weight_axis_roles(built)) == {
        n for n, a in zip(skeleton_of(built).names, leaves_of(built), strict=True) if a is not None
    }


@pytest.mark.one_a_class(family=True)
@pytest.mark.parametrize(
    "case", marked(c for c in WITH_WEIGHTS if c.layer.axis_names.output), ids=lambda case: case.id
)
def test_letters_of_outputs_are_those_of_weights(case):
    built, state = build_shapes(case.layer, *case.arrays(), state=True)
    out = jax.eval_shape(
        lambda layer, state: layer.apply(*case.arrays(), state=state, key=KEY, **case.options),
        built,
        state,
    )
    before, dots, after = built.axis_names.output.partition("...")
    for value in [out.value] if hasattr(out.value, "shape") else []:
        assert len(before + after) <= value.ndim if dots else len(before) == value.ndim
        shape = value.shape
        pairs = [*zip(before, shape, strict=False), *zip(after[::-1], shape[::-1], strict=False)]
        sizes = _sizes(built)
        assert all(sizes.get(letter, size) == size for letter, size in pairs)


@pytest.mark.parametrize(("equation", "shape", "bias", "roles"), EINSUMS)
def test_einsum_dense_takes_letters_from_its_equation(equation, shape, bias, roles):
    layer = layers.EinsumDense(equation, shape, bias_axes=bias)
    inputs = equation.partition(",")[0].replace("...", "ab")
    sizes = {"a": 2, "b": 2, "c": 4, "d": 8, "e": 3, "x": 8}
    built = build_shapes(layer, tuple(sizes[n] for n in inputs))[0]
    assert weight_letters(built)["kernel"] == equation.partition(",")[2].partition("->")[0]
    assert weight_letters(built).get("bias") == bias
    assert dict(built.axis_names.roles) == roles


def test_projections_of_attention_have_the_letters_of_attention():
    x = jnp.ones((2, 3, 8))
    roles = weight_axis_roles(layers.GroupQueryAttention(2, 4, 2).build(KEY, x, x))
    assert roles["query_dense/kernel"] == (None, "heads", None)
    assert roles["key_dense/kernel"] == (None, "kv_heads", None)
    assert roles["value_dense/bias"] == ("kv_heads", None)
    assert roles["output_dense/kernel"] == ("heads", None, None)
    quantized = layers.MultiHeadAttention(2, 4, quantization="int8").build(KEY, x, x)
    assert weight_axis_roles(quantized)["query_dense/kernel"] == (None, "heads", None)


@pytest.mark.parametrize(
    ("layer", "letter"),
    [
        (layers.Dense(16), "o"),
        (layers.Dense(4), "i"),
        (layers.Dense(8), "o"),
        (layers.Conv1D(4, 3), "i"),
        (layers.Conv1DTranspose(4, 3), "i"),
        (layers.SeparableConv1D(16, 3), "o"),
    ],
    ids=str,
)
def test_the_wider_axis_of_a_kernel_is_hidden(layer, letter):
    roles = build_shapes(layer, (2, 5, 8))[0].axis_names.roles
    assert {n: role for n, role in roles.items() if role != WHOLE} == {letter: "hidden"}


def test_no_rule_splits_the_kernels_of_grouped_convolutions():
    for layer in (layers.Conv1D(4, 3, groups=4), layers.DepthwiseConv1D(3)):
        roles = weight_axis_roles(build_shapes(layer, (2, 5, 8))[0])
        assert roles["kernel"] == (None, WHOLE, WHOLE)


class Scale(fk.Layer):
    factor: jax.Array = fk.weight(axes="dk", initializer=jax.nn.initializers.ones)

    def build(self, key, x):
        return self.with_weights(key, factor=x.shape[-1:])


def test_wrong_letters_are_reported():
    wrong_axes: tuple = ("ii", "i o", 3)
    for axes in wrong_axes:
        with pytest.raises(ValueError, match="a different letter for each axis"):
            fk.weight(axes=axes)
    with pytest.raises(
        ValueError, match=r"'factor' declares the axes 'dk', and received .* \(3,\)"
    ):
        Scale().build(KEY, (None, 3))
    with pytest.raises(ValueError, match="received 2 letters for an array of shape"):
        weight_axis_roles(Scale().replace(factor=jnp.ones(3)))
