"""Calls on inputs with unknown axes: an unknown axis fits any axis, as in Keras."""

import itertools
import logging
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, ops
from fkeras.engine.call.unknown_axes import numbers_in, trials
from fkeras.engine.values.spec import Spec
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(3)
ONES = np.ones((5, 4), "float32")


def _input(library, *shape, **options):
    return library.Input(shape, **options)


# id: a function of (library, layers, ops), and the static shapes where they are more exact than Keras's
FORMS = {
    "add": (lambda k, la, o: _input(k, None, 4) + _input(k, 5, 4), [(None, 5, 4)]),
    "add-table": (lambda k, la, o: _input(k, None, 4) + ONES, [(None, 5, 4)]),
    "Add": (lambda k, la, o: la.Add()([_input(k, None, 4), _input(k, 5, 4)]), [(None, 5, 4)]),
    "Concatenate": (
        lambda k, la, o: la.Concatenate()([_input(k, None, 4), _input(k, 5, 4)]),
        [(None, 5, 8)],
    ),
    "twice": (
        lambda k, la, o: o.concatenate([x := _input(k, None, 4), x], axis=1) + x,
        [(None, None, 4)],
    ),
    "upsampled": (
        lambda k, la, o: la.Add()(
            [la.UpSampling2D()(_input(k, None, None, 3)), _input(k, None, None, 3)]
        ),
        [(None, None, None, 3)],
    ),
    "split": (lambda k, la, o: o.split(_input(k, None, 4), 2, axis=1), [(None, None, 4)] * 2),
    "squeeze": (lambda k, la, o: o.squeeze(_input(k, None, 1, 4)), [(None, None, 4)]),
    "Reshape": (lambda k, la, o: la.Reshape((3, 5))(_input(k, None)), [(None, 3, 5)]),
    "Reshape-open": (lambda k, la, o: la.Reshape((-1, 5))(_input(k, None, 4)), [(None, None, 5)]),
    "Reshape-three": (
        lambda k, la, o: la.Reshape((4, 2, 2))(_input(k, None, None, None)),
        [(None, 4, 2, 2)],
    ),
    "Reshape-batch": (
        lambda k, la, o: la.Reshape((4, 3))(_input(k, None, 3, batch_size=4)),
        [(4, 4, 3)],
    ),
    "Reshape-multiple": (
        lambda k, la, o: la.Reshape((-1, 7))(_input(k, None, 3)),
        [(None, None, 7)],
    ),
    "reshape": (lambda k, la, o: o.reshape(_input(k, None, 4), (-1, 3, 5)), [(None, 3, 5)]),
    "reshape-batch": (
        lambda k, la, o: o.reshape(_input(k, None, 3, batch_size=2), (6, 4)),
        [(6, 4)],
    ),
    "reshape-multiple": (lambda k, la, o: o.reshape(_input(k, 5), (-1, 7, 3)), [(None, 7, 3)]),
    "split-multiple": (
        lambda k, la, o: o.split(_input(k, None, 4), 7, axis=1),
        [(None, None, 4)] * 7,
    ),
    "associative_scan": (
        lambda k, la, o: o.associative_scan(lambda a, b: a + b, _input(k, None, 4), axis=1),
        [(None, None, 4)],
    ),
    "pad_images": (
        lambda k, la, o: o.image.pad_images(
            _input(k, None, None, 3), 2, 2, target_height=20, target_width=30
        ),
        [(None, 20, 30, 3)],
    ),
    "crop_images": (
        lambda k, la, o: o.image.crop_images(
            _input(k, None, None, 3),
            top_cropping=2,
            left_cropping=3,
            target_height=5,
            target_width=6,
        ),
        [(None, 5, 6, 3)],
    ),
    "slice": (
        lambda k, la, o: o.slice(
            k.Input(batch_shape=(2, 8, 4)),
            (0, k.Input(batch_shape=(), dtype="int32"), 0),
            (2, 3, 4),
        ),
        [(2, 3, 4)],
    ),
    "conv-channels": (
        lambda k, la, o: o.conv(_input(k, 8, 8, None), np.ones((3, 3, 4, 5), "float32")),
        [(None, 6, 6, 5)],
    ),
    "matmul": (lambda k, la, o: o.matmul(_input(k, 3, None), _input(k, 4, 2)), [(None, 3, 2)]),
    "attention": (
        lambda k, la, o: la.Attention()([_input(k, None, 4), _input(k, 7, 4), _input(k, None, 4)]),
        [(None, None, 4)],
    ),
    "repeat": (lambda k, la, o: o.repeat(_input(k, 2), [1, 2], axis=1), [(None, 3)]),
    "repeat-array": (
        lambda k, la, o: o.repeat(_input(k, None), np.array([1, 2]), axis=1),
        [(None, 3)],
    ),
    "unroll": (lambda k, la, o: la.LSTM(3, unroll=True)(_input(k, None, 2)), [(None, 3)]),
    "maximum": (lambda k, la, o: o.maximum(_input(k, None, 4), _input(k, 5, 4)), [(None, 5, 4)]),
    "broadcast_to": (lambda k, la, o: o.broadcast_to(_input(k, None, 4), (2, 5, 4)), [(2, 5, 4)]),
}


