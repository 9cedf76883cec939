"""Adapters of single layers: products, merged kernels, initial values, bad arguments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.engine.tree.axes import weight_axis_roles
from fkeras.transforms import IA3, Bottleneck, DoRA, LoRA, SoftPrompt
from fkeras.transforms.intercepting import trace_values

KEY = jax.random.key(0)
X = np.random.default_rng(5).normal(size=(3, 7, 6)).astype("float32")
IDS = np.array([[1, 4, 0], [2, 2, 8]], "int32")
IMAGE = np.random.default_rng(6).normal(size=(2, 5, 5, 3)).astype("float32")


def moved(layer, amount=0.1):
    """Returns an adapted layer whose adapter changes something."""
    tree = jax.tree.map(
        lambda w: w + amount * np.cos(np.arange(w.size, dtype="float32")).reshape(w.shape),
        jax.device_get(transforms.adapters(layer)),
    )
    return transforms.with_adapters(layer, tree)


LAYERS = {
    "dense": (layers.Dense(4, activation="relu", bias_initializer="ones"), X),
    "dense without bias": (layers.Dense(4, use_bias=False), X),
    "einsum": (layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de"), X),
    "einsum with one bias axis": (
        layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="d"),
        X,
    ),
    "einsum over two axes": (layers.EinsumDense("abc,bcd->ad", 4, bias_axes="d"), X),
    "einsum of experts": (layers.EinsumDense("abc,bcd->abd", (None, 4)), X),
    "einsum with ellipsis": (layers.EinsumDense("...c,cd->...d", 4, activation="tanh"), X),
    "einsum with ellipsis on the right": (layers.EinsumDense("ab...,bd->ad...", 4), X),
    "conv1d": (
        layers.Conv1D(4, 3, padding="causal", activation="relu", bias_initializer="ones"),
        X,
    ),
    "conv2d": (layers.Conv2D(4, 3, strides=2, padding="same", bias_initializer="ones"), IMAGE),
    "conv2d channels first": (
        layers.Conv2D(4, (3, 2), data_format="channels_first", bias_initializer="ones"),
        np.moveaxis(IMAGE, -1, 1),
    ),
}
ADAPTERS = [
    LoRA(2, alpha=3),
    LoRA(2, last_axis=True),
    LoRA(4, rank_stabilized=True),
    DoRA(2, alpha=4),
    IA3(),
    IA3("inputs"),
]


@pytest.mark.one_in(33)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("adapter", ADAPTERS, ids=str)
def test_an_adapted_layer_equals_its_base_first_and_its_merged_kernel_later(name, adapter):
    layer, x = LAYERS[name]
    layer = layer.build(KEY, x)
    adapted = transforms.adapt(layer, "*", adapter, KEY)
    np.testing.assert_allclose(adapted(x), layer(x), atol=2e-6)
    adapted = moved(adapted)
    merged = transforms.merge_adapters(adapted)
    assert type(merged) is type(layer)
    np.testing.assert_allclose(merged(x), adapted(x), atol=3e-6)
    assert np.abs(np.subtract(adapted(x), layer(x))).max() > 1e-3


@pytest.mark.exhaustive
@pytest.mark.parametrize("tied", [True, False, None])
def test_an_adapted_embedding_equals_its_merged_table_in_both_directions(tied):
    layer = (
        layers.Embedding(9, 5)
        if tied is None
        else layers.ReversibleEmbedding(9, 5, tied, logit_soft_cap=3.0)
    )
    layer = layer.build(KEY, IDS)
    adapted = moved(transforms.adapt(layer, "*", LoRA(2, alpha=6), KEY))
    merged = transforms.merge_adapters(adapted)
    assert jnp.abs(adapted(IDS) - layer(IDS)).max() > 1e-3
    np.testing.assert_allclose(merged(IDS), adapted(IDS), atol=1e-6)
    if tied is None:
        return
    vectors = X[..., :5]
    logits = adapted(vectors, reverse=True)
    np.testing.assert_allclose(merged(vectors, reverse=True), logits, atol=1e-6)
    assert jnp.abs(logits - layer(vectors, reverse=True)).max() > 1e-3
    assert len(transforms.adapters(adapted).layers) == (1 if tied else 2)


WIDE = fk.initializers.RandomNormal(stddev=1.0)
UNTIED = layers.ReversibleEmbedding(
    9, 6, False, embeddings_initializer=WIDE, logit_soft_cap=3.0, name="table"
)


def untied():
    """A model with untied vectors and logits."""
    ids = fk.Input((3,), dtype="int32", name="ids")
    return fk.Model(ids, UNTIED(layers.Dense(6, name="body")(UNTIED(ids)), reverse=True)).build(KEY)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", [None, "int8", "int4", "int4/4"])
@pytest.mark.parametrize("adapter", [LoRA(2, alpha=6), DoRA(2), IA3(), IA3("inputs")], ids=str)
def test_untied_logits_have_adapters_of_their_own(adapter, mode):
    model = untied() if mode is None else fk.quantize(untied(), mode, "table")
    adapted = transforms.adapt(model, "table/reverse_embeddings", adapter, KEY)
    assert list(transforms.adapters(adapted).layers) == ["table/reverse_embeddings"]
    np.testing.assert_allclose(adapted(IDS), model(IDS), atol=1e-5)
    adapted = moved(adapted)
    floats = adapted if mode is None else fk.dequantize(adapted)
    merged = transforms.merge_adapters(floats)
    # the rounding of inputs differs
    np.testing.assert_allclose(merged(IDS), adapted(IDS), atol=0.05 if mode == "int8" else 2e-6)
    assert jnp.abs(adapted(IDS) - model(IDS)).max() > 1e-3
    table, before = merged.layers["table"], fk.dequantize(model).layers["table"]
    assert type(table) is layers.ReversibleEmbedding
    assert (table.embeddings == before.embeddings).all()
    assert jnp.abs(table.reverse_embeddings - before.reverse_embeddings).max() > 1e-3


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("table", ["table", "table/reverse_embeddings"]),
        (lambda path, layer: isinstance(layer, layers.ReversibleEmbedding), None),
        ("table/embeddings", ["table"]),
        ("table/reverse_embeddings", ["table/reverse_embeddings"]),
        ("table/*", ["table", "table/reverse_embeddings"]),
        ("*", ["table", "table/reverse_embeddings", "body"]),
    ],
)
def test_vectors_and_logits_are_selected_together_or_apart(pattern, paths):
    model = transforms.adapt(untied(), pattern, LoRA(2), KEY)
    assert sorted(transforms.adapters(model).layers) == sorted(
        paths or ["table", "table/reverse_embeddings"]
    )


@pytest.mark.exhaustive
def test_vectors_and_logits_have_ranks_files_and_places_of_their_own(tmp_path):
    model = transforms.adapt(untied(), "table/embeddings", LoRA(2), KEY)
    model = moved(transforms.adapt(model, "table/reverse_embeddings", DoRA(3), KEY))
    fk.save_model(tmp_path / "m.keras", model)
    assert fk.load_model(tmp_path / "m.keras")[0] == model
    tree = transforms.adapters(model)
    assert transforms.with_adapters(untied(), tree) == model
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), tree, tree)
    both = jax.vmap(lambda t: transforms.with_adapters(untied(), t)(IDS))(stacked)
    np.testing.assert_allclose(both[1], model(IDS), atol=1e-6)
    roles = weight_axis_roles(model)
    assert roles["table/adapters/layer/reverse_embeddings/b"] == (None, "vocab")
    assert roles["table/adapters/layer/a"] == ("vocab", None)
    trained = list(fk.engine.trainable_weights(model))
    assert len(trained) == 5 and all("/adapters/" in name for name in trained)


def test_adapters_that_do_not_fit_vectors_or_logits():
    for adapter, path in ((SoftPrompt(2), "reverse_embeddings"), (DoRA(2), "embeddings")):
        with pytest.raises(ValueError, match=f"'table/{path}' cannot be adapted"):
            transforms.adapt(untied(), f"table/{path}", adapter, KEY)
    with pytest.raises(ValueError, match="no layer matches 'table/reverse'"):
        transforms.adapt(untied(), "table/reverse", LoRA(2), KEY)
    with pytest.raises(ValueError, match="no layer matches 'bodi'.*Did you mean 'body'"):
        transforms.adapt(untied(), ["table", "bodi"], LoRA(2), KEY)
    tied = fk.Sequential([fk.Input((3,), dtype="int32"), UNTIED.replace(tie_weights=True)])
    with pytest.raises(ValueError, match="logits of 'table' have the same weights: pass 'table'"):
        transforms.adapt(tied.build(KEY), "table/reverse_embeddings", LoRA(2), KEY)
    with pytest.raises(ValueError, match="'table/reverse_embeddings' has an adapter already"):
        model = transforms.adapt(untied(), "table/reverse_embeddings", LoRA(2), KEY)
        transforms.adapt(model, "table", LoRA(2), KEY)
    with pytest.raises(ValueError, match="would add columns to the logits"):
        transforms.merge_adapters(transforms.adapt(untied(), "table", SoftPrompt(2), KEY))


@pytest.mark.exhaustive
@pytest.mark.parametrize("tied", [True, False])
def test_a_bottleneck_follows_vectors_and_leaves_logits(tied):
    layer = UNTIED.replace(tie_weights=tied)
    ids = fk.Input((3,), dtype="int32", name="ids")
    model = fk.Model(ids, layer(layer(ids), reverse=True)).build(KEY)
    adapted = moved(transforms.adapt(model, "table", Bottleneck(2), KEY))
    assert list(transforms.adapters(adapted).layers) == ["table"]
    table, wrapped = model.layers["table"], adapted.layers["table"]
    assert jnp.abs(wrapped(IDS) - table(IDS)).max() > 1e-3
    vectors = X[..., :6]
    assert (wrapped(vectors, reverse=True) == table(vectors, reverse=True)).all()


class Head(fk.Layer):
    """A layer that computes logits by an embedding inside."""

    table: fk.Layer

    def build(self, key, x):
        return self.replace(table=self.table.build(key, jax.ShapeDtypeStruct((None, 3), "int32")))

    def forward(self, context, x):
        return context.child("table").run(self.table, x, reverse=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("tied", [True, False])
def test_logits_of_an_embedding_inside_a_layer_are_adapted(tied):
    layer = Head(UNTIED.replace(tie_weights=tied)).build(KEY, (None, 7, 6))
    adapted = moved(transforms.adapt(layer, "*", LoRA(2), KEY))
    merged = transforms.merge_adapters(adapted)
    np.testing.assert_allclose(merged(X), adapted(X), atol=2e-6)
    assert np.abs(np.subtract(adapted(X), layer(X))).max() > 1e-3


def test_dora_keeps_the_direction_and_scales_the_norm_of_the_kernel():
    layer = layers.Dense(4, use_bias=False).build(KEY, X)
    adapted = transforms.adapt(layer, "*", DoRA(2), KEY)
    tree = transforms.adapters(adapted)
    dora = tree.layers["."]
    np.testing.assert_allclose(dora.magnitude, np.linalg.norm(layer.kernel, axis=0), rtol=1e-6)
    doubled = tree.replace(layers={".": dora.replace(magnitude=2 * dora.magnitude)})
    y = transforms.with_adapters(layer, doubled)(X)
    np.testing.assert_allclose(y, np.multiply(2, layer(X)), rtol=1e-5)


def test_the_scale_of_lora():
    assert (LoRA(8).scale, LoRA(8, alpha=16).scale) == (1.0, 2.0)
    assert LoRA(16, alpha=8, rank_stabilized=True).scale == 2.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["int8", "int4", "int4/4", "float8"])
@pytest.mark.parametrize("adapter", [LoRA(2), DoRA(2), IA3()], ids=str)
def test_adapters_over_quantized_weights(mode, adapter):
    layer = fk.quantize(
        layers.Dense(4, activation="relu", bias_initializer="ones").build(KEY, X), mode
    )
    adapted = transforms.adapt(layer, "*", adapter, KEY)
    np.testing.assert_allclose(adapted(X), layer(X), atol=1e-5)
    adapted = moved(adapted)
    # inputs are rounded too in some modes, so the floats are near, and the codes are equal
    floats = transforms.merge_adapters(fk.dequantize(adapted))
    assert jnp.abs(adapted(X) - floats(X)).max() < 0.15
    with pytest.raises(ValueError, match="Merge floats, then quantize"):
        transforms.merge_adapters(adapted)


@pytest.mark.exhaustive
def test_an_embedding_of_codes_with_an_adapter():
    layer = fk.quantize(layers.ReversibleEmbedding(9, 5).build(KEY, IDS), "int4")
    adapted = moved(transforms.adapt(layer, "*", LoRA(2), KEY))
    floats = transforms.merge_adapters(fk.dequantize(adapted))
    np.testing.assert_allclose(adapted(IDS), floats(IDS), atol=1e-6)


@pytest.mark.exhaustive
def test_dropout_of_lora_acts_in_training_only():
    adapted = moved(transforms.adapt(layers.Dense(4).build(KEY, X), "*", LoRA(2, dropout=0.5), KEY))
    value = adapted.apply(X, training=True, key=KEY).value
    assert jnp.abs(value - adapted(X)).max() > 1e-3
    assert (adapted.apply(X, key=KEY).value == adapted(X)).all()
    with pytest.raises(ValueError, match="needs a key"):
        adapted.apply(X, training=True)


@pytest.mark.exhaustive
def test_a_bottleneck_adds_two_products_after_the_activation():
    layer = layers.Dense(4, activation="relu").build(KEY, X)
    adapted = moved(transforms.adapt(layer, "*", Bottleneck(2, activation="gelu"), KEY))
    one = adapted.adapters["layer"]
    down, down_bias, up, up_bias = map(np.asarray, jax.tree.leaves(one))
    y = np.asarray(layer(X))
    inner = np.asarray(jax.nn.gelu(y @ down + down_bias, approximate=False))
    expected = y + inner @ up + up_bias
    np.testing.assert_allclose(adapted(X), expected, atol=1e-6)
    with pytest.raises(ValueError, match="an activation of its own"):
        transforms.merge_adapters(adapted)


@pytest.mark.exhaustive
def test_a_soft_prompt_has_ids_after_those_of_the_table():
    layer = layers.Embedding(9, 5, mask_zero=True).build(KEY, IDS)
    adapted = transforms.adapt(layer, "*", SoftPrompt(2), KEY)
    prompt = adapted.adapters["layer"].prompt
    ids = jnp.array([[9, 10, 3, 0]])
    assert adapted.prompt_ids.tolist() == [9, 10]
    out = adapted.apply(ids)
    np.testing.assert_array_equal(out.value[0, :2], prompt)
    np.testing.assert_array_equal(out.value[0, 2], layer.embeddings[3])
    assert out.mask.tolist() == [[True, True, True, False]]
    assert jnp.isnan(adapted(jnp.array([[11]]))).all()
    assert adapted.id_count == 11
    merged = transforms.merge_adapters(adapted)
    assert merged.input_dim == 11
    np.testing.assert_array_equal(merged(ids), out.value)


def test_a_soft_prompt_of_tied_weights_changes_no_logits():
    layer = layers.ReversibleEmbedding(9, 5).build(KEY, IDS)
    adapted = transforms.adapt(layer, "*", SoftPrompt(2), KEY)
    logits = adapted(X[..., :5], reverse=True)
    np.testing.assert_array_equal(logits, layer(X[..., :5], reverse=True))
    with pytest.raises(ValueError, match="would add columns to the logits"):
        transforms.merge_adapters(adapted)


def test_the_penalty_of_the_output_is_that_of_the_adapted_output():
    layer = layers.Dense(4, activation="relu", activity_regularizer="l2").build(KEY, X)
    adapted = moved(transforms.adapt(layer, "*", LoRA(2), KEY))
    merged = transforms.merge_adapters(adapted)
    np.testing.assert_allclose(adapted.apply(X).losses[0], merged.apply(X).losses[0], rtol=1e-5)


def test_adapters_of_a_bfloat16_layer_are_trained_in_float32():
    layer = layers.Dense(4, dtype="bfloat16").build(KEY, X)
    adapted = moved(transforms.adapt(layer, "*", LoRA(2), KEY))
    assert adapted.adapters["layer"].a.dtype == "float32"
    assert adapted(X).dtype == "bfloat16"
    assert transforms.merge_adapters(adapted).kernel.dtype == "bfloat16"
    kept = transforms.merge_adapters(adapted, dtype="float32")
    assert kept.kernel.dtype == kept.bias.dtype == "float32"
    assert kept.policy.name == "mixed_bfloat16"
    assert kept(X).dtype == "bfloat16"


def test_axes_of_the_factors_have_the_letters_of_the_kernel():
    layer = layers.Dense(64).build(KEY, X)
    adapted = transforms.adapt(layer, "*", LoRA(2), KEY)
    roles = weight_axis_roles(adapted)
    assert roles["adapters/layer/a"] == (None, None)
    assert roles["adapters/layer/b"] == (None, "hidden")
    attention = layers.MultiHeadAttention(2, 3).build(KEY, X, X)
    roles = weight_axis_roles(transforms.adapt(attention, "query_dense", LoRA(2), KEY))
    assert roles["adapters/layer/query_dense/b"] == (None, "heads", None)
    assert roles["layer/query_dense/kernel"] == (None, "heads", None)
    # packed codes have fewer axes than the factors
    coded = transforms.adapt(fk.quantize(attention, "int4"), "*", LoRA(2), KEY)
    roles = weight_axis_roles(coded)
    assert roles["adapters/layer/query_dense/b"] == (None, "heads", None)
    assert roles["adapters/layer/output_dense/a"] == ("heads", None, None)
    assert roles["layer/query_dense/kernel"] == (None, "heads")
    assert roles["layer/output_dense/kernel"] == ("heads", None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 0}, "LoRA: rank: expected"),
        ({"rank": 1.5}, "LoRA: rank: expected"),
        ({"alpha": 0}, "LoRA: alpha: expected"),
        ({"dropout": 2}, "LoRA: dropout: expected"),
        ({"a_initializer": "zeroes"}, "zeros"),
    ],
)
def test_bad_arguments_of_lora(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        LoRA(**arguments)


def test_bad_arguments_of_other_adapters():
    with pytest.raises(ValueError, match="IA3: scales: expected"):
        IA3("kernel")
    with pytest.raises(ValueError, match="Bottleneck: units: expected"):
        Bottleneck(0)
    with pytest.raises(ValueError, match="SoftPrompt: length: expected"):
        SoftPrompt(-1)
    with pytest.raises(ValueError, match="Adapted: adapters: expected a dictionary of adapters"):
        fk.layers.adapters.Adapted(layers.Dense(2), {"layer": layers.Dense(2)})


def test_unfreezing_a_model_leaves_the_base_of_an_adapter_frozen():
    adapted = transforms.adapt(layers.Dense(4).build(KEY, X), "*", LoRA(2), KEY)
    again = fk.unfreeze(fk.freeze(adapted))
    assert again == adapted
    assert list(fk.engine.trainable_weights(fk.freeze(adapted))) == []


def test_a_layer_is_built_from_its_configuration_with_fresh_adapters():
    adapted = transforms.adapt(
        layers.MultiHeadAttention(2, 3).build(KEY, X, X), "*_dense", LoRA(2), KEY
    )
    again = layers.deserialize(layers.serialize(adapted))
    assert not again.built
    again = again.build(KEY, X, X)
    assert jax.tree.map(jnp.shape, again) == jax.tree.map(jnp.shape, adapted)
    wrong = again._unbuilt().replace(adapters={"layer/query": LoRA(2)})
    with pytest.raises(ValueError, match="has no layer 'layer/query'"):
        wrong.build(KEY, X, X)


class Direct(fk.Layer):
    """A layer that calls the layers inside without its context."""

    up: fk.Layer
    table: fk.Layer

    def build(self, key, x):
        table = self.table.build(key, jax.ShapeDtypeStruct((None, 3), "int32"))
        return self.replace(up=self.up.build(key, x), table=table)

    def call(self, x):
        return self.table(self.up(x), reverse=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("adapter", [LoRA(2), DoRA(2), IA3()], ids=str)
def test_layers_that_are_called_without_a_context_are_adapted(adapter):
    layer = Direct(layers.Dense(6, activation="relu"), UNTIED).build(KEY, (None, 7, 6))
    adapted = moved(transforms.adapt(layer, ["up", "table/reverse_embeddings"], adapter, KEY))
    assert len(transforms.adapters(adapted).layers) == 2
    merged = transforms.merge_adapters(adapted)
    for call in (lambda f: f(X), lambda f: jax.jit(f)(X), lambda f: jax.vmap(f)(X[:, None])):
        np.testing.assert_allclose(call(merged), call(adapted), atol=1e-5)
    for name in ("up", "table/reverse_embeddings"):
        one = moved(transforms.adapt(layer, name, adapter, KEY))
        assert jnp.abs(one(X) - layer(X)).max() > 1e-3
    slopes = jax.grad(lambda tree: transforms.with_adapters(layer, tree)(X).sum())(
        transforms.adapters(adapted)
    )
    assert all(jnp.abs(slope).max() > 0 for slope in jax.tree.leaves(slopes))


@pytest.mark.exhaustive
def test_an_interception_of_a_layer_inside_shows_the_adapted_output():
    attention = layers.MultiHeadAttention(2, 3, name="attention").build(KEY, X, X)
    x = fk.Input((7, 6), name="x")
    model = fk.Model(x, attention(x, x))
    adapted = moved(transforms.adapt(model, "attention/query_dense", LoRA(2), KEY))
    calls = trace_values(adapted, fk.Context(), X)
    (call,) = (call for call in calls if call.path.endswith("query_dense"))
    merged = transforms.merge_adapters(adapted).layers["attention"].query_dense
    np.testing.assert_allclose(call.output.value, merged(X), atol=1e-5)
