"""One row or more for every operation of `keras.ops`: its arguments, and what is checked of it.

Arrays among the arguments are what becomes symbolic in `test_ops.py`, and what gradients are
taken for; everything else is passed on as it is.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    args: tuple = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # how it is called where that is more than `ops.name(*args, **kwargs)`
    call: Callable | None = None
    symbolic: bool = True
    grad: bool = True
    keras: bool = True
    # whether Keras computes it inside of jit too
    keras_traced: bool = True
    tolerance: float = 1e-5
    id: str = ""

    def __str__(self):
        return self.id or self.name


def row(*args, **kwargs):
    """A row of positional arguments; `options` are the operation's keyword arguments."""
    name, *args = args
    return Row(name, tuple(args), kwargs.pop("options", {}), **kwargs)


X = np.array([[0.3, -1.2, 2.5], [-0.7, 0.9, 0.1]], "float32")
Y = np.array([[1.5, 0.4, -2.0], [0.6, -0.8, 3.0]], "float32")
P = np.array([[0.3, 1.2, 2.5], [0.7, 0.9, 0.1]], "float32")  # positive
U = np.array([[0.3, 0.2, 0.5], [0.7, 0.9, 0.1]], "float32")  # between 0 and 1
G = P + 1  # above 1
I = np.array([[3, 1, 2], [5, 4, 6]], "int32")
J = np.array([[2, 5, 1], [4, 3, 7]], "int32")
B = np.array([[True, False, True], [False, False, True]])
C = np.array([[True, True, False], [False, True, False]])
N = np.array([[0.3, np.nan, 2.5], [-0.7, 0.9, np.nan]], "float32")
F = np.array([[0.3, np.inf, -np.inf], [np.nan, 0.0, 0.1]], "float32")
V = np.array([0.3, -1.2, 2.5, 0.7, -0.1], "float32")
W = np.array([1.0, 2.0, 0.5, -1.0, 0.2], "float32")
K = np.array([1, 0, 3, 1, 2], "int32")
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], "float32")  # positive definite
M = np.array([[2.0, -1.0, 0.3], [0.7, 1.5, -0.2], [0.1, 0.4, 3.0]], "float32")
Z = np.array([[1 + 2j, -0.5j, 0.3], [2, -1 - 1j, 0.1j]], "complex64")
H = X.astype("float16")
L = np.arange(24, dtype="float32").reshape(2, 3, 4) / 7 - 1
D = np.arange(8, dtype="float32").reshape(2, 2, 2) / 3
IMAGE = (np.arange(96, dtype="float32").reshape(2, 4, 4, 3) * 37 % 19) / 19
FIRST = IMAGE.transpose(0, 3, 1, 2)
SIGNAL = np.sin(np.arange(40, dtype="float32").reshape(2, 20) ** 1.3)
SCORES = np.sin(np.arange(30, dtype="float32").reshape(2, 5, 3) ** 1.7) * 3

UNARY = (
    *(row(n, X) for n in ("abs", "absolute", "cbrt", "ceil", "conj", "conjugate", "copy", "cos")),
    *(row(n, X) for n in ("cosh", "deg2rad", "exp", "exp2", "expm1", "fabs", "floor", "i0")),
    *(row(n, X) for n in ("negative", "rad2deg", "real", "reciprocal", "sign", "signbit", "sin")),
    *(row(n, X) for n in ("sinc", "sinh", "square", "tan", "tanh", "trunc", "angle", "imag")),
    *(row(n, P) for n in ("log", "log10", "log1p", "log2", "sqrt", "rsqrt")),
    *(row(n, U) for n in ("arccos", "arcsin", "arctan", "arctanh", "erfinv")),
    *(row(n, G) for n in ("arccosh", "arcsinh")),
    *(row(n, X) for n in ("erf", "erfc", "isreal", "logical_not")),
    *(row(n, F) for n in ("isfinite", "isinf", "isnan", "isneginf", "isposinf")),
    *(row(n, I, id=f"{n}-int") for n in ("exp", "log", "sqrt", "floor", "ceil", "sin", "trunc")),
    *(row(n, I, id=f"{n}-int") for n in ("abs", "negative", "square", "sign", "arctan", "i0")),
    *(row(n, I, id=f"{n}-int") for n in ("angle", "cbrt", "deg2rad", "expm1", "fabs", "signbit")),
    *(row(n, B, id=f"{n}-bool") for n in ("exp", "floor", "logical_not", "isnan")),
    *(row(n, H, id=f"{n}-half", tolerance=1e-3) for n in ("exp", "log1p", "sinc", "floor")),
    *(row(n, Z, id=f"{n}-complex") for n in ("real", "imag", "conj", "angle", "absolute")),
    *(row(n, I) for n in ("bitwise_invert", "bitwise_not")),
    row("round", X),
    row("round", X, 1, id="round-decimals"),
    row("round", I, -1, id="round-int"),
    row("clip", X, -0.5, 0.5),
    row("clip", B, 0, 1, id="clip-bool"),
    row("nan_to_num", F, grad=False),
    row(
        "nan_to_num",
        F,
        options={"nan": 1.0, "posinf": 9.0, "neginf": -9.0},
        grad=False,
        id="nan_to_num-to",
    ),
)

