"""Adapted models: what is trained, files, quantization, several adapters, equivalences, errors."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers, transforms
from fkeras.transforms import IA3, Bottleneck, DoRA, LoRA

KEY = jax.random.key(0)
IDS = jax.random.randint(jax.random.key(3), (4, 6), 0, 11)


def block(i):
    h = fk.Input((6, 8), name="h")
    z = layers.LayerNormalization(name="norm")(h)
    z = h + layers.MultiHeadAttention(2, 4, name="attention")(z, z)
    up = layers.Dense(16, activation="gelu", name="up")(z)
    return fk.Model(h, z + layers.Dense(8, name="down")(up), name=f"block_{i}")


@functools.cache
def decoder():
    ids = fk.Input((6,), dtype="int32", name="ids")
    embedding = layers.ReversibleEmbedding(11, 8, name="embedding")
    h = embedding(ids)
    for i in range(3):
        h = block(i)(h)
    return fk.Model(ids, embedding(h, reverse=True)).build(KEY)


PATTERN = ["block_*/attention", "block_*/up"]


def shifted(tree, amount=0.05):
    return jax.tree.map(lambda w: w + amount, tree)


@functools.cache
def adapted():
    model = transforms.adapt(decoder(), PATTERN, LoRA(2, alpha=4), KEY)
    return transforms.with_adapters(model, shifted(transforms.adapters(model)))


def same(a, b):
    return all((x == y).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@pytest.mark.exhaustive
def test_adapters_are_the_only_trained_weights_and_names_stay():
    model = transforms.adapt(decoder(), PATTERN, LoRA(2), KEY)
    np.testing.assert_array_equal(model(IDS), decoder()(IDS))
    trained = list(fk.engine.trainable_weights(model))
    assert len(trained) == 3 * 5 * 2
    assert all("/adapters/" in name for name in trained)
    assert list(model.layers) == list(decoder().layers)
    assert model.graph == decoder().graph
    # the base is shared: no array is copied
    ids = {id(leaf) for leaf in jax.tree.leaves(decoder())}
    assert ids <= {id(leaf) for leaf in jax.tree.leaves(model)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("depth", ["unroll", "scan"])
def test_training_changes_the_adapters_only(depth):
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    trainer = fk.Trainer(optimizer=fk.optimizers.Adam(1e-2), loss=loss, depth=depth)
    run = trainer.init(adapted(), KEY)
    assert trainer.evaluate(run, IDS, IDS, verbose=0)["loss"] > 0
    fitted = trainer.fit(run, np.asarray(IDS), np.asarray(IDS), epochs=2, batch_size=4, verbose=0)
    before, after = transforms.adapters(adapted()), transforms.adapters(fitted.run.model)
    assert not same(before, after)
    assert same(fk.partition(adapted())[1], fk.partition(fitted.run.model)[1])
    count = sum(leaf.size for leaf in jax.tree.leaves(before))
    moments = [leaf.size for leaf in jax.tree.leaves(fitted.run.opt_state) if leaf.ndim]
    assert sum(moments) == 2 * count


@pytest.mark.exhaustive
def test_merged_adapters_make_the_model_of_the_base():
    merged = transforms.merge_adapters(adapted())
    assert not transforms.adapting.places.take_out(merged)[1]
    np.testing.assert_allclose(merged(IDS), adapted()(IDS), atol=1e-6)
    fresh = transforms.adapt(decoder(), PATTERN, LoRA(2), KEY)
    assert transforms.merge_adapters(fresh) == fk.freeze(decoder())
    assert {type(l).__name__ for l in merged.layers.values()} == {
        type(l).__name__ for l in decoder().layers.values()
    }


@pytest.mark.exhaustive
def test_the_merged_model_is_compared_where_that_is_asked_for(monkeypatch):
    merged = transforms.merge_adapters(adapted(), check=np.asarray(IDS))
    assert merged == transforms.merge_adapters(adapted())
    with monkeypatch.context() as patch:
        patch.setattr(LoRA, "merged", lambda _, layer: {"kernel": 2 * np.asarray(layer.kernel)})
        with pytest.raises(
            ValueError, match="merge_adapters, check: the result disagrees first in"
        ):
            _ = transforms.merge_adapters(adapted(), check=np.asarray(IDS))


@pytest.mark.exhaustive
def test_eight_adapters_in_one_program_equal_eight_runs():
    trees = [shifted(transforms.adapters(adapted()), 0.01 * i) for i in range(8)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    together = jax.jit(jax.vmap(lambda tree: transforms.with_adapters(decoder(), tree)(IDS)))(
        stacked
    )
    for i, tree in enumerate(trees):
        alone = transforms.with_adapters(decoder(), tree)(IDS)
        np.testing.assert_allclose(together[i], alone, atol=2e-6)
    assert np.abs(together[0] - together[7]).max() > 1e-3
    # each row of a batch with an adapter of its own
    rows = jax.vmap(lambda tree, ids: transforms.with_adapters(decoder(), tree)(ids[None])[0])
    four = rows(jax.tree.map(lambda leaf: leaf[:4], stacked), IDS)
    np.testing.assert_allclose(four[3], together[3, 3], atol=2e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("adapter", [LoRA(2, alpha=4), DoRA(2), IA3(), Bottleneck(2)], ids=str)
def test_a_file_keeps_an_adapted_model(adapter, tmp_path):
    pattern = "block_*" if isinstance(adapter, Bottleneck) else PATTERN
    model = transforms.adapt(decoder(), pattern, adapter, KEY)
    model = transforms.with_adapters(model, shifted(transforms.adapters(model)))
    fk.save_model(tmp_path / "m.keras", model)
    loaded, _ = fk.load_model(tmp_path / "m.keras")
    assert loaded == model
    assert not transforms.diff(loaded, model)
    assert transforms.fingerprint(loaded, weights=True) == transforms.fingerprint(
        model, weights=True
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".weights.h5"])
def test_a_weight_file_keeps_the_adapters(suffix, tmp_path):
    tree = transforms.adapters(adapted())
    fk.save_weights(tmp_path / f"a{suffix}", tree)
    loaded, _ = fk.load_weights(tmp_path / f"a{suffix}", jax.tree.map(jnp.zeros_like, tree))
    assert loaded == tree


@pytest.mark.exhaustive
def test_adapters_have_their_configuration_and_the_fingerprint_of_the_base():
    tree = transforms.adapters(adapted(), weights=True)
    assert tree.layers["block_0/up"].scale == 2
    assert tree.base == transforms.fingerprint(fk.freeze(decoder()))
    assert transforms.adapters(transforms.with_adapters(decoder(), tree), weights=True) == tree
    other = decoder().replace(
        layers={**decoder().layers, "embedding": shifted(decoder().layers["embedding"])}
    )
    with pytest.raises(ValueError, match="other weights of this model"):
        transforms.with_adapters(other, tree)
    plain = transforms.adapters(adapted())
    assert transforms.adapters(transforms.with_adapters(other, plain)) == plain
    quantized = fk.quantize(decoder(), "int8")
    with pytest.raises(ValueError, match="made for another model"):
        transforms.with_adapters(quantized, plain)
    assert transforms.with_adapters(quantized, plain.replace(base=None))(IDS).shape == (4, 6, 11)


@pytest.mark.exhaustive
def test_quantizing_before_and_after():
    coded = fk.quantize(decoder(), "int4")
    model = transforms.adapt(coded, PATTERN, LoRA(2), KEY)
    np.testing.assert_allclose(model(IDS), coded(IDS), atol=1e-6)
    tree = transforms.adapters(adapted()).replace(base=None)
    before = transforms.with_adapters(coded, tree)
    after = fk.quantize(adapted(), "int4")
    np.testing.assert_allclose(before(IDS), after(IDS), atol=1e-6)
    assert after == before or transforms.agree(after, before, IDS)
    merged = transforms.merge_adapters(fk.dequantize(after))
    np.testing.assert_allclose(merged(IDS), fk.dequantize(after)(IDS), atol=1e-6)


@pytest.mark.exhaustive
def test_codes_chosen_with_samples_keep_the_activation_of_an_adapted_layer():
    x = jax.random.normal(KEY, (32, 8))
    model = fk.Sequential([fk.Input((8,)), layers.Dense(8, activation="relu", name="a")]).build(KEY)
    model = transforms.adapt(model, "a", LoRA(2), KEY)
    small = fk.quantize(model, "gptq/8/8", samples=x)
    assert small.layers["a"].layer.layer.activation is fk.activations.relu
    np.testing.assert_allclose(small(x), model(x), atol=0.05)


def full_rank_gradients(x, y):
    dense = fk.Sequential([fk.Input((5,)), layers.Dense(3, name="d")]).build(KEY)
    dense = dense.replace(layers={"d": dense.layers["d"].replace(bias=jnp.zeros(3))})
    lora = LoRA(5, alpha=5, a_initializer="identity")
    assert lora.scale == 1

    def loss(model):
        return jnp.square(model(x) - y).mean()

    def only(name):
        return lambda path, g: g if path[0].key.endswith(name) else jnp.zeros_like(g)

    return dense, transforms.adapt(dense, "d", lora, KEY), loss, only


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adam(0.05)], ids=["sgd", "adam"])
def test_lora_of_full_rank_equals_training_the_kernel(optimizer):
    x, y = jax.random.normal(KEY, (8, 5)), jax.random.normal(jax.random.key(1), (8, 3))
    dense, lora, loss, only = full_rank_gradients(x, y)

    @functools.partial(jax.jit, static_argnums=2)
    def step(model, opt_state, name):
        trained, frozen = fk.partition(model)
        gradients = jax.grad(lambda trained: loss(fk.combine(trained, frozen)))(trained)
        # A stays the identity, and the bias stays as it is
        gradients = jax.tree_util.tree_map_with_path(only(name), gradients)
        deltas, opt_state = optimizer.update(gradients, opt_state, trained)
        return fk.combine(optax.apply_updates(trained, deltas), frozen), opt_state

    states = [optimizer.init(fk.partition(model)[0]) for model in (dense, lora)]
    with jax.numpy_dtype_promotion("standard"):  # optax adds Python's numbers to arrays
        for _ in range(10):
            dense, states[0] = step(dense, states[0], "kernel")
            lora, states[1] = step(lora, states[1], "layer/b")
    np.testing.assert_allclose(lora(x), dense(x), atol=2e-6)
    merged = transforms.merge_adapters(lora).layers["d"].kernel
    np.testing.assert_allclose(merged, dense.layers["d"].kernel, atol=1e-6)


@pytest.mark.exhaustive
def test_several_calls_of_adapt_and_their_order():
    model = transforms.adapt(decoder(), "block_0/up", LoRA(2), KEY)
    model = transforms.adapt(model, "block_0/down", IA3(), KEY)
    model = transforms.adapt(model, "block_1/attention/query_dense", LoRA(3), KEY)
    model = transforms.adapt(model, "block_1/attention/value_dense", LoRA(3), KEY)
    assert sorted(transforms.adapters(model).layers) == [
        *("block_0/down", "block_0/up"),
        *("block_1/attention/query_dense", "block_1/attention/value_dense"),
    ]
    model = transforms.adapt(model, "block_0", Bottleneck(2), KEY)
    model = transforms.with_adapters(model, shifted(transforms.adapters(model)))
    assert jnp.abs(model(IDS) - decoder()(IDS)).max() > 1e-3
    # a network with an adapter of its own keeps the adapters inside
    plain = transforms.adapters(model)
    without = plain.replace(layers={k: v for k, v in plain.layers.items() if k != "block_0/up"})
    other = transforms.with_adapters(model, without)
    assert jnp.abs(model(IDS) - other(IDS)).max() > 1e-4
    with pytest.raises(ValueError, match="'block_0/down' has an adapter already"):
        transforms.adapt(model, "block_0/down", LoRA(2), KEY)


def test_another_layer_draws_the_same_adapter():
    one = transforms.adapters(transforms.adapt(decoder(), "block_0/up", LoRA(2), KEY))
    all_blocks = transforms.adapters(transforms.adapt(decoder(), "*", LoRA(2), KEY))
    assert one.layers["block_0/up"] == all_blocks.layers["block_0/up"]
    assert "embedding" in all_blocks.layers
    assert len(all_blocks.layers) == 1 + 3 * 6


@pytest.mark.exhaustive
def test_layers_split_over_devices_compute_the_same():
    mesh = jax.make_mesh((2, 2), ("data", "model"), devices=jax.devices()[:4])
    loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
    losses = []
    for options in (
        {},
        {"mesh": mesh, "sharding": {"batch": "data", "heads": "model", "hidden": "model"}},
    ):
        trainer = fk.Trainer(optimizer=fk.optimizers.Adam(1e-2), loss=loss, **options)
        run = trainer.init(adapted(), KEY)
        fitted = trainer.fit(
            run, np.asarray(IDS), np.asarray(IDS), epochs=2, batch_size=4, verbose=0
        )
        losses.append(fitted.history.history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    query = fitted.run.model.layers["block_0"].layers["attention"].adapters["layer/query_dense"]
    assert tuple(query.b.sharding.spec)[:2] == (None, "model")


@pytest.mark.exhaustive
def test_rolled_blocks_keep_their_adapters():
    rolled = transforms.roll(adapted())
    np.testing.assert_allclose(rolled(IDS), adapted()(IDS), atol=1e-6)
    assert transforms.unroll(rolled) == adapted()


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".jax", pytest.param(".onnx", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("mode", [None, "int4/4"])
def test_an_exported_model_computes_batches_of_any_size(suffix, mode, tmp_path):
    x = fk.Input((None, 6), name="x")
    y = layers.EinsumDense("abc,cde->abde", (None, 2, 4), name="heads")(x)
    y = layers.EinsumDense("abcd,cde->abe", (None, 6), name="out")(y)
    model = fk.Model(x, layers.Dense(5, activation="relu", name="up")(y)).build(KEY)
    model = model if mode is None else fk.quantize(model, mode)
    model = transforms.adapt(model, "*", LoRA(2), KEY)
    model = transforms.with_adapters(model, shifted(transforms.adapters(model)))
    path = tmp_path / f"model{suffix}"
    fk.export(model, {}, path)
    for shape in ((3, 7, 6), (1, 2, 6)):
        array = np.asarray(jax.random.normal(KEY, shape))
        if suffix == ".jax":
            value = jax.export.deserialize(path.read_bytes()).call(array)
        else:
            session = pytest.importorskip("onnxruntime").InferenceSession(path)
            (value,) = session.run(None, {"x": array})
        np.testing.assert_allclose(value, model(array), atol=1e-5)


@pytest.mark.exhaustive
def test_the_calls_inside_an_adapted_layer_agree():
    again = transforms.with_adapters(decoder(), transforms.adapters(adapted()))
    assert transforms.agree(adapted(), again, IDS)
    assert not transforms.agree(adapted(), decoder(), IDS)


@pytest.mark.parametrize(
    ("model", "pattern", "adapter", "error", "message"),
    [
        (lambda: 3, "*", LoRA(2), TypeError, "expected a layer or model, received int"),
        (decoder, "up", LoRA(2), ValueError, "no layer matches 'up'"),
        (decoder, "q_proj", LoRA(2), ValueError, r"Its layers are: .*\*/query_dense, \*/key_dense"),
        (decoder, "block_*/norm", LoRA(2), ValueError, "LoRA adapts no layer that matches"),
        (decoder, ["block_0/up", "block_0/norm"], LoRA(2), ValueError, "'block_0/norm' cannot be"),
        (decoder, layers.Dense(2, name="up"), LoRA(2), TypeError, "received the layer"),
        (decoder, ("embedding", 0), LoRA(2), TypeError, "coordinates"),
        (decoder, "embedding", LoRA, TypeError, "expected an adapter, received LoRA"),
        (decoder, "embedding", "lora", TypeError, "expected an adapter, received str"),
        (decoder, "embedding", DoRA(2), ValueError, "DoRA adapts no embeddings"),
        (decoder, "embedding", IA3(), ValueError, "'embedding' cannot be adapted: IA3 scales"),
        (lambda: fk.engine.unbuilt(decoder()), "*", LoRA(2), ValueError, "has no weights yet"),
    ],
)
def test_bad_arguments_of_adapt(model, pattern, adapter, error, message):
    with pytest.raises(error, match=message):
        transforms.adapt(model(), pattern, adapter, KEY)


def test_a_bad_key_and_models_without_adapters():
    with pytest.raises((TypeError, ValueError), match="transforms.adapt"):
        transforms.adapt(decoder(), "*", LoRA(2), 3)
    for function in (transforms.adapters, transforms.merge_adapters):
        with pytest.raises(ValueError, match="has no adapters"):
            function(decoder())
    with pytest.raises(TypeError, match="expected adapters, received dict"):
        transforms.with_adapters(decoder(), {})
    with pytest.raises(ValueError, match="dtype: expected a floating-point dtype"):
        transforms.merge_adapters(adapted(), dtype="int8")
    grouped = layers.Conv1D(4, 3, groups=2).build(KEY, (None, 8, 4))
    with pytest.raises(ValueError, match="a grouped convolution"):
        transforms.adapt(grouped, "*", LoRA(2), KEY)
    with pytest.raises(fk.engine.FKerasError, match="received a traced array"):
        jax.jit(transforms.merge_adapters)(adapted())


def test_weights_of_another_shape_are_reported():
    tree = transforms.adapters(adapted())
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), tree)
    with pytest.raises(ValueError, match="expected 'a' of shape .* inside jax.vmap"):
        transforms.with_adapters(decoder(), stacked)
    missing = tree.replace(layers={"block_9/up": tree.layers["block_0/up"]}, base=None)
    with pytest.raises(ValueError, match="has no layer 'block_9/up'. Did you mean"):
        transforms.with_adapters(decoder(), missing)


def test_a_merged_sum_that_is_not_finite_is_reported():
    tree = jax.tree.map(lambda leaf: jnp.full_like(leaf, 1e30), transforms.adapters(adapted()))
    with pytest.raises(ValueError, match="is not finite in float32"):
        transforms.merge_adapters(transforms.with_adapters(decoder(), tree))
