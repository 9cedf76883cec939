"""Short files that ask for much computation or memory are rejected, or open as quickly as others."""

import json
import math
import re
import time
import zipfile

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkeras as fk
from fkeras.engine.messages.errors import suggest
from fkeras.nn.normalization import spectral_norm
from fkeras.optimizers.muon import orthogonal
from fkeras.saving.trained.resource_limits import trials
from tests.support.legacy_files import model_file


def saved(path, model, **training):
    model = model.build(jax.random.key(0))
    fk.save_model(path, model, model.init_state(), **training)
    return path


def changed(path, change):
    """Changes the configuration of a file and returns its path."""
    with zipfile.ZipFile(path) as file:
        members = {name: file.read(name) for name in file.namelist()}
    config = json.loads(members["config.json"])
    change(config)
    with zipfile.ZipFile(path, "w") as file:
        for name, data in {**members, "config.json": json.dumps(config)}.items():
            file.writestr(name, data)
    return path


def layers_of(config):
    return {layer["config"]["name"]: layer["config"] for layer in config["config"]["layers"]}


def network(layer, shape, **options):
    x = fk.Input(shape, name="x", **options)
    return fk.Model(x, layer(x))


@pytest.mark.exhaustive
def test_many_power_iterations_compile_to_a_loop(tmp_path):
    layer = fk.layers.SpectralNormalization(fk.layers.Dense(3), always=True, name="norm")
    path = saved(tmp_path / "m.keras", network(layer, (4,)))
    changed(path, lambda c: layers_of(c)["norm"].update(power_iterations=10**9))
    model, _ = fk.load_model(path)
    assert model.layers["norm"].power_iterations == 10**9