BINARY = (
    *(row(n, X, Y) for n in ("add", "arctan2", "divide", "divide_no_nan", "equal", "floor_divide")),
    *(row(n, X, Y) for n in ("fmax", "fmin", "fmod", "greater", "greater_equal", "heaviside")),
    *(row(n, X, Y) for n in ("hypot", "isclose", "allclose", "less", "less_equal", "logaddexp")),
    *(row(n, X, Y) for n in ("logaddexp2", "maximum", "minimum", "mod", "multiply", "not_equal")),
    *(row(n, X, Y) for n in ("subtract", "true_divide")),
    row("nextafter", X, Y, grad=False),
    row("power", P, Y),
    row("power", X, 2, id="power-square"),
    row("add", X, 1, id="add-number"),
    row("divide", I, J, id="divide-int"),
    row("divide_no_nan", X, np.zeros_like(X), id="divide_no_nan-zero"),
    row("fmax", X, N, id="fmax-nan", grad=False),
    row("arctan2", I, J, id="arctan2-int"),
    row("logaddexp", I, J, id="logaddexp-int"),
    row("ldexp", X, I),
    *(row(n, I, J) for n in ("gcd", "lcm", "bitwise_and", "bitwise_or", "bitwise_xor")),
    *(row(n, I, J) for n in ("bitwise_left_shift", "left_shift", "bitwise_right_shift")),
    row("right_shift", I, J),
    *(row(n, B, C) for n in ("logical_and", "logical_or", "logical_xor")),
    row("isin", I, K),
    row("isin", I, K, options={"invert": True}, id="isin-invert"),
    row("isclose", N, N, options={"equal_nan": True}, id="isclose-nan"),
)

REDUCTIONS = (
    *(row(n, X) for n in ("all", "amax", "amin", "any", "argmax", "argmin", "max", "mean", "min")),
    *(row(n, X) for n in ("prod", "ptp", "std", "sum", "var", "median", "count_nonzero")),
    *(row(n, X, 1, True, id=f"{n}-axis") for n in ("all", "amax", "amin", "any", "argmax", "max")),
    *(row(n, X, 1, True, id=f"{n}-axis") for n in ("mean", "min", "prod", "ptp", "std", "sum")),
    *(row(n, X, 1, True, id=f"{n}-axis") for n in ("argmin", "var", "median", "logsumexp")),
    *(row(n, L, options={"axis": (0, 2)}, id=f"{n}-axes") for n in ("mean", "sum", "logsumexp")),
    *(row(n, I, id=f"{n}-int") for n in ("mean", "sum", "var", "std", "median", "average", "prod")),
    *(row(n, B, id=f"{n}-bool") for n in ("sum", "mean", "any", "max", "prod")),
    *(row(n, H, id=f"{n}-half", tolerance=2e-3) for n in ("sum", "mean", "var", "std")),
    row("median", X, None, True, id="median-keepdims"),
    row("max", X, options={"axis": 0, "initial": 1.0}, id="max-initial"),
    row("min", X, options={"axis": 0, "initial": 0.0}, id="min-initial"),
    row("count_nonzero", X, 0, id="count_nonzero-axis"),
    row("average", X, options={"axis": 1}),
    row("average", X, options={"weights": P}, id="average-weights"),
    *(row(n, X) for n in ("cumprod", "cumsum")),
    *(row(n, X, 1, id=f"{n}-axis") for n in ("cumprod", "cumsum")),
    row("cumsum", I, 0, "float32", id="cumsum-dtype"),
    row("logsumexp", X),
    row("quantile", X, 0.3),
    row("quantile", X, [0.2, 0.7], 1, "lower", True, id="quantile-several", grad=False),
    row("quantile", X, 0.3, options={"keepdims": True}, id="quantile-keepdims"),
    row("percentile", X, 30.0, options={"axis": 0}),
    *(row(n, N, grad=False) for n in ("nanargmax", "nanargmin", "nanmax", "nanmean", "nanmin")),
    *(row(n, N, grad=False) for n in ("nanmedian", "nanprod", "nanstd", "nansum", "nanvar")),
    *(row(n, N, 0, True, grad=False, id=f"{n}-axis") for n in ("nanmax", "nanmean", "nansum")),
    *(row(n, N, 1, grad=False) for n in ("nancumprod", "nancumsum")),
    row("nanquantile", N, 0.3, grad=False),
    row("nanpercentile", N, 30.0, 1, grad=False),
)

