"""Operations at edges: zeros, infinities, empty arrays, half precision, messages, graphs."""

import inspect
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.nn import signal

ops = fk.ops
INF = float("inf")


def _sinks(x, sinks, **options):
    heads = x[None, :, None]
    return ops.dot_product_attention(heads, heads, heads, sinks=sinks, **options)


@pytest.mark.exhaustive
def test_logsumexp_of_minus_infinity_has_a_finite_gradient():
    @jax.jit
    def compute(x):
        def finite_sum(v):
            return jnp.sum(jnp.where(v.max(1) > -INF, ops.logsumexp(v, 1), 0))

        return (
            ops.logsumexp(x, axis=1),
            jax.grad(finite_sum)(x),
            jax.grad(lambda v: ops.logsumexp(v))(x[0]),
            jax.grad(lambda v: ops.softmax(v)[1, 0])(x[1:]),
        )

    x = np.array([[-INF, -INF], [0.0, -INF], [1e4, 1e4]], "float32")
    sums, slope, flat, soft = jax.device_get(compute(x))
    np.testing.assert_allclose(sums, [-INF, 0.0, 1e4 + np.log(2)], 1e-6)
    assert np.isfinite(slope).all()
    assert (flat == 0).all()
    assert np.isfinite(soft).all()


@pytest.mark.exhaustive
def test_zeros_have_finite_values_and_gradients():
    functions = {
        "norm-axis": lambda x: ops.norm(x, axis=-1),
        "norm": lambda x: ops.norm(x),
        "normalize": lambda x: ops.normalize(x),
        "normalize-1": lambda x: ops.normalize(x, order=1),
        "normalize-3": lambda x: ops.normalize(x, order=3),
        "cdist": lambda x: ops.cdist(x, x),
        "divide_no_nan": lambda x: ops.divide_no_nan(x + 1, x),
        "rms_normalization": lambda x: ops.rms_normalization(x),
        "layer_normalization": lambda x: ops.layer_normalization(x),
    }

    @jax.jit
    def compute(x):
        return {
            name: (f(x), jax.grad(lambda v, f=f: f(v).sum())(x)) for name, f in functions.items()
        }

    for name, (value, slope) in jax.device_get(compute(np.zeros((2, 3), "float32"))).items():
        assert np.isfinite(value).all(), name
        assert np.isfinite(slope).all(), name


def test_reductions_of_empty_arrays():
    @jax.jit
    def compute(x, empty):
        return (
            ops.sum(x),
            ops.logsumexp(x),
            ops.logsumexp(x, axis=0),
            ops.concatenate([x, jnp.ones((1, 3))]),
            ops.one_hot(empty, 3),
            ops.bincount(empty, minlength=2),
        )

    arrays = np.zeros((0, 3), "float32"), np.zeros(0, "int32")
    total, log, logs, joined, hot, counts = jax.device_get(compute(*arrays))
    assert total == 0
    assert log == -INF
    assert logs.tolist() == [-INF] * 3
    assert joined.shape == (1, 3)
    assert hot.shape == (0, 3)
    assert counts.tolist() == [0, 0]


@pytest.mark.exhaustive
def test_half_precision_is_kept_and_close():
    functions = (
        ops.mean,
        ops.var,
        ops.std,
        ops.softmax,
        ops.logsumexp,
        ops.gelu,
        ops.norm,
        ops.normalize,
        ops.layer_normalization,
        ops.rms_normalization,
        lambda x: ops.moments(x, 0)[1],
        lambda x: ops.clip(x, -0.5, 0.5),
        lambda x: ops.average_pool(x[None, :, :, None], 2),
    )
    short = ("bfloat16", "float16")

    @jax.jit
    def compute(x):
        return [[f(x), *(f(x.astype(dtype)) for dtype in short)] for f in functions]

    x = np.linspace(-1.0, 1.0, 12, dtype="float32").reshape(3, 4)
    for number, (wide, *halves) in enumerate(jax.device_get(compute(x))):
        for half, dtype in zip(halves, short, strict=True):
            assert half.dtype == dtype, number
            np.testing.assert_allclose(half.astype("float32"), wide, 0.03, 0.03, err_msg=number)


def test_lists_and_names_are_accepted():
    @jax.jit
    def compute():
        mean = ops.mean(x=[[1, 2], [3, 4]], axis=[0, 1])
        return mean, ops.add(x1=[1], x2=2), ops.where([True, False], 1, 2)

    assert [value.tolist() for value in compute()] == [2.5, [3], [1, 2]]
    assert str(inspect.signature(ops.clip)).startswith("(x")