# layer, a shape that it takes, argument of the configuration, values beyond 64 bits and the limit
LARGE_CALLS = {
    "padding": (
        fk.layers.ZeroPadding2D(1),
        (4, 4, 3),
        "padding",
        ([[0, 2**40], [0, 2**40]], [[0, 2**17], [0, 2**17]]),
    ),
    "pixels": (fk.layers.UpSampling2D(2), (4, 4, 3), "size", ([2**40] * 2, [2**17] * 2)),
    "strides": (fk.layers.Conv2DTranspose(2, 2), (4, 4, 3), "strides", ([2**40] * 2, [2**17] * 2)),
    "rows": (fk.layers.RepeatVector(2), (4,), "n", (2**62, 2**36)),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", LARGE_CALLS)
def test_files_whose_calls_allocate_too_much_are_rejected(tmp_path, name):
    layer, shape, argument, values = LARGE_CALLS[name]
    path = saved(tmp_path / "m.keras", network(layer.replace(name="large"), shape))
    fk.load_model(path)
    for value, words in zip(values, (r"2\*\*63 bytes", r"limits=fk.Limits\(call_"), strict=True):
        changed(path, lambda c, value=value: layers_of(c)["large"].update({argument: value}))
        with pytest.raises(fk.FileError, match=f"'large'.*{words}"):
            fk.load_model(path)


def test_the_limit_of_calls_names_the_layer_of_an_inner_model(tmp_path):
    inner = fk.Sequential([fk.Input((4,)), fk.layers.RepeatVector(100, name="rows")], name="inner")
    path = saved(tmp_path / "m.keras", network(inner, (4,)))
    with pytest.raises(fk.FileError, match="layer 'rows' computes an array of 1600 bytes"):
        fk.load_model(path, limits=fk.Limits(call_bytes=1599))
    fk.load_model(path, limits=fk.Limits(call_bytes=1600))


@pytest.mark.exhaustive
@pytest.mark.parametrize("iterations", [1, 2, 8, 9, 30])
def test_the_loop_computes_the_unrolled_iterations(iterations):
    kernel = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    u = start = np.ones((1, 3), "float32")
    sigma, vector = spectral_norm(kernel, u, iterations)
    for _ in range(iterations):
        v = u @ kernel.T / np.linalg.norm(u @ kernel.T)
        u = v @ kernel / np.linalg.norm(v @ kernel)
    np.testing.assert_allclose(vector, u, rtol=1e-5)
    np.testing.assert_allclose(sigma, (v @ kernel @ u.T)[0, 0], rtol=1e-5)
    # the derivative of the largest singular value is the product of its vectors
    slope = jax.grad(lambda k: spectral_norm(k, start, iterations)[0])(kernel)
    np.testing.assert_allclose(slope, v.T @ u, rtol=1e-4, atol=1e-6)


def test_many_steps_of_muon_compile_to_a_loop():
    x = jnp.diag(jnp.array([3.0, 0.5]))
    many = jax.make_jaxpr(lambda x: orthogonal(x, 2.0, -1.5, 0.5, 10**9))(x)
    assert len(str(many)) < 10**4
    np.testing.assert_allclose(orthogonal(x, 2.0, -1.5, 0.5, 50), np.eye(2), atol=1e-5)


CHAIN = ",".join(f"z{a}{b}" for a, b in zip("abcdefghijkl", "bcdefghijklm"))
CASES = {
    "units": (fk.layers.LSTM(2, name="bad"), (3, 2), {"units": 2**27}, "shape"),
    "filters": (fk.layers.ConvLSTM1D(2, 1, name="bad"), (3, 2, 2), {"filters": 2**27}, "shape"),
    "windows": (fk.layers.AdaptiveAveragePooling1D(3, name="bad"), (5, 2), {}, "windows"),
    "diff": (lambda x: fk.ops.diff(x, n=2, axis=1), (5, 2), {"n": 10**7}, "iterations"),
    "einsum": (
        lambda x: fk.ops.einsum(f"{CHAIN}->zam", *[x] * 12, optimize="greedy"),
        (2, 2),
        {"optimize": "optimal"},
        "orders",
    ),
    "unstack": (lambda x: fk.ops.unstack(x, axis=1)[0], (5, 2), {}, "parts"),
    "split": (lambda x: fk.ops.split(x, 5, axis=1)[0], (5, 2), {}, "parts"),
    "blur": (
        lambda x: fk.ops.image.gaussian_blur(x, kernel_size=(3, 3)),
        (5, 5, 2),
        {"kernel_size": [10**7, 10**7]},
        "window",
    ),
    "stft": (lambda x: fk.ops.stft(x, 4, 2, 8)[0], (2, 16), {"fft_length": 10**9}, "call_bytes"),
    "window": (
        lambda x: fk.ops.stft(x, 4, 2, 8, center=False)[0],
        (2, 16),
        {"sequence_length": 10**9, "fft_length": 10**9},
        "window",
    ),
    "pad": (
        lambda x: fk.ops.pad(x, [[0, 0], [1, 1], [1, 1]], mode="reflect"),
        (5, 2),
        {"pad_width": [[0, 0], [10**9, 1], [1, 1]]},
        "iterations",
    ),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", list(CASES))
def test_sizes_beyond_the_file_are_rejected(name, tmp_path):
    layer, shape, changes, word = CASES[name]
    path = saved(tmp_path / "m.keras", network(layer, shape))

    def change(config):
        first, second = config["config"]["layers"][:2]
        assert first["class_name"] == "InputLayer"
        text = json.dumps(second)
        if not changes:  # the size of the input itself
            first["config"]["batch_shape"][1] = 10**9
            text = re.sub(r"\[null, 5, 2\]", "[null, 1000000000, 2]", text)
            text = text.replace('"indices_or_sections": 5', '"indices_or_sections": 1000000000')
        layer_config = json.loads(text)
        containers = [
            layer_config["config"],
            *(node["kwargs"] for node in layer_config["inbound_nodes"]),
        ]
        for key, value in changes.items():
            container = next((p for p in containers if key in p), None)
            assert container is not None, (key, layer_config)
            container[key] = value
        config["config"]["layers"][1] = layer_config

    changed(path, change)
    with pytest.raises(fk.FileError, match=word):
        fk.load_model(path)


@pytest.mark.exhaustive
def test_a_carry_of_a_billion_rows_is_rejected(tmp_path):
    layer = fk.layers.LSTM(2, stateful=True, name="bad")
    path = saved(tmp_path / "m.keras", network(layer, (3, 2), batch_size=4))

    def change(config):
        text = json.dumps(config).replace("[4, 3, 2]", "[1000000000, 3, 2]")
        config.update(json.loads(text))

    changed(path, change)
    with pytest.raises(fk.FileError, match="made_bytes"):
        fk.load_model(path)
    layer = {"name": "bad", "units": 1, "stateful": True, "batch_input_shape": [10**9, 3, 2]}
    config = {"class_name": "Sequential", "config": [{"class_name": "LSTM", "config": layer}]}
    ones = {"kernel": (2, 4), "recurrent_kernel": (1, 4), "bias": (4,)}
    weights = {"bad": {f"{k}:0": np.ones(s, "float32") for k, s in ones.items()}}
    path = tmp_path / "m.h5"
    path.write_bytes(model_file(config, weights))
    with pytest.raises(fk.FileError, match="made_bytes"):
        fk.load_model(path)


@pytest.mark.parametrize(
    ("name", "config", "word"),
    [
        ("MeanIoU", {"num_classes": 10**5}, "made_bytes"),
        ("AUC", {"num_thresholds": 10**9}, "num_t"),
    ],
)
def test_metrics_beyond_the_limit_in_legacy_files_are_rejected(name, config, word, tmp_path):
    layer = {"name": "d", "units": 1, "use_bias": False, "batch_input_shape": [None, 2]}
    model = {"class_name": "Sequential", "config": [{"class_name": "Dense", "config": layer}]}
    metrics = [{"class_name": name, "config": config}]
    optimizer = {"class_name": "SGD", "config": {"lr": 0.1}}
    training = {"loss": "mse", "metrics": metrics, "optimizer_config": optimizer}
    weights = {"d": {"kernel:0": np.ones((2, 1), "float32")}}
    path = tmp_path / "m.h5"
    path.write_bytes(model_file(model, weights, training=training))
    fk.load_model(path)
    with pytest.raises(fk.FileError, match=word):
        fk.load_training(path)


ENDLESS = [
    "(a+)+$",
    "(.*.*)*x",
    "(a(?#b)+)+$",
    "(a|a)*b",
    "(?:a?){4000000000}",
    "(.|.)*" * 9 + "x",
    ".*" * 30 + "x",
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("pattern", ENDLESS)
def test_patterns_with_catastrophic_backtracking_are_rejected(pattern, tmp_path):
    name = "a" * 60
    model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1, name=name)])
    path = tmp_path / "m.keras"

    def pairs(config):
        map_config = config["compile_config"]["optimizer"]["config"]["optimizer_map"]["config"]
        map_config["patterns"][0][0] = f"re:{pattern}"

    def keras(config):
        map_config = config["compile_config"]["optimizer"]["config"]["optimizer_map"]["config"]
        map_config["optimizer_map"] = {pattern: list(map_config["optimizer_map"].values())[0]}
        del map_config["patterns"]

    def muon(config):
        config["compile_config"]["optimizer"]["config"]["exclude_layers"] = [pattern]

    multi_optimizer = fk.optimizers.MultiOptimizer({"re:.*bias": "sgd", "*": "adam"})
    for optimizer, change in (
        (multi_optimizer, pairs),
        (multi_optimizer, keras),
        (fk.optimizers.Muon(), muon),
    ):
        saved(path, model, trainer=fk.Trainer(optimizer, "mse"))
        fk.load_training(path)
        changed(path, change)
        with pytest.raises(fk.FileError, match="backtrack"):
            fk.load_training(path)