def _fits(exact, shape):
    return len(exact) == len(shape) and all(b is None or a == b for a, b in zip(exact, shape))


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", FORMS)
def test_an_unknown_axis_fits_any_axis(name):
    form, expected = FORMS[name]
    with jax.numpy_rank_promotion("allow"):
        shapes = [tensor.shape for tensor in jax.tree.leaves(form(fk, layers, ops))]
    assert shapes == expected
    with keras_rules():
        reference = jax.tree.leaves(form(keras, keras.layers, keras.ops))
    if name != "repeat-array":  # Keras does not know the size
        assert all(map(_fits, shapes, (tuple(tensor.shape) for tensor in reference)))


def test_sizes_that_never_fit_are_an_error_when_recorded():
    words = r"expected 12 elements per sample, .*\(b, 4, 3\), received \(b, d1, 5\) with 5\*d1"
    with pytest.raises(ValueError, match=words):
        layers.Reshape((4, 3))(fk.Input((None, 5)))
    with pytest.raises(ValueError, match="a multiple of 0 elements"):
        layers.Reshape((-1, 0))(fk.Input((None, 5)))


def _fixing(x, y):
    """Calls that fix sizes of their inputs, in each of which JAX cannot compare symbolic sizes."""
    x = layers.Dense(3, kernel_regularizer="l2", name="dense")(x)
    x = layers.Add(name="add")([x, y])
    x = layers.BatchNormalization(name="norm")(layers.ActivityRegularization(0.1, name="reg")(x))
    return layers.Reshape((4, 3), name="reshape")(layers.Dropout(0.1, name="dropout")(x)), x


def test_a_nested_network_may_fix_sizes_as_its_calls_do():
    inputs = [fk.Input((None, 3)), fk.Input((4, 3))]
    network = fk.Model(inputs, _fixing(*inputs), name="inner")
    x, y = fk.Input((None, 3)), fk.Input((4, 3), dtype="int32")
    outputs = network([x, y])
    assert [t.shape for t in outputs] == [(None, 4, 3)] * 2
    node = outputs[0].node
    assert (node.losses, node.penalties, node.updates, node.metrics) == (1, 1, True, ())
    outer = fk.Model([x, y], outputs).build(KEY)
    a, b = np.ones((2, 4, 3), "float32"), np.ones((2, 4, 3), "int32")
    state = outer.init_state()
    for ours, expected in zip(
        outer.apply([a, b], state=state).value,
        outer.layers["inner"].apply([a, b * 1.0], state=state["inner"]).value,
        strict=True,
    ):
        np.testing.assert_array_equal(ours, expected)
    with pytest.raises(ValueError, match="'add'"):
        outer.apply([a[:, :3], b], state=state)