def test_control_flow_on_symbolic_tensors_is_a_node():
    x = fk.Input((4, 3), name="x")
    rows, zero = ops.reshape(x, (-1, 3)), np.zeros((), "float32")
    last, sums = ops.scan(lambda c, row: (c + row.sum(), c), zero, rows)
    chosen = ops.cond(ops.sum(x) > 0, lambda: {"y": x}, lambda: {"y": -x})["y"]
    loop = ops.while_loop(lambda v: v.sum() < 9, lambda v: v * 2 + 1, x)
    rows = ops.vectorized_map(lambda v: v[0], x)
    model = fk.Model(x, [last, sums, chosen, loop, rows])
    image = np.full((2, 4, 3), -0.5, "float32")
    last, sums, chosen, loop, rows = jax.device_get(jax.jit(model.__call__)(image))
    assert last == -12
    assert sums.shape == (8,)
    assert (chosen == 0.5).all()
    assert loop.sum() >= 9
    assert rows.shape == (2, 3)


def test_shapes_of_symbolic_tensors():
    x = fk.Input((4, 3))
    assert ops.shape(x) == (None, 4, 3)
    assert ops.ndim(x) == 3
    assert ops.dtype(x) == "float32"
    assert not ops.is_tensor(x)
    model = fk.Model(x, ops.size(x))
    assert model(np.ones((5, 4, 3), "float32")).item() == 60
    assert ops.rearrange(x, "b h w -> b (h w)").shape == (None, 12)
    assert ops.get_item(x, (slice(None), 0)).shape == (None, 3)
    assert ops.one_hot(ops.argmax(x, -1), 3).shape == (None, 4, 3)
    assert [p.shape for p in ops.stft(ops.get_item(x, (slice(None), slice(None), 0)), 2, 1, 2)] == [
        (None, 5, 2)
    ] * 2
    with pytest.raises(TypeError, match="symbolic tensor"):
        ops.convert_to_numpy(x)


ONES = np.ones((2, 5, 2), "float32")
BLOCK = np.ones((2, 2, 2), "float32")


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "read",
    [
        lambda x: ops.get_item(x, (slice(None), 5)),
        lambda x: ops.get_item(x, (slice(None), -6)),
        lambda x: ops.get_item(x, (..., 2)),
        lambda x: ops.get_item(x, (0, None, ..., -3)),
        lambda x: ops.get_item(x, (slice(None), [0, 5])),
        lambda x: ops.get_item(x, (slice(None), np.array([0, -6]))),
        lambda x: ops.take(x, 5, axis=1),
        lambda x: ops.take(x, indices=np.array([[-6]]), axis=-2),
        lambda x: ops.take_along_axis(x, np.full((2, 1, 2), 5), axis=1),
        lambda x: ops.slice(x, (0, 3, 0), (1, 3, 2)),
        lambda x: ops.slice_update(x, (0, 4, 0), BLOCK),
        lambda x: ops.scatter_update(x, [[0, 5, 0]], [1.0]),
        lambda x: ops.scatter_update(x, [[0, -6, 0]], [1.0]),
    ],
)
def test_a_constant_index_outside_of_a_known_axis_is_an_error(read):
    def compute_with_unknown_sizes(array):
        # an axis that is unknown where the call is recorded is known where the model runs
        x = fk.Input((None, 2), batch_size=2)
        return fk.Model(x, read(x))(array)

    for compute, x in (
        (read, fk.Input((5, 2), batch_size=2)),
        (read, ONES),
        (read, jnp.asarray(ONES)),
        (compute_with_unknown_sizes, ONES),
    ):
        with pytest.raises(IndexError, match=r"of axis [12] .* received index"):
            compute(x)


def test_indices_within_an_axis_read_their_rows():
    x = fk.Input((5, 2), name="x")
    array = np.arange(20, dtype="float32").reshape(2, 5, 2)
    mask = np.array([True, False, True, False, True])
    outputs = {
        "last": (x[:, 4], array[:, 4]),
        "first": (x[:, -5], array[:, -5]),
        "slice": (x[:, 3:17], array[:, 3:]),
        "empty": (x[:, 8:10], array[:, 8:10]),
        "mask": (x[:, mask], array[:, mask]),
        "axes": (x[..., None, 1], array[..., None, 1]),
        "block": (ops.slice(x, (0, -2, 0), (2, 2, 2)), array[:, -2:]),
    }
    model = fk.Model(x, {name: tensor for name, (tensor, _) in outputs.items()})
    for name, value in model(array).items():
        np.testing.assert_array_equal(value, outputs[name][1], name)
    with pytest.raises(IndexError, match="received index 7"):
        ops.scatter([[7]], [1.0], (5,))
    with pytest.raises(IndexError, match="received index 6"):
        ops.unravel_index([6], (2, 3))
    with pytest.raises(IndexError, match="received index 2"):
        x[:, mask, 2]
    with pytest.raises(IndexError, match="a start of 3 rows .* received index -2"):
        ops.slice(x, (0, -2, 0), (2, 3, 2))
    with pytest.raises(ValueError, match="expected num=5"):
        ops.unstack(x, num=3, axis=1)