SHAPING = (
    row("append", X, Y, 0),
    row("append", X, Y, id="append-flat"),
    row("array_split", V, 2),
    row("broadcast_to", X, (2, 2, 3)),
    row("concatenate", [X, Y], 1),
    row("stack", [X, Y], -1),
    *(row(n, [X, Y]) for n in ("hstack", "vstack", "dstack")),
    row("split", L, 2, 2),
    row("split", L, [1, 3], 2, id="split-indices"),
    row("hsplit", X, 3),
    row("vsplit", X, 2),
    row("dsplit", L, 2),
    row("expand_dims", X, 1),
    row("expand_dims", X, (0, 3), id="expand_dims-two"),
    row("squeeze", X[:, None], 1),
    row("squeeze", X[None, :, None], id="squeeze-all"),
    row("reshape", X, (3, -1)),
    row("ravel", X),
    row("transpose", L),
    row("transpose", L, (1, 0, 2), id="transpose-axes"),
    row("swapaxes", L, 0, 2),
    row("moveaxis", L, 0, -1),
    *(row(n, X) for n in ("flip", "fliplr", "flipud", "rot90")),
    row("flip", X, 1, id="flip-axis"),
    row("roll", X, 1),
    row("roll", X, 1, 1, id="roll-axis"),
    row("repeat", X, 2),
    row("repeat", X, 2, 1, id="repeat-axis"),
    row("tile", X, (2, 1)),
    row("tile", X, 2, id="tile-one"),
    row("pad", X, ((0, 1), (2, 0))),
    row("pad", X, 1, "reflect", id="pad-reflect"),
    row("pad", X, 1, "constant", 3.0, id="pad-value"),
    row("meshgrid", V, W),
    row("meshgrid", V, W, options={"indexing": "ij"}, id="meshgrid-ij"),
    row("view", X, "int32", grad=False),
    row("rearrange", L, "a b (c d) -> (a c) d b", options={"d": 2}, keras_traced=False),
    row("rearrange", L, "a b c -> c (b a)", id="rearrange-join"),
    row("unstack", X),
    row("unstack", L, None, 1, id="unstack-axis"),
)

SEARCHING = (
    row("where", B, X, Y),
    row("where", B, options={}, symbolic=False, id="where-indices"),
    row("select", [B, C], [X, Y], 1.0),
    row("take", X, [2, 0], 1),
    row("take", X, K, id="take-flat"),
    row("take_along_axis", X, np.array([[2], [0]]), 1, options={}),
    row("get_item", X, (slice(None), 1)),
    row("get_item", X, 0, id="get_item-row"),
    row("nonzero", B, symbolic=False),
    row("unravel_index", K, (2, 3)),
    row("sort", X),
    row("sort", X, 0, id="sort-axis"),
    row("argsort", X),
    row("argpartition", V, 2),
    row("argpartition", X, 2, None, id="argpartition-flat"),
    row("searchsorted", np.sort(V), X),
    row("searchsorted", np.sort(V), X, "right", id="searchsorted-right"),
    row("unique", K, symbolic=False),
    row(
        "unique",
        K,
        options={
            "return_index": True,
            "return_inverse": True,
            "return_counts": True,
            "size": 6,
            "fill_value": 9,
        },
        id="unique-all",
    ),
    row("digitize", X, [-1.0, 0.0, 1.0]),
    row("bincount", K, symbolic=False),
    row(
        "bincount",
        K,
        options={"weights": W, "minlength": 6},
        id="bincount-weights",
        keras_traced=False,
    ),
    row("bincount", I, options={"minlength": 8}, id="bincount-rows", keras_traced=False),
    row("histogram", V, 4, grad=False),
    row("histogram", V, 4, (-1.0, 1.0), grad=False, id="histogram-range"),
    row("correlate", V, W[:3]),
    row("correlate", V, W, "full", id="correlate-full"),
    row("corrcoef", X),
)