def test_masks_of_a_nested_network_that_fixes_sizes():
    inputs = fk.Input((None, 2))
    network = fk.Model(inputs, layers.LSTM(2, return_sequences=True)(inputs + ONES[None, :, :2]))
    masked = layers.Masking()(fk.Input((None, 2)))
    open_mask = network(masked).node.signature.masks[0]
    assert open_mask is not None and open_mask.ndim == 2
    assert network(fk.Input((None, 2))).node.signature.masks == (None,)
    explicit = network(fk.Input((None, 2)), mask=fk.Input((None,), dtype="bool"))
    assert explicit.node.signature.masks[0] is not None
    unmasked = network(masked, mask=[None])
    assert unmasked.node.signature.masks == (None,)


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_files_of_networks_that_fix_sizes_equal_keras(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger("absl"), "disabled", True)  # warns about .h5
    la, path = keras.layers, tmp_path / f"m.{suffix}"
    with keras_rules():
        inner = keras.Sequential([la.Reshape((4, 3)), la.Dense(2)])
        first, second = inputs = [keras.Input((None, 3)), keras.Input((4, 3))]
        summed = keras.Model(inputs, la.Add()(inputs))
        outputs = summed([la.Conv1D(3, 1)(first), second])
        reference = keras.Model(inputs, inner(outputs))
        x, y = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype("float32")
        expected = reference.predict_on_batch([x, y])
        reference.save(path)
    model, state = fk.load_model(path)
    np.testing.assert_allclose(
        model.apply([x, y], state=state).value, expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.exhaustive
def test_known_sizes_that_differ_stay_an_error_when_recorded():
    with pytest.raises(TypeError, match=r"shapes that broadcast, received \(b, 5, 4\) and"):
        fk.Input((5, 4)) + fk.Input((7, 4))
    with pytest.raises(ValueError, match="they differ on axis 2"):
        layers.Concatenate()([fk.Input((None, 5, 4)), fk.Input((None, 7, 4))])


def test_a_proved_relation_keeps_its_name():
    x = fk.Input((None, 4))
    doubled = ops.concatenate([x, x], axis=1)
    assert doubled.spec.dims == ("b", "2*d1", 4)
    assert layers.Add()([doubled, doubled]).spec.dims == ("b", "2*d1", 4)
    assert ops.concatenate([doubled, x], axis=1).spec.dims == ("b", "3*d1", 4)


def test_two_axes_without_a_proof_give_a_new_axis():
    x = fk.Input((None, 4))
    mixed = ops.concatenate([x, x], axis=1) + x
    assert mixed.spec.dims == ("b", "d1_2", 4)
    first, second = ops.split(x, 2, axis=1)
    assert first.spec == second.spec and first.spec.dims[1] not in x.spec.dims


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "function",
    [
        ops.nonzero,
        lambda x: ops.where(x > 0),
        lambda x: ops.lift(jnp.unique)(x),
        lambda x: ops.lift(lambda x: x[x > 0])(x),
    ],
    ids=["nonzero", "where", "unique", "index"],
)
def test_results_of_unknown_size_are_refused_with_a_reason(function):
    with pytest.raises(fk.FKerasError, match=r"depends on the numbers in the inputs .*size=8"):
        function(fk.Input((2,)))


def test_trials_try_equal_names_then_equal_axes_then_sizes_of_the_call():
    specs = [Spec(("b", "2*d1")), Spec(("b", "d1")), Spec((5,))]
    shapes = [[s.shape for s in low] for _, low, *_ in trials(specs, [7])]
    assert shapes[0] == [(64, 128), (64, 64), (5,)]
    assert shapes[4] == [(64, 64), (64, 64), (5,)]
    assert [(64, 7), (64, 64), (5,)] in shapes
    assert len(shapes) < 60
    assert not list(trials([Spec((5,))], []))
    assert numbers_in({"a": (3, 5)}, [True, 2]) == [3, 5, 15, 2]
    assert numbers_in((1, 0, -1), 4) == [1, 4]


# -- networks over images of any size -----------------------------------------------------


def _unet(library, la, rank, levels, model):
    """A U-Net: each level pools, upsamples and concatenates."""
    pool, up, conv = (getattr(la, f"{n}{rank}D") for n in ("MaxPooling", "UpSampling", "Conv"))
    x = inputs = library.Input((None,) * rank + (2,), name="images")
    skips = []
    for level in range(levels):
        x = conv(2, 3, padding="same", activation="relu", name=f"down_{level}")(x)
        skips.append(x)
        x = pool(name=f"pool_{level}")(x)
    for level, skip in enumerate(reversed(skips)):
        x = la.Concatenate(name=f"join_{level}")([up(name=f"up_{level}")(x), skip])
        x = conv(2, 3, padding="same", name=f"up_conv_{level}")(x)
    return model(inputs, x)