@pytest.mark.exhaustive
def test_computed_indices_outside_of_an_axis_give_nan():
    x, index = fk.Input((5,), name="x"), fk.Input((), batch_size=2, dtype="int32", name="index")
    model = fk.Model([x, index], [x[:, index], ops.take(x, index, axis=1)])
    for value in model([np.ones((1, 5), "float32"), np.array([1, 5], "int32")]):
        np.testing.assert_array_equal(value, [[1.0, np.nan]])


def test_json_round_trip_of_graphs_of_operations():
    x = fk.Input((4, 4, 3), name="x")
    y = ops.image.resize(ops.clip(x, 0.0, 1.0), (2, 2))
    y = ops.moments(ops.nn.relu(y), axes=(1, 2))[0]
    model = fk.Model(x, ops.numpy.where(y > 0.5, y, ops.zeros_like(y)))
    config = json.loads(json.dumps(fk.layers.serialize(model)))
    again = fk.layers.deserialize(config)
    image = np.linspace(0.0, 2.0, 96, dtype="float32").reshape(2, 4, 4, 3)
    actual, expected = jax.jit(lambda x: (model(x), again(x)))(image)
    assert (np.asarray(actual) == np.asarray(expected)).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ops.segment_sum(x, [0, 1]), "num_segments"),
        (lambda x: jax.jit(ops.bincount)(x.astype("int32")[0]), "minlength"),
        (lambda x: ops.pad(x, 1, "reflect", 3.0), "constant_values"),
        (lambda x: ops.qr(x, "r"), "'reduced' or 'complete'"),
        (lambda x: ops.normalize(x, order=0), "positive integer"),
        (lambda x: ops.det(x), "square matrices"),
        (lambda x: ops.cholesky(-np.eye(2, dtype="float32")), "positive definite"),
        (lambda x: ops.one_hot([1], 2, sparse=True), "sparse"),
        (lambda x: ops.where(x > 0, x), "both x1 and x2"),
        (lambda x: ops.select([x > 0], []), "as many conditions"),
        (lambda x: ops.rearrange(x, "a b c -> a b c"), "pattern of 2 axes"),
        (lambda x: ops.rearrange(x, "a (b c) -> a b c"), "sizes of all but one"),
        (lambda x: ops.scatter_update(x, [[0]], x[:1], "mean"), "'add', 'max'"),
        (lambda x: ops.take(x, [0], axis=5), "axis 5 is out of bounds"),
        (lambda x: ops.scatter(1, x[0, :1], (4,)), r"indices \(n, k\)"),
        (
            lambda x: ops.slice_update(x, [0], x[:1]),
            "expected a start index and a size for each of the 2 axes",
        ),
        (lambda x: ops.moments(x, 0, synchronized=True), "synchronized"),
        (lambda x: ops.categorical_crossentropy(x, x[0]), "one shape"),
        (lambda x: ops.ctc_decode(x[None], [2], "best"), "'greedy' or 'beam_search'"),
        (lambda x: ops.stft(x, 2, 0, 2), "sequence_stride"),
        (lambda x: ops.stft(x, 4, 1, 2), "fft_length"),
        (lambda x: ops.fft(x), "pair of arrays"),
        (lambda x: ops.dot_product_attention(x, x, x, attn_logits_soft_cap=1.0), "soft_cap"),
        (lambda x: _sinks(x, np.ones(3, "float32")), r"each of 1 query heads.*\(3,\)"),
        (lambda x: _sinks(x, np.ones(1, "complex64")), r"each of 1 query heads.*complex64 \(1,\)"),
        (lambda x: _sinks(x, x[0, :1], flash_attention=True), "fused kernel has no sinks"),
        (lambda x: _sinks(x, x[0, :1], empty_rows="keras"), "expected empty_rows='zeros'"),
        (lambda x: ops.image.elastic_transform(x[None, :, :, None]), "received None"),
        (lambda x: ops.view_as_complex(x), "size 2"),
        (lambda x: ops.unfold(x, 2), r"\(b, c, h, w\)"),
        (lambda x: ops.depth_to_space(x, 1), "block_size"),
    ],
)
def test_error_messages(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(np.ones((2, 3), "float32"))


@pytest.mark.exhaustive
def test_decoding_an_empty_sequence_gives_no_labels():
    @jax.jit
    def compute(scores):
        return [ops.ctc_decode(scores, [0], s, beam_width=4) for s in ("greedy", "beam_search")]

    for labels, score in jax.device_get(compute(np.zeros((1, 3, 4), "float32"))):
        assert (labels == -1).all()
        assert score == 0


@pytest.mark.exhaustive
def test_beam_search_sums_all_ways_to_write_labels():
    logs = np.array([[[1.0, 0.5, 0.2], [0.3, 1.1, 0.1], [0.2, 0.4, 0.9]]], "float32")
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    totals = {}
    for path in np.ndindex(3, 3, 3):
        merged = [c for i, c in enumerate(path) if i == 0 or path[i - 1] != c]
        label_sequence = tuple(c for c in merged if c != 0)
        chance = float(np.exp(sum(logs[0, t, c] for t, c in enumerate(path))))
        totals[label_sequence] = totals.get(label_sequence, 0.0) + chance
    best = sorted(totals.items(), key=lambda item: -item[1])[:4]
    decode = jax.jit(lambda logs: ops.ctc_decode(logs, [3], "beam_search", 30, 4))
    labels, scores = jax.device_get(decode(logs))
    actual = [tuple(c for c in labels[i, 0].tolist() if c >= 0) for i in range(4)]
    assert actual == [label_sequence for label_sequence, _ in best]
    np.testing.assert_allclose(np.exp(scores[0]), [chance for _, chance in best], 1e-5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("window", ["hann", "hamming", None])
def test_istft_inverts_stft(window):
    # without a window, Keras's result is larger by the factor fft_length / sequence_stride
    x = np.sin(np.arange(48, dtype="float32") ** 1.2)
    turn = jax.jit(
        lambda x: signal.istft(signal.stft(x, 8, 4, 12, window), 8, 4, 12, window=window)
    )
    y = turn(x)
    np.testing.assert_allclose(y, x, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("length", "stride"), [(5, 2), (4, 4), (3, 5), (6, 1)])
def test_overlap_add_is_a_sum_of_frames(length, stride):
    frames = np.random.default_rng(0).normal(size=(2, 4, length)).astype("float32")
    expected = np.zeros((2, length + 3 * stride), "float32")
    for i in range(4):
        expected[:, i * stride : i * stride + length] += frames[:, i]
    actual = jax.jit(lambda frames: signal.overlap_add(frames, stride))(frames)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.exhaustive
def test_decibels_are_cut_below_the_maximum_of_each_signal():
    layer = fk.layers.MelSpectrogram(16, 8, num_mel_bins=3, sampling_rate=800, top_db=20.0)
    x = np.sin(np.arange(40, dtype="float32") ** 1.3)[None] * np.array([[1.0], [1e-4]], "float32")
    in_batch, alone = jax.jit(lambda x: (layer(x)[1:], layer(x[1:])))(x)
    np.testing.assert_allclose(in_batch, alone, atol=1e-4)


def test_spectrograms_reject_impossible_arguments():
    with pytest.raises(ValueError, match="frame_step"):
        fk.layers.STFTSpectrogram(frame_length=4, frame_step=5)
    with pytest.raises(ValueError, match="fft_length"):
        fk.layers.STFTSpectrogram(frame_length=4, fft_length=2)
    with pytest.raises(ValueError, match="sequence_length"):
        fk.layers.MelSpectrogram(4, sequence_length=8)
    with pytest.raises(ValueError, match="window|hamming"):
        fk.layers.STFTSpectrogram(window="hanm")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: ops.reshape(x, (-2, 5)), "reshape: expected sizes of at least 0"),
        (lambda x: ops.reshape(x, (-1, -1)), "reshape: .* at most one of them -1"),
        (lambda x: ops.reshape(x, (0, -1)), "reshape: .* and then no other 0, received"),
        (
            lambda x: ops.reshape(x, np.array([3, 7])),
            r"expected 21 elements, for the shape \(3, 7\), received .* with 20. Change newshape",
        ),
        (
            lambda x: ops.reshape(x, (-1, 7)),
            "expected a multiple of 7 elements, .* received .* with 20",
        ),
        (lambda x: ops.norm(x, ord="fro"), "Improper number of axes"),
        (lambda x: ops.norm(x, ord="fro", axis=1), "Invalid order 'fro' for vector norm"),
        (lambda x: ops.histogram(x), "histogram: expected a vector, received"),
        (lambda x: ops.histogram(x[0, 0], range=(5, 0)), r"range: expected .* received \(5, 0\)"),
    ],
)
def test_arguments_that_keras_rejects_are_rejected(call, words):
    for x in (ONES, fk.Input((5, 2), batch_size=2)):
        with pytest.raises(ValueError, match=words):
            call(x)