USUAL = [".*/(kernel|bias)", "encoder/.*", r"dense_\d+/kernel", "(?:(?!head/).)*", "a/.*|b/.*|c/.*"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("pattern", USUAL)
def test_usual_patterns_have_a_low_cost(pattern):
    assert trials(pattern, 100) < 1e6


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("(a+)+", math.inf),  # nested quantifiers
        ("(?:a{2,}){3,}", math.inf),
        ("(a*)*+", math.inf),
        ("(?>a+)+", 1e4),  # an atomic group gives nothing back
        ("(?:a++)+", 1e4),
        ("(ab|cd|ab)*", math.inf),  # alternations
        ("(a|b|c)*", 200),
        (r"(?:x|\.|\d)*", 200),
        ("(?:.|a|.)*", math.inf),
        ("(?=(a+)+)b", math.inf),  # look-arounds
        ("(?!a*)b", 200),
        ("(?<!a)b(?<=ab)", 10),
        ("[]a*+]*", 200),  # classes
        (r"[^\]*]+x", 500),
        (r"[\[]*", 200),
        (r"\(\*\)\+", 10),  # escapes
        (r"\x41\u0042\101\0*", 200),
        (r"\\*", 200),
        ("(?P<word>a*)(?P=word)", 2e4),  # references
        (r"(a*)\1*", 2e6),
        ("(a)?(?(1)b*|c*)", 500),
        ("(?#a+b*)a", 10),  # comments and flags
        ("a(?#b)*c", 500),  # the quantifier repeats the part before the comment
        ("(a(?#b)+)+$", math.inf),
        ("(?i)a(?s-i:b*)", 200),
        ("(?x) a *", math.inf),
        ("a{}b{,c}{1", 10),  # braces that are characters
        ("a{3}{2", 10),
        ("(a", math.inf),  # invalid
    ],
)
def test_the_structure_of_patterns(pattern, limit):
    count = trials(pattern, 100)
    assert count > 1e20 if limit == math.inf else count <= limit