CREATION = (
    row("arange", 3),
    row("arange", 1, 7, 2, "float32", id="arange-step"),
    row("arange", 0.0, 1.0, 0.25, id="arange-float"),
    row("array", X),
    row("array", [[1, 2]], "float32", id="array-list"),
    row("zeros", (2, 3)),
    row("ones", (2, 3), "int32"),
    row("empty", (2, 3)),
    row("full", (2, 3), 7.0),
    row("full", (2, 3), 7, "int32", id="full-int"),
    *(row(n, X) for n in ("zeros_like", "ones_like", "empty_like")),
    row("ones_like", X, "int32", id="ones_like-int"),
    row("full_like", X, 3),
    row("linspace", 0.0, 1.0, 5),
    row("linspace", V, W, 3, options={"axis": 1, "endpoint": False}, id="linspace-arrays"),
    row("linspace", 0.0, 1.0, 5, True, True, id="linspace-step"),
    row("logspace", 0.0, 2.0, 3),
    row("logspace", 0.0, 2.0, 3, options={"base": 2.0}, id="logspace-base"),
    row("geomspace", 1.0, 8.0, 4),
    row("eye", 3),
    row("eye", 2, 3, 1, "int32", id="eye-all"),
    row("identity", 3),
    row("tri", 3),
    row("tri", 2, 3, 1, "int32", id="tri-all"),
    row("vander", V),
    row("vander", V, 3, True, id="vander-increasing"),
    *(row(n, 5, symbolic=False) for n in ("bartlett", "blackman", "hamming", "hanning")),
    row("kaiser", 5, 8.0, symbolic=False),
    *(row(n, X, symbolic=False) for n in ("ndim", "size", "shape", "dtype", "is_tensor")),
    row("convert_to_numpy", X, symbolic=False, grad=False),
    row("convert_to_tensor", X),
    row("convert_to_tensor", [1, 2], "float32", id="convert_to_tensor-list"),
    row("cast", X, "int32"),
    row("cast", X, "bfloat16", id="cast-bfloat16", grad=False),
    row("saturate_cast", X * 300, "uint8"),
    row("saturate_cast", I * 200, "int8", id="saturate_cast-int"),
    row("saturate_cast", X * 1e38, "float16", id="saturate_cast-half"),
    row("saturate_cast", X * 1e9, "int32", id="saturate_cast-wide"),
    row("stop_gradient", X),
)

PRODUCTS = (
    row("matmul", M, S),
    row("matmul", M.astype("int8"), S.astype("int8"), id="matmul-int8"),
    row("dot", M, S),
    row("vdot", M, S),
    row("inner", X, Y),
    row("outer", V, W),
    row("kron", M, X),
    row("tensordot", M, S, 1),
    row("tensordot", M, S, ((0,), (1,)), id="tensordot-axes"),
    row("einsum", "ij,kj->ik", X, Y),
    row("cross", X, Y),
    row("diag", V),
    row("diag", M, 1, id="diag-of"),
    row("diagflat", X),
    row("diagonal", L, 1, 1, 2),
    row("trace", M),
    row("tril", M),
    row("triu", M, 1),
    row("diff", X),
    row("diff", L, 2, 1, id="diff-two"),
    row("trapezoid", X),
    row("trapezoid", V, W, id="trapezoid-x"),
    row("slogdet", S),
    row("vectorize", V, W, call=lambda ops, a, b: ops.vectorize(lambda x, y: x * y + 1)(a, b)),
)