@pytest.mark.exhaustive
def test_a_key_seeds_a_recorded_operation():
    x = fk.Input((4, 4, 1))
    keys = (jax.random.key(0), jax.random.key(1), jax.random.key(0, impl="rbg"))
    models = [fk.Model(x, ops.image.elastic_transform(x, 4.0, 1.0, seed=key)) for key in keys]
    again = fk.Model(x, ops.image.elastic_transform(x, 4.0, 1.0, seed=jax.random.key(0)))
    assert models[0] == again and hash(models[0]) == hash(again)
    assert models[0] != models[1] != models[2]
    image = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    for model, key in zip(models, keys, strict=True):
        expected = ops.image.elastic_transform(image, 4.0, 1.0, seed=key)
        np.testing.assert_allclose(model(image), expected, rtol=1e-6)
    with pytest.raises(TypeError, match="KeyConstant has no JSON form"):
        models[0].to_json()


def test_blocks_whose_size_depends_on_a_traced_start():
    x, start = fk.Input(batch_shape=(3, 3)), fk.Input(batch_shape=(2,), dtype="int32")
    model = fk.Model([x, start], ops.slice(x, start, (2, 1)))
    matrix = np.arange(9.0, dtype="float32").reshape(3, 3)
    assert model([matrix, np.array([1, 2], "int32")]).tolist() == [[5.0], [8.0]]
    with pytest.raises(ValueError, match="-1 extends to the end .* which is traced"):
        ops.slice(x, start, (-1, 1))
    assert ops.slice(x, (1, 1), (-1, 1)).shape == (2, 1)