# patterns as `(text, tree)`: the matcher below runs the tree and needs no parser
_QUANTIFIERS = {
    "*": (0, 99),
    "+": (1, 99),
    "?": (0, 1),
    "{2}": (2, 2),
    "{1,3}": (1, 3),
    "*?": (0, 99),
}
pieces = st.recursive(
    st.sampled_from([(text, ("one", text)) for text in ("a", "b", ".", "[ab]", "^", "$", r"\b")]),
    lambda inner: st.one_of(
        inner.map(lambda p: (f"({p[0]})", p[1])),
        st.tuples(inner, st.sampled_from(sorted(_QUANTIFIERS))).map(
            lambda pair: (
                f"(?:{pair[0][0]}){pair[1]}",
                ("repeat", *_QUANTIFIERS[pair[1]], pair[0][1]),
            )
        ),
        st.tuples(inner, inner).map(
            lambda pair: (f"(?:{pair[0][0]}|{pair[1][0]})", ("branch", pair[0][1], pair[1][1]))
        ),
        st.tuples(inner, inner).map(
            lambda pair: (pair[0][0] + pair[1][0], ("both", pair[0][1], pair[1][1]))
        ),
        inner.map(lambda p: (f"(?!{p[0]})", ("not", p[1]))),
    ),
    max_leaves=8,
)


@pytest.mark.exhaustive
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(piece=pieces, text=st.text("ab", min_size=12, max_size=12))
def test_a_backtracking_matcher_tries_no_more_than_was_counted(piece, text):
    pattern, tree = piece
    limit = trials(pattern, len(text))
    if limit < 1e5:
        assert _count_steps(tree, text) <= 4 * limit + 50


def _count_steps(tree, text):
    """Counts the steps of a plain backtracking matcher, which merges no alternatives."""
    count = 0

    def match(tree, at, then):
        nonlocal count
        kind, *parts = tree
        if kind == "both":
            return match(parts[0], at, lambda end: match(parts[1], end, then))
        if kind == "branch":
            if _is_class(tree):
                return match(("one", "[ab]"), at, then)
            return any([match(part, at, then) for part in parts])
        if kind == "not":
            return not match(parts[0], at, lambda end: True) and then(at)
        if kind == "repeat":
            least, most, inner = parts

            def again(number, start):
                def after(end):
                    return end > start and again(number + 1, end)

                if number < min(most, len(text) + 1) and match(inner, start, after):
                    return True
                return number >= least and then(start)

            return again(0, at)
        count += 1
        if parts[0] in ("^", "$", r"\b"):
            return then(at)
        return at < len(text) and parts[0] in (text[at], ".", "[ab]") and then(at + 1)

    match(tree, 0, lambda end: False)
    return count


def _is_class(tree):
    """Whether `re` reads two alternatives as one class of characters."""
    return all(part[0] == "one" and part[1] in ("a", "b", "[ab]") for part in tree[1:])


@pytest.mark.exhaustive
def test_hundreds_of_metrics_of_one_name_load_quickly(tmp_path):
    """Regression: the search for unique names took cubic time in the number of metrics."""
    model = network(fk.layers.Dense(1), (2,))
    path = saved(tmp_path / "m.keras", model, trainer=fk.Trainer("sgd", "mse", ["mae"]))
    changed(path, lambda c: c["compile_config"].update(metrics=["mae"] * 600))
    start = time.process_time()
    assert len(fk.load_training(path)[1].metrics) == 601
    assert time.process_time() - start < 15


@pytest.mark.exhaustive
def test_suggestions_skip_thousands_of_long_names():
    rng = np.random.default_rng(0)
    names = ["".join(rng.choice(["a", "b"], 150)) for _ in range(5000)]
    start = time.process_time()
    assert suggest(names[0], names) == "" and suggest(names[0][:40], names) == ""
    assert suggest("dens", [*names[:9], "dense"]) == " Did you mean 'dense'?"
    assert time.process_time() - start < 5


def test_a_stored_name_that_is_not_a_string_is_ignored(tmp_path):
    """Regression: the attribute "name" of a group is an array (`tools/stress/fuzz_files.py`)."""
    model = network(fk.layers.Dense(2, name="d"), (3,)).build(jax.random.key(0))
    path = tmp_path / "m.weights.h5"
    fk.save_weights(path, model)
    with h5py.File(path, "r+") as file:
        file["layers/dense/vars"].attrs["name"] = np.array([1.5, 2.5])
    assert fk.load_weights(path, model)[0] == model