LINALG = (
    row("cholesky", S, symbolic=False),
    row("cholesky", S, True, id="cholesky-upper"),
    row("cholesky_inverse", np.linalg.cholesky(S)),
    row("cholesky_inverse", np.linalg.cholesky(S).T, True, id="cholesky_inverse-upper"),
    row("det", M),
    row("inv", M),
    row("eigh", S),
    row("eig", M, grad=False, symbolic=False),
    row("lu_factor", M),
    row("norm", X),
    *(row("norm", X, o, 1, id=f"norm-{o}") for o in (1, 2, 3, np.inf)),
    *(row("norm", M, o, (0, 1), True, id=f"norm-matrix-{o}") for o in ("fro", "nuc", 2, 1)),
    row("norm", I, options={"axis": 1, "keepdims": True}, id="norm-int"),
    row("qr", M),
    row("qr", M[:, :2], "complete", id="qr-complete", grad=False),
    row("solve", M, S),
    row("solve", M, S[0], id="solve-vector"),
    row("solve_triangular", M, S),
    row("solve_triangular", M, S[0], True, id="solve_triangular-vector"),
    row("svd", X, grad=False),
    row("svd", X, False, True, id="svd-thin"),
    row("svd", X, True, False, id="svd-values"),
    row("lstsq", M[:, :2], S, tolerance=1e-4),
    row("matrix_rank", M),
    row("matrix_rank", X, 5.0, id="matrix_rank-tol"),
    row("pinv", X),
    row("jvp", jnp.sin, (X,), (Y,)),
)

MATH = (
    *(row(f"segment_{n}", W, K, 5) for n in ("sum", "max", "min")),
    row("segment_prod", W, K, 5, grad=False),
    row("segment_sum", L, np.array([0, 1], "int32"), 2, True, id="segment_sum-rows"),
    row("top_k", X, 2),
    row("in_top_k", np.array([1, 0], "int32"), X, 2),
    row("cdist", X, Y),
    row("extract_sequences", SIGNAL, 6, 3),
    row("fft", (X, Y)),
    row("fft2", (X, Y)),
    row("ifft2", (X, Y)),
    row("rfft", X),
    row("rfft", X, 8, id="rfft-length"),
    row("irfft", (X, Y)),
    row("irfft", (X, Y), 5, id="irfft-length"),
    row("stft", SIGNAL, 6, 3, 8),
    row("stft", SIGNAL, 6, 3, 8, "hamming", False, id="stft-hamming"),
    row("stft", SIGNAL, 6, 3, 8, None, id="stft-none"),
    row("istft", (L, L + 0.5), 6, 2, 6, grad=False),
    row("istft", (L, L + 0.5), 5, 2, 6, 7, "hamming", False, id="istft-length", grad=False),
    row("logdet", S),
    row("view_as_complex", D, grad=False),
    row("view_as_real", Z),
)

CONTROL = (
    row("cond", X, call=lambda ops, x: ops.cond(ops.sum(x) > 0, lambda: x, lambda: -x)),
    row("switch", 1, [jnp.sin, jnp.cos], X),
    row("scan", lambda c, x: (c + x, c * x), np.zeros(3, "float32"), X),
    row("associative_scan", jnp.add, X),
    row("map", jnp.cumsum, X),
    row("vectorized_map", lambda pair: pair[0] @ pair[1], [X, Y]),
    row(
        "while_loop",
        lambda x, n: x.sum() < 9,
        lambda x, n: (x + 1, n + 1),
        (X, np.array(0)),
        grad=False,
    ),
    row(
        "while_loop", lambda x: x.sum() < 9, lambda x: x + 1, X, 2, grad=False, id="while_loop-most"
    ),
    row("fori_loop", 0, 3, lambda i, x: x * 2, X),
    row(
        "custom_gradient",
        X,
        call=lambda ops, x: ops.custom_gradient(lambda a: (a * 2, lambda up: up * 5))(x),
    ),
    row("slice", L, (0, 1, 1), (2, 2, -1)),
    row("slice_update", L, (0, 1, 1), np.ones((2, 2, 2), "float32")),
    row("scatter", np.array([[1], [3], [1]]), P.T, (4, 2)),
    *(
        row(
            "scatter_update",
            V,
            [[1], [3]],
            np.array([5.0, 2.0], "float32"),
            r,
            id=f"scatter_update-{r}",
            grad=r != "mul",
        )
        for r in (None, "add", "max", "min", "mul")
    ),
    row("scatter_update", M, [[0, 1], [2, 2]], np.array([5.0, 2.0], "float32")),
)

