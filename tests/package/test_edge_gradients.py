"""Gradients at kinks, domain limits and overflows: finite wherever the value is finite."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import activations, constraints, layers, losses, metrics, ops, regularizers
from tests.cases import all_cases
from tests.ops.table import ROWS
from tests.support.edge_fillings import VALUES, is_float, nan_slopes

INF = np.inf
FILLED = np.stack([np.full((3, 4), value, "float32") for value in VALUES])
KEY = jax.random.key(0)
TARGETS = {
    "zeros": np.zeros((3, 4), "float32"),
    "ones": np.ones((3, 4), "float32"),
    "one_hot": np.eye(3, 4, dtype="float32"),
    "large": np.full((3, 4), 1e4, "float32"),
    "huge": np.full((3, 4), 1e30, "float32"),
}
# the exact gradient exceeds the range of float32
OVERFLOWS = {
    (f"{name}-{targets}", float(np.float32(v)))
    for name in ("CategoricalCrossentropy", "CategoricalFocalCrossentropy", "DiceCrossentropy")
    for targets in ("large", "huge")
    for v in (1e-30, -1e-30)
}
# these take class numbers, or are compared elsewhere
OTHER_LOSSES = (
    *("Loss", "LossFunctionWrapper", "CTC", "Circle", "SparseCategoricalCrossentropy"),
    *("CategoricalGeneralizedCrossEntropy", "CRPS", "GaussianNLL", "InfoNCE", "StudentTNLL"),
)

# rows of the table of operations that have no gradient, and the reasons
SINGULAR = "factors of singular matrices, and of those with equal values, have no derivative"
OVERFLOWING = "the inverse of 1e-30 squared overflows, and is multiplied with 0"
UNSUPPORTED = "JAX defines no derivative in reverse mode"
OPERATION_EXCEPTIONS = {
    **dict.fromkeys(("eigh", "lstsq", "lu_factor", "qr", "qr-complete", "svd-thin"), SINGULAR),
    **dict.fromkeys(("pinv", "solve_triangular"), OVERFLOWING),
    **dict.fromkeys(("nextafter", "eig", "svd", "segment_prod"), UNSUPPORTED),
    **dict.fromkeys(("while_loop", "while_loop-most", "scatter_update-mul"), UNSUPPORTED),
    "convert_to_numpy": "leaves JAX",
    "ctc_decode-beam": "chooses paths: the choice has no derivative",
}
# fillings of layers whose finite value has overflowing intermediates, or whose
# gradient multiplies overflowing numbers with 0: steps of recurrences, scores of attention,
# the gated product of experts, the variance of large sums
HUGE = ("1e+30", "-1e+30")
LARGE = (*HUGE, "10000", "-10000")
LAYER_EXCEPTIONS = {
    **dict.fromkeys(("AdditiveAttention", "Attention", "ConvLSTM2D", "GRU", "GRUCell"), HUGE),
    **dict.fromkeys(("GroupQueryAttention", "SimpleRNN", "StackedRNNCells"), HUGE),
    **dict.fromkeys(("LSTM", "MultiHeadAttention"), LARGE),
    **dict.fromkeys(("MixtureOfExperts", "QuantizedMixtureOfExperts", "TransformerDecoder"), HUGE),
}
LAYER_PARTS = 12


def functions_of_ops():
    names = (
        *("sqrt", "cbrt", "arccos", "arcsin", "arccosh", "arctan", "sinc", "absolute", "exp"),
        *("log1p", "sigmoid", "softplus", "softmax", "log_softmax", "logsumexp", "std", "var"),
        *(
            "nanstd",
            "norm",
            "normalize",
            "tanh",
            "max",
            "min",
            "sort",
            "median",
            "cumprod",
        ),
    )
    functions = {name: getattr(ops, name) for name in names}
    functions |= {f"std-{axis}": functools.partial(ops.std, axis=axis) for axis in (0, 1, (0, 1))}
    functions |= {
        f"norm-{order}": functools.partial(ops.norm, ord=order, axis=1)
        for order in (1, 2, 3, np.inf)
    }
    functions["arctan2"] = lambda x: ops.arctan2(x, x)
    functions["hypot"] = lambda x: ops.hypot(x, x)
    functions["divide_no_nan"] = lambda x: ops.divide_no_nan(jnp.ones_like(x), x * 0)
    functions["cdist"] = lambda x: ops.cdist(x, x)
    return functions


def functions_of_layers():
    spec = jax.ShapeDtypeStruct((3, 4), "float32")
    layer_objects = (
        *(layers.LayerNormalization(), layers.RMSNormalization(), layers.UnitNormalization()),
        *(layers.GroupNormalization(2), layers.Softmax(), layers.LeakyReLU(), layers.PReLU()),
        *(layers.ELU(), layers.ReLU(negative_slope=0.1)),
    )
    functions = {type(layer).__name__: layer.build(KEY, spec) for layer in layer_objects}
    norm = layers.BatchNormalization().build(KEY, spec)
    state = norm.init_state(spec)
    functions["BatchNormalization"] = lambda x: norm.apply(x, state=state, training=True).value
    functions["Dot"] = lambda x: layers.Dot(1, normalize=True)([x, x])
    functions["GlobalMaxPooling1D"] = lambda x: layers.GlobalMaxPooling1D()(x[..., None])
    return functions


def functions_of_activations():
    names = [n for n in activations.__all__ if n not in ("get", "serialize", "deserialize")]
    functions = {n: getattr(activations, n) for n in names if n != "threshold"}
    functions = {n: f for n, f in functions.items() if callable(f) and not isinstance(f, type)}
    return functions | {"gelu-tanh": lambda x: activations.gelu(x, approximate=True)}


def functions_of_losses():
    names = [
        name
        for name, cls in vars(losses).items()
        if isinstance(cls, type) and issubclass(cls, losses.Loss) and name not in OTHER_LOSSES
    ]

    def of(loss, y):
        return lambda x: loss(y, x)

    return {
        f"{name}-{kind}": of(getattr(losses, name)(reduction=None), y)
        for name in names
        for kind, y in TARGETS.items()
    }


def functions_of_metrics():
    names = ("PearsonCorrelation", "ConcordanceCorrelation", "RootMeanSquaredError", "R2Score")

    def of(metric, y):
        return lambda x: metric.result(metric.update(metric.init(x), y, x))

    functions = {
        f"{name}-{kind}": of(getattr(metrics, name)(), y)
        for name in (*names, "CosineSimilarity")
        for kind, y in TARGETS.items()
    }
    functions |= {n: getattr(constraints, n)() for n in ("MaxNorm", "UnitNorm", "MinMaxNorm")}
    return functions | {
        n: getattr(regularizers, n)(0.1) for n in ("L1", "L2", "OrthogonalRegularizer")
    }


GROUPS = {
    "ops": functions_of_ops,
    "layers": functions_of_layers,
    "activations": functions_of_activations,
    "losses": functions_of_losses,
    "metrics": functions_of_metrics,
}


def value_and_slope(function, x):
    y, pull = jax.vjp(function, x)
    y = y.astype("float32") if y.dtype == bool else y
    return y, pull(jnp.where(jnp.isfinite(y), 1, 0).astype(y.dtype))[0]


def check(functions, inputs, values):
    @jax.jit
    def every(inputs):
        return {
            name: jax.vmap(functools.partial(value_and_slope, function))(inputs)
            for name, function in functions.items()
        }

    for name, (y, slope) in jax.device_get(every(inputs)).items():
        for index, value in enumerate(values):
            if np.isfinite(y[index]).all() and (name, float(value)) not in OVERFLOWS:
                assert np.isfinite(slope[index]).all(), (name, value)


def quick(functions):
    """Every function at the most error-prone values, in one program."""
    return functions, FILLED[[0, 1, 9, 10]], VALUES[[0, 1, 9, 10]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", ["ops", "activations"])
def test_finite_values_have_finite_gradients(group):
    check(*quick(GROUPS[group]()))


@pytest.mark.exhaustive
@pytest.mark.parametrize("group", GROUPS)
def test_finite_values_have_finite_gradients_everywhere(group):
    check(GROUPS[group](), FILLED, VALUES)


@pytest.mark.exhaustive
def test_gradients_equal_those_of_jax_inside_the_domain():
    x = jnp.array([[0.3, 0.7, 0.2], [0.9, 0.1, 0.5]])
    pairs = {
        "std": (lambda x: ops.std(x, axis=1), lambda x: jnp.std(x, axis=1)),
        "nanstd": (ops.nanstd, jnp.std),
        "sqrt": (ops.sqrt, jnp.sqrt),
        "arccos": (ops.arccos, jnp.arccos),
        "cbrt": (ops.cbrt, jnp.cbrt),
        "norm": (lambda x: ops.norm(x, 3, 1), lambda x: jnp.linalg.norm(x, 3, 1)),
        "arctan2": (lambda x: ops.arctan2(x, x[0]), lambda x: jnp.arctan2(x, x[:1])),
    }

    @jax.jit
    def compute(x):
        results = {}
        with jax.numpy_rank_promotion("allow"):
            for name, both in pairs.items():
                results[name] = [
                    (f(x), jax.grad(lambda v, f=f: f(v).sum())(x), jax.jvp(f, (x,), (x,))[1])
                    for f in both
                ]
        return results

    for name, (results_here, results_jax) in compute(x).items():
        for value, other in zip(results_here, results_jax, strict=True):
            np.testing.assert_allclose(value, other, 1e-5, 1e-6, err_msg=name)
    twice = jax.grad(lambda v: jax.grad(ops.sqrt)(v))(4.0)
    np.testing.assert_allclose(twice, -1 / 32)


@pytest.mark.exhaustive
def test_rows_of_minus_infinity_and_empty_pools_have_finite_gradients():
    row = jnp.full((1, 4), -INF)
    for function, expected in (
        (ops.softmax, 0.25),
        (activations.softmax, 0.25),
        (ops.log_softmax, np.log(0.25)),
        (layers.Softmax(), 0.0),
    ):
        value, slope = value_and_slope(function, row)
        np.testing.assert_allclose(value, np.full((1, 4), expected), 1e-6)
        assert (slope == 0).all()
    half = ops.log_softmax(jnp.array([0.0, -INF]))
    assert half.tolist() == [0.0, -INF]
    none, square = jnp.zeros((2, 0, 3)), jnp.zeros((2, 4, 0, 3))
    for layer, x in (
        (layers.GlobalAveragePooling1D(), none),
        (layers.GlobalMaxPooling1D(), none),
        (layers.GlobalAveragePooling2D(), square),
        (layers.GlobalMaxPooling2D(), square),
    ):
        assert (layer(x) == np.zeros((2, 3))).all()
    assert layers.GlobalMaxPooling1D(keepdims=True)(none).shape == (2, 1, 3)


def test_relu_and_leaky_relu_have_equal_gradients_at_zero():
    zero = jnp.zeros(1)
    slopes = [
        float(jax.grad(lambda v, f=f: f(v).sum())(zero)[0])
        for f in (
            lambda v: activations.relu(v, negative_slope=0.3),
            lambda v: activations.leaky_relu(v, negative_slope=0.3),
        )
    ]
    assert slopes[0] == slopes[1]
    assert fk.ops.relu(zero) == 0


def cut(items, size):
    items = list(items)
    return [items[start : start + size] for start in range(0, len(items), size)]


def row_function(row):
    """The operation of a row as a function of its floating arrays, and these arrays."""
    arrays, tree = jax.tree.flatten((row.args, dict(row.kwargs)), is_leaf=lambda v: v is None)
    indices = [i for i, a in enumerate(arrays) if isinstance(a, np.ndarray) and is_float(a)]

    def call(groups):
        leaves = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays]
        for index, (array,) in zip(indices, groups, strict=True):
            leaves[index] = array
        args, kwargs = jax.tree.unflatten(tree, leaves)
        function = row.call and functools.partial(row.call, ops)
        function = function or functools.reduce(getattr, row.name.split("."), ops)
        outputs = [y for y in jax.tree.leaves(function(*args, **kwargs)) if hasattr(y, "dtype")]
        return [y for y in outputs if is_float(y)]

    return call, [[arrays[index]] for index in indices]


def case_function(case):
    """The call of a case as a function of its floating inputs and weights, and these arrays."""
    layer, state = case.build()
    trained, frozen = fk.partition(layer)
    weights, tree = jax.tree.flatten(trained)
    arrays, inputs_tree = jax.tree.flatten(case.arrays())
    indices = [i for i, a in enumerate(arrays) if is_float(a)]

    def call(groups):
        inputs = list(arrays)
        for index, array in zip(indices, groups[0], strict=True):
            inputs[index] = array
        built = fk.combine(jax.tree.unflatten(tree, groups[1]), frozen) if weights else layer
        out = built.apply(
            *jax.tree.unflatten(inputs_tree, inputs),
            state=state,
            training=case.training,
            key=KEY,
            mask=case.mask_array(),
            **case.options,
        )
        return [y for y in jax.tree.leaves((out.value, out.losses)) if is_float(y)]

    return call, [[arrays[index] for index in indices], weights]


@pytest.mark.exhaustive
@pytest.mark.parametrize("rows", cut(ROWS, 60), ids=lambda rows: str(rows[0]))
def test_no_operation_of_the_table_has_a_nan_gradient(rows):
    functions = {
        str(row): row_function(row) for row in rows if str(row) not in OPERATION_EXCEPTIONS
    }
    assert nan_slopes(functions) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(LAYER_PARTS))
def test_no_layer_of_the_table_has_a_nan_gradient(part):
    cases = all_cases()[part::LAYER_PARTS]
    names = {case.id: type(case.layer).__name__ for case in cases}
    faults = nan_slopes({case.id: case_function(case) for case in cases})
    unexpected = {
        name: [t for t in texts if not t.startswith(LAYER_EXCEPTIONS.get(names[name], ("none",)))]
        for name, texts in faults.items()
    }
    assert {name: texts for name, texts in unexpected.items() if texts} == {}


@pytest.mark.exhaustive
def test_gradients_at_edges_are_exact():
    def slope(function, *values):
        values = [jnp.asarray(v, "float32") for v in values]
        every = tuple(range(len(values)))
        slopes = jax.grad(lambda *v: jnp.sum(function(*v)), every)(*values)
        return [float(value) for value in slopes]

    @jax.jit
    def compute():
        zero = jnp.zeros(2)
        tiny = jnp.full(3, 1e-30)
        huge = jnp.full((1, 8), 1e30)
        scale, shift = jnp.zeros(2), jnp.zeros(2)

        def stretched(scale, shift):
            image, axes = jnp.ones((2, 2)), (0, 1)
            return ops.image.scale_and_translate(image, (2, 2), scale, shift, axes, "linear")

        def average(weights):
            return ops.average(jnp.array([1.0, 2.0, 3.0]), weights=weights)

        return {
            "vander": jax.grad(lambda x: ops.vander(x, 3).sum())(zero),
            "angle": jax.grad(lambda x: ops.angle(x).sum())(zero),
            "complex angle": jax.grad(lambda z: ops.angle(z).sum())(jnp.array([0, 2 + 1j])),
            "ldexp": jax.grad(lambda x: ops.ldexp(x, np.array([5, -2])).sum())(zero),
            "average": jax.grad(average)(tiny),
            "norm": jax.grad(lambda x: ops.norm(x, 3))(jnp.full(8, 1e-30)),
            "normalize": ops.normalize(huge, order=3),
            "normalize slope": jax.grad(lambda x: ops.normalize(x, order=3).sum())(huge),
            "rms": jax.grad(lambda x: ops.rms_normalization(x, huge[0]).sum())(huge),
            "stretched": jax.grad(lambda *v: stretched(*v).sum(), (0, 1))(scale, shift),
            "divide_no_nan": jax.grad(lambda x: ops.divide_no_nan(zero, x).sum())(tiny[:2]),
        }

    assert slope(ops.power, -3.0, 2.0) == [-6.0, 0.0]
    assert slope(ops.power, 0.0, 0.0) == [0.0, 0.0]
    assert slope(lambda x: ops.power(x, 0.0), 0.0) == [0.0]
    np.testing.assert_allclose(slope(ops.power, 2.0, 3.0), [12.0, 8 * np.log(2)], 1e-6)
    assert slope(ops.divide, 0.0, 1e-30)[1] == 0
    assert slope(ops.true_divide, 3.0, 2.0) == [0.5, -0.75]
    results = compute()
    assert results["vander"].tolist() == [1.0, 1.0]
    assert results["angle"].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(results["complex angle"], [0, -0.2 - 0.4j], 1e-6)
    assert results["ldexp"].tolist() == [32.0, 0.25]
    np.testing.assert_allclose(results["average"], np.array([-1, 0, 1]) / 3e-30, 1e-5)
    np.testing.assert_allclose(results["norm"], np.full(8, 0.25), 1e-5)
    np.testing.assert_allclose(results["normalize"], np.full((1, 8), 0.5), 1e-6)
    for name in ("normalize slope", "rms", "stretched", "divide_no_nan"):
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results[name])), name


def test_adaptive_pooling_of_empty_arrays_is_zero():
    for x in (jnp.zeros((2, 0, 3)), jnp.zeros((2, 0, 3), "int32")):
        for layer in (layers.AdaptiveAveragePooling1D(2), layers.AdaptiveMaxPooling1D(2)):
            assert (np.asarray(layer(x)) == 0).all() and layer(x).shape == (2, 2, 3)
    assert layers.AdaptiveMaxPooling2D(2)(jnp.ones((1, 3, 0, 1))).tolist() == [[[[0]] * 2] * 2]
    assert ops.adaptive_average_pool(jnp.zeros((1, 0, 1)), 2).ravel().tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="at most 16384"):
        layers.AdaptiveMaxPooling1D(10**6)(jnp.zeros((1, 0, 1)))
    with pytest.raises(ValueError, match="at least 2 cells"):
        layers.MaxPooling1D(2)(jnp.zeros((1, 1, 1)))
    pooled = layers.AveragePooling1D(2, padding="same")(jnp.zeros((1, 0, 1)))
    assert pooled.shape == (1, 0, 1)