def test_scale_and_translate_keeps_axes_without_a_size():
    x = fk.Input((4, 4, 1))
    options = np.ones(2, "float32"), np.zeros(2, "float32"), (1, 2), "linear"
    y = ops.image.scale_and_translate(x, (None, 5, 5, 1), *options)
    assert y.shape == (None, 5, 5, 1)
    image = np.ones((2, 4, 4, 1), "float32")
    compute = jax.jit(lambda image: ops.image.scale_and_translate(image, (2, 5, 5, 1), *options))
    np.testing.assert_array_equal(fk.Model(x, y)(image), compute(image))
    with pytest.raises(ValueError, match="expected 4 sizes, one for each axis"):
        ops.image.scale_and_translate(image, (5, 5), *options)


@pytest.mark.parametrize(
    ("start", "shape"), [((1, 1), (2, 2, 2)), ((1, 1, 1), (2, 2)), ((1,), (2,))]
)
def test_blocks_have_a_start_and_a_size_for_each_axis(start, shape):
    for x in (fk.Input(batch_shape=(3, 3)), np.ones((3, 3), "float32")):
        with pytest.raises(ValueError, match=r"slice: expected a start .* of the 2 axes, received"):
            ops.slice(x, start, shape)
        with pytest.raises(ValueError, match=r"slice_update: expected a start .* of the 2 axes"):
            ops.slice_update(x, start, np.ones(shape, "float32"))


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("conv", [(7, 7, 3, 2)]),
        ("depthwise_conv", [(7, 7, 3, 2)]),
        ("separable_conv", [(7, 7, 3, 2), (1, 1, 6, 5)]),
    ],
)
def test_a_kernel_larger_than_the_inputs_is_an_error(name, kernels):
    arrays = [jnp.ones(shape) for shape in ((1, 5, 5, 3), *kernels)]
    with pytest.raises(ValueError, match=f"fk.ops.{name}: expected at least 7 cells on axis 1"):
        getattr(ops, name)(*arrays)
    assert 0 not in getattr(ops, name)(*arrays, padding="same").shape


def test_separable_conv_needs_a_pointwise_kernel():
    arrays = [jnp.ones(shape) for shape in ((1, 5, 5, 3), (3, 3, 3, 2), (2, 1, 6, 5))]
    with pytest.raises(ValueError, match=r"pointwise_kernel of shape .* received \(2, 1, 6, 5\)"):
        ops.separable_conv(*arrays)