NN = (
    *(row(n, X) for n in ("celu", "elu", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu")),
    *(row(n, X) for n in ("hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax")),
    *(row(n, X) for n in ("relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax")),
    *(row(n, X) for n in ("softplus", "softsign", "sparse_plus", "sparse_sigmoid", "squareplus")),
    *(row(n, X) for n in ("swish", "tanh_shrink")),
    row("sparsemax", X * 3 - 5, keras=False),  # Keras's entries do not sum to 1
    row("gelu", X, False, id="gelu-exact"),
    row("softmax", L, (0, 2), id="softmax-axes"),
    row("log_softmax", L, (0, 2), id="log_softmax-axes"),
    row("glu", L),
    row("threshold", X, 0.2, -3.0),
    row("moments", X, 0),
    row("moments", L, (0, 2), True, id="moments-axes"),
    row("moments", H, 0, id="moments-half", tolerance=2e-3),
    row("batch_normalization", L, W[:4], W[:4] ** 2, -1),
    row(
        "batch_normalization",
        L,
        W[:3],
        W[:3] ** 2,
        1,
        V[:3],
        W[:3],
        0.1,
        id="batch_normalization-all",
    ),
    row("layer_normalization", L),
    row("layer_normalization", L, W[:4], W[1:], id="layer_normalization-all"),
    row("rms_normalization", L),
    row("rms_normalization", L, W[:4], -1, 0.1, id="rms_normalization-all"),
    row("normalize", X),
    row("normalize", X, 0, 3, id="normalize-3"),
    row("one_hot", K, 4),
    row("one_hot", I, 8, 1, "int32", id="one_hot-axis"),
    row("multi_hot", I, 8),
    row("multi_hot", K, 4, options={"dtype": "int32"}, id="multi_hot-vector"),
    row("binary_crossentropy", U, U[::-1].copy()),
    row("binary_crossentropy", U, X, True, id="binary_crossentropy-logits"),
    row("categorical_crossentropy", U, P),
    row("categorical_crossentropy", U, X, True, 0, id="categorical_crossentropy-logits"),
    row("sparse_categorical_crossentropy", np.array([2, 0], "int32"), P),
    row(
        "sparse_categorical_crossentropy",
        np.array([[2], [0]], "int32"),
        X,
        True,
        id="sparse_categorical_crossentropy-logits",
    ),
    row("polar", P, X, grad=False),
    row("psnr", X, Y, 3.0),
    row("conv", IMAGE, IMAGE.reshape(2, 2, 3, 8)),
    row("conv", FIRST, IMAGE.reshape(2, 2, 3, 8), 2, "same", "channels_first", id="conv-first"),
    row(
        "conv",
        IMAGE,
        IMAGE[..., :1].reshape(2, 2, 1, 8)[..., :3],
        options={"dilation_rate": 2},
        id="conv-groups",
    ),
    row("conv_transpose", IMAGE, IMAGE.reshape(2, 2, 8, 3), 2),
    row("conv_transpose", IMAGE, IMAGE.reshape(2, 2, 8, 3), 2, "same", 1, id="conv_transpose-same"),
    row("depthwise_conv", IMAGE, IMAGE[..., 0].reshape(4, 8)[:, :6].reshape(2, 2, 3, 2), 1, "same"),
    row(
        "separable_conv",
        IMAGE,
        IMAGE[..., 0].reshape(4, 8)[:, :6].reshape(2, 2, 3, 2),
        IMAGE.ravel()[:30].reshape(1, 1, 6, 5),
    ),
    row("max_pool", IMAGE, 2, keras=False),  # None as strides is an error of Keras on JAX
    row("max_pool", IMAGE, 2, 2, id="max_pool-strides"),
    row("max_pool", FIRST, (2, 3), 1, "same", "channels_first", id="max_pool-first"),
    row("average_pool", IMAGE, 2, keras=False),
    row("average_pool", IMAGE, 2, 2, id="average_pool-strides"),
    row("average_pool", IMAGE, 3, 2, "same", id="average_pool-same"),
    row("adaptive_max_pool", IMAGE, 3),
    row("adaptive_max_pool", FIRST, (3, 2), "channels_first", id="adaptive_max_pool-first"),
    row("adaptive_average_pool", IMAGE, (3, 2)),
    row("unfold", FIRST, 2),
    row("unfold", FIRST, (2, 1), 2, 1, (1, 2), id="unfold-all"),
    row("fold", IMAGE[:, :3, :3].reshape(2, 3, 9).repeat(4, 1), 4, 2),
    row(
        "fold",
        IMAGE[:, :2, :2].reshape(2, 4, 3).repeat(2, 2),
        (4, 3),
        2,
        options={"stride": 2, "padding": (1, 1)},
        id="fold-all",
    ),
    row("depth_to_space", IMAGE[..., :1].repeat(4, -1), 2),
    row(
        "depth_to_space", FIRST[:, :1].repeat(8, 1), 2, "channels_first", id="depth_to_space-first"
    ),
    row("space_to_depth", IMAGE, 2),
    row("space_to_depth", FIRST, 2, "channels_first", id="space_to_depth-first"),
    row("dot_product_attention", L[:, :, None], L[:, :, None] + 1, L[:, :, None] * 2),
    row(
        "dot_product_attention",
        L[:, :, None],
        L[:, :, None] + 1,
        L[:, :, None],
        options={"is_causal": True, "scale": 0.3},
        id="dot_product_attention-causal",
    ),
    row(
        "ctc_loss",
        np.array([[1, 2], [2, 2]], "int32"),
        SCORES,
        np.array([2, 1], "int32"),
        np.array([5, 4], "int32"),
    ),
    row("ctc_decode", SCORES, np.array([5, 4], "int32"), grad=False),
    row(
        "ctc_decode",
        SCORES,
        np.array([5, 4], "int32"),
        options={"merge_repeated": False, "mask_index": 2},
        grad=False,
        id="ctc_decode-unmerged",
    ),
    row(
        "ctc_decode",
        SCORES,
        np.array([5, 4], "int32"),
        "beam_search",
        8,
        3,
        grad=False,
        id="ctc_decode-beam",
    ),
)

_SMALL = IMAGE[:, :3, :3]
_MATRIX = np.array([[1.0, 0.1, 0.2, -0.1, 0.9, 0.3, 0.0, 0.0]] * 2, "float32")
_CORNERS = np.array([[[0, 0], [0, 3], [3, 0], [3, 3]]] * 2, "float32")
IMAGES = (
    row("image.affine_transform", IMAGE, _MATRIX),
    row("image.crop_images", IMAGE, 1, 0, options={"target_height": 2, "target_width": 3}),
    row("image.elastic_transform", IMAGE, options={"seed": 3}, keras=False, grad=False),
    row("image.extract_patches", IMAGE, 2),
    row("image.extract_patches_3d", IMAGE[None, ..., :1], 2),
    row("image.gaussian_blur", IMAGE, keras=False),  # Keras reads its window in a wrong order
    row("image.hsv_to_rgb", IMAGE),
    row("image.map_coordinates", V, [np.array([0.5, 1.2, 3.3], "float32")], 1),
    row("image.pad_images", IMAGE, 1, 0, 1, 2),
    row("image.perspective_transform", IMAGE, _CORNERS, _CORNERS + 0.3),
    row("image.resize", IMAGE, (3, 6)),
    row(
        "image.resize",
        IMAGE,
        (3, 6),
        options={"interpolation": "bicubic", "antialias": True},
        id="image.resize-cubic",
    ),
    row("image.rgb_to_grayscale", IMAGE),
    row("image.rgb_to_hsv", IMAGE, grad=False),
    row(
        "image.scale_and_translate",
        IMAGE,
        (2, 3, 4, 3),
        np.array([0.9, 1.2], "float32"),
        np.array([0.1, 0.2], "float32"),
        (1, 2),
        "linear",
    ),
    row("image.sobel_edges", IMAGE),
    row("image.ssim", IMAGE, IMAGE * 0.9, 1.0, 3),
)

ROWS = (
    *UNARY,
    *BINARY,
    *REDUCTIONS,
    *SHAPING,
    *SEARCHING,
    *CREATION,
    *PRODUCTS,
    *LINALG,
    *MATH,
    *CONTROL,
    *NN,
    *IMAGES,
)