def _pyramid(library, la, rank, levels, model):
    """A feature pyramid: strided convolutions, and sums with upsampled coarser levels."""
    up, conv = (getattr(la, f"{n}{rank}D") for n in ("UpSampling", "Conv"))
    x = inputs = library.Input((None,) * rank + (2,), name="images")
    maps = []
    for level in range(levels):
        x = conv(3, 3, strides=2, padding="same", name=f"stage_{level}")(x)
        maps.append(conv(2, 1, name=f"lateral_{level}")(x))
    outputs = [maps[-1]]
    for level, lateral in enumerate(reversed(maps[:-1])):
        outputs.append(la.Add(name=f"sum_{level}")([up(name=f"up_{level}")(outputs[-1]), lateral]))
    return model(inputs, outputs)


def _wave(library, la, rank, levels, model):
    """A wave-U-Net: decimation by strides, and transposed convolutions."""
    x = inputs = library.Input((None, 2), name="images")
    skips = []
    for level in range(levels):
        x = la.Conv1D(2, 5, padding="same", activation="tanh", name=f"down_{level}")(x)
        skips.append(x)
        x = la.Conv1D(2, 2, strides=2, name=f"half_{level}")(x)
    for level, skip in enumerate(reversed(skips)):
        x = la.Conv1DTranspose(2, 2, strides=2, name=f"double_{level}")(x)
        x = la.Concatenate(name=f"join_{level}")([x, skip])
    return model(inputs, la.Conv1D(1, 1, name="out")(x))


NETWORKS = {
    **{f"unet-{r}d-{n}": (_unet, r, n) for r in (1, 2, 3) for n in (3, 4, 5)},
    "pyramid-2d-4": (_pyramid, 2, 4),
    "wave-4": (_wave, 1, 4),
}
_QUICK = ("unet-2d-3", "wave-4")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in _QUICK else pytest.mark.exhaustive) for n in NETWORKS],
)
def test_networks_over_any_size_equal_keras(name, tmp_path):
    make, rank, levels = NETWORKS[name]
    with keras_rules():
        reference = make(keras, keras.layers, rank, levels, keras.Model)
    model = make(fk, layers, rank, levels, fk.Model)
    with keras_rules():
        converted, state = fk.from_keras(reference)
    model = model.build(KEY).set_weights(converted.get_weights(state), {})[0]
    shapes = [tensor.shape for tensor in jax.tree.leaves(model.outputs)]
    assert shapes == [tuple(t.shape) for t in jax.tree.leaves(reference.outputs)]

    size = 2**levels
    x = np.random.default_rng(0).normal(size=(2, *(size * 2,) * rank, 2)).astype("float32")
    with keras_rules():
        expected = jax.tree.leaves(reference(x))
    for each in (model, converted):
        for a, b in zip(jax.tree.leaves(each(x)), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

    path = tmp_path / "model.keras"
    with keras_rules():
        reference.save(path)
    loaded = fk.load_model(path)
    np.testing.assert_array_equal(*(jax.tree.leaves(m(x))[-1] for m in (loaded.model, converted)))
    fk.save_model(path, model, {})
    opened = keras.models.load_model(path)
    assert opened.input_shape == reference.input_shape
    np.testing.assert_allclose(jax.tree.leaves(opened(x))[-1], expected[-1], rtol=1e-5, atol=1e-5)

    wrong = np.zeros((1, *(size + 1,) * rank, 2), "float32")
    if make is not _pyramid:
        with pytest.raises(ValueError, match=r"'join_.*they differ on axis 1"):
            model(wrong)


@pytest.mark.exhaustive
def test_programs_of_a_unet_take_multiples(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = _unet(fk, layers, 2, 3, fk.Model).build(KEY)
    fk.export(model, {}, tmp_path / "unet.jax")
    fk.export(model, {}, tmp_path / "unet.onnx")
    program = jax.export.deserialize((tmp_path / "unet.jax").read_bytes())
    session = onnxruntime.InferenceSession(str(tmp_path / "unet.onnx"))
    for shape in ((1, 8, 16, 2), (3, 24, 8, 2)):
        x = np.random.default_rng(1).normal(size=shape).astype("float32")
        np.testing.assert_allclose(program.call(x), model(x), rtol=1e-5, atol=1e-6)
        (y,) = session.run(None, {"images": x})
        np.testing.assert_allclose(y, model(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"8\*d1"):
        program.call(np.zeros((1, 12, 16, 2), "float32"))


@pytest.mark.exhaustive
def test_a_program_that_fits_no_multiple_names_the_argument_shapes(tmp_path):
    x, y = fk.Input((None, 2)), fk.Input((None, 2))
    model = fk.Model([x, y], layers.Add()([layers.UpSampling1D()(x), y])).build(KEY)
    with pytest.raises(fk.FKerasError, match=r"shapes="):
        fk.export(model, {}, tmp_path / "a.jax")
    fk.export(model, {}, tmp_path / "a.jax", shapes=[(None, "t", 2), (None, "2*t", 2)])
    program = jax.export.deserialize((tmp_path / "a.jax").read_bytes())
    assert program.call([np.ones((1, 3, 2), "float32"), np.ones((1, 6, 2), "float32")]).shape == (
        1,
        6,
        2,
    )


@pytest.mark.exhaustive
def test_training_and_vmap_of_a_unet():
    model = _unet(fk, layers, 1, 3, fk.Model)
    trainer = fk.Trainer("sgd", "mse")
    run = trainer.init(model, KEY)
    x = np.random.default_rng(2).normal(size=(4, 16, 2)).astype("float32")
    run, history = trainer.fit(run, x, x, epochs=2, batch_size=2, verbose=0)
    assert history["loss"][1] < history["loss"][0]
    many = jax.vmap(run.model)(np.stack([x, x]))
    np.testing.assert_allclose(many[1], run.model(x), rtol=1e-5, atol=1e-6)


# -- random networks ----------------------------------------------------------------------


def _random_network(seed, library, la, model):
    """A network of random layers over an unknown axis; equal for equal seeds."""
    draw, number = random.Random(seed), itertools.count()
    inputs = library.Input((None, 4), name="x")
    tensors = [inputs]

    def unary(x):
        name = f"layer_{next(number)}"
        return draw.choice(
            [
                lambda: la.Conv1D(4, draw.choice([1, 3]), padding="same", name=name)(x),
                lambda: la.Conv1D(4, 2, strides=2, name=name)(x),
                lambda: la.MaxPooling1D(2, padding=draw.choice(["same", "valid"]), name=name)(x),
                lambda: la.UpSampling1D(2, name=name)(x),
                lambda: la.ZeroPadding1D((1, 1), name=name)(x),
                lambda: la.Dense(4, name=name)(x),
                lambda: la.Cropping1D((1, 1), name=name)(x),
                lambda: la.LSTM(4, return_sequences=True, name=name)(x),
            ]
        )()

    for _ in range(6):
        if draw.random() < 0.35:
            pair = [draw.choice(tensors), draw.choice(tensors)]
            kind = draw.choice([la.Add, la.Maximum, la.Concatenate])
            joined = kind(name=f"layer_{next(number)}")(pair)
            if kind is la.Concatenate:
                joined = la.Dense(4, name=f"layer_{next(number)}")(joined)
            tensors.append(joined)
        else:
            tensors.append(unary(draw.choice(tensors)))
    return model(inputs, tensors[1:])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=[] if s < 4 else pytest.mark.exhaustive) for s in range(40)]
)
def test_random_networks_over_an_unknown_axis_equal_keras(seed):
    with keras_rules():
        reference = _random_network(seed, keras, keras.layers, keras.Model)
    model = _random_network(seed, fk, layers, fk.Model)
    shapes = [tuple(t.shape) for t in reference.outputs]
    assert [t.shape for t in model.outputs] == shapes
    model = model.build(KEY)
    for name, layer in model.layers.items():
        weights = layer.get_weights()
        if weights:
            reference.get_layer(name).set_weights(weights)
    for size in (64, 61):
        x = np.random.default_rng(seed).normal(size=(2, size, 4)).astype("float32")
        try:
            with keras_rules():
                expected = reference(x)
        except Exception:
            with pytest.raises((TypeError, ValueError)):
                model(x)
            continue
        for a, b in zip(model(x), expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
