"""Caches of whole models: `init_cache(batch, length)`, decoding, and the room of caches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, masks, transforms

IDS = np.random.default_rng(0).integers(0, 11, (3, 8)).astype("int32")


def _block(x, positions, index, mask):
    z, steps = fk.Input((None, 8)), fk.Input((None,), dtype="int32")
    heads = [
        layers.EinsumDense("abc,cde->abde", (None, n, 4), name=name)(z)
        for name, n in (("query", 4), ("key", 2), ("value", 2))
    ]
    q, k = layers.RotaryEmbedding(name="rotary")(heads[:2], steps)
    y = layers.DotProductAttention(mask, name="attention")(q, k, heads[2], steps)
    y = layers.EinsumDense("abcd,cde->abe", (None, 8), name="output")(y)
    return fk.Model([z, steps], z + y, name=f"block_{index}")([x, positions])


def _decoder(*block_masks):
    ids = fk.Input((None,), dtype="int32", name="ids")
    segments = fk.Input((None,), dtype="int32", name="segments", optional=True)
    positions = layers.Positions(name="positions")(ids, segments)
    x = layers.Embedding(11, 8, embeddings_initializer="normal", name="embedding")(ids)
    for index, mask in enumerate(block_masks):
        x = _block(x, positions, index, mask)
    x = layers.BatchNormalization(name="norm")(x)
    return fk.Model([ids, segments], x, name="decoder").build(jax.random.key(0))


CAUSAL = masks.Causal()


@functools.cache
def decoder():
    return _decoder(CAUSAL & masks.Window(3), CAUSAL)


@functools.cache
def first_state():
    return decoder().init_state()


@pytest.fixture(scope="module")
def full():
    return np.asarray(decoder()(IDS, state=first_state()))


def _decode(model, pieces, mask=None, **options):
    state, values, start = model.init_cache(3, 10, **options), [], 0
    for size in pieces:
        part = slice(start, start + size)
        out = model.apply(IDS[:, part], state=state, mask=None if mask is None else mask[:, part])
        state, start = state | out.updates, start + size
        values.append(out.value)
    return np.concatenate(values, axis=1), state


def test_a_state_with_caches():
    state = decoder().init_cache(3, 10, slack=2)
    shapes = jax.tree.map(lambda a: a.shape, state)
    assert shapes["positions"] == {"length": (3,)}
    assert shapes["block_0"]["attention"]["keys"] == (3, 5, 2, 4)
    assert shapes["block_1"]["attention"]["keys"] == (3, 10, 2, 4)
    assert shapes["block_1"]["attention"]["positions"] == (3, 10)
    assert state["norm"].keys() == first_state()["norm"].keys()
    assert first_state().keys() == {"norm"}
    block = decoder().layers["block_1"]
    assert block.init_cache(3, 10).keys() == {"attention"}
    spec = jax.ShapeDtypeStruct((3, 8), "int32")
    assert (
        jax.tree.map(lambda a: a.shape, decoder().init_cache(3, 10, [spec, None], slack=2))
        == shapes
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize("slack", [0, 2])
def test_prefill_and_decode_are_the_graph_of_training(full, slack):
    for pieces in ([1] * 8, [6, 1, 1], [2, 6]):
        y, state = _decode(decoder(), pieces, slack=slack)
        np.testing.assert_allclose(y, full, atol=1e-5)
        assert state["positions"]["length"].tolist() == [8, 8, 8]


@pytest.mark.exhaustive
def test_rows_have_their_own_lengths(full):
    lengths = np.array([8, 3, 5])
    mask = np.arange(8)[None] < lengths[:, None]
    y, state = _decode(decoder(), [6, 2], mask)
    np.testing.assert_allclose(y[mask], full[mask], atol=1e-5)
    assert state["positions"]["length"].tolist() == lengths.tolist()
    out = decoder().apply(IDS[:, :1], state=state)
    for row, length in enumerate(lengths):
        text = np.concatenate([IDS[row, :length], IDS[row, :1]])[None]
        np.testing.assert_allclose(
            out.value[row, 0], decoder()(text, state=first_state())[0, -1], atol=1e-5
        )


@pytest.mark.exhaustive
def test_decoding_is_a_valid_loop(full):
    def step(state, token):
        out = decoder().apply(token[:, None], state=state)
        return state | out.updates, out.value[:, 0]

    _, values = jax.lax.scan(step, decoder().init_cache(3, 10), jnp.asarray(IDS.T))
    np.testing.assert_allclose(jnp.swapaxes(values, 0, 1), full, atol=1e-5)


@pytest.mark.exhaustive
def test_rolled_and_inlined_models_decode(full):
    equal = _decoder(CAUSAL, CAUSAL, CAUSAL)
    expected = equal(IDS, state=equal.init_state())
    for model in (transforms.roll(equal), fk.inline(equal, "block_1")):
        y, _ = _decode(model, [6, 1, 1])
        np.testing.assert_allclose(y, expected, atol=1e-5)
    nested_ids = fk.Input((None,), dtype="int32")
    nested = fk.Model(nested_ids, decoder()(nested_ids))
    y, _ = _decode(nested, [6, 2])
    np.testing.assert_allclose(y, full, atol=1e-5)
    with pytest.raises(fk.FKerasError, match="at most 10 tokens.*received 16"):
        nested.apply(np.tile(IDS, 2), state=nested.init_cache(3, 10))


@pytest.mark.exhaustive
def test_packed_rows_in_training(full):
    packed = np.concatenate([IDS[:1, :5], IDS[1:2, :3]], axis=1)
    y = decoder()([packed, np.array([[1] * 5 + [4] * 3])], state=first_state())
    np.testing.assert_allclose(y[0, :5], full[0, :5], atol=1e-5)
    np.testing.assert_allclose(y[0, 5:], full[1, :3], atol=1e-5)


def test_texts_are_no_specs():
    ids = fk.Input((None,), dtype="int32")
    steps = layers.Positions(name="positions")(ids)
    model = fk.Model(ids, fk.ops.cast(steps, "float32"))
    assert model.init_cache(2, 8)["positions"]["length"].shape == (2,)


@pytest.mark.exhaustive
def test_a_full_cache_is_reported_before_the_call():
    _, state = _decode(decoder(), [8])
    message = r"cache of 'block_1/attention', row 0: expected at most 10 tokens.* received 11"
    with pytest.raises(fk.FKerasError, match=message):
        decoder().apply(IDS[:, :3], state=state)
    # padding needs no room
    mask = np.array([[True, True, False]] * 3)
    out = decoder().apply(IDS[:, :3], state=state, mask=mask)
    assert np.isfinite(out.value).all()
    compiled = jax.jit(lambda ids, state: decoder().apply(ids, state=state))(IDS[:, :3], state)
    assert np.isnan(compiled.value[:, 2]).all()
    assert np.isfinite(compiled.value[:, :2]).all()
    rings = _decoder(CAUSAL & masks.Window(3))
    _, state = _decode(rings, [8])
    assert np.isfinite(rings.apply(IDS, state=state).value).all()


def test_a_state_of_another_batch():
    for mask in (None, np.ones((2, 8), bool)):
        with pytest.raises(fk.FKerasError, match="ids for the 3 rows of the cache"):
            decoder().apply(IDS[:2], state=decoder().init_cache(3, 10), mask=mask)


def test_caches_are_no_weights(tmp_path):
    _, state = _decode(decoder(), [8])
    weights, plain = decoder().get_weights(state), decoder().get_weights(first_state())
    assert [w.shape for w in weights] == [w.shape for w in plain]
    fk.save_model(tmp_path / "m.keras", decoder(), state)
    model, loaded = fk.load_model(tmp_path / "m.keras")
    assert model == decoder()
    assert loaded.keys() == {"norm"}


@pytest.mark.exhaustive
def test_reset_state_empties_the_caches(full):
    _, state = _decode(decoder(), [8])
    state = decoder().reset_state(state)
    assert state["positions"]["length"].tolist() == [0, 0, 0]
    out = decoder().apply(IDS, state=state)
    np.testing.assert_allclose(out.value, full, atol=1e-5)


def test_a_wrapped_layer_keeps_its_cache():
    ids, positions = fk.Input((None,), dtype="int32"), layers.Wrapper(layers.Positions(), name="p")
    model = fk.Model(ids, positions(ids))
    state = model.init_cache(2, 4)
    assert state["p"]["layer"]["length"].tolist() == [0, 0]
    state |= model.apply(IDS[:2, :3], state=state).updates
    assert model.apply(IDS[:2, :1], state=state).value.tolist() == [[3], [3]]


def test_a_layer_with_a_cache_is_called_once():
    q, positions = fk.Input((None, 2, 4)), fk.Input((None,), dtype="int32")
    attention = layers.DotProductAttention(CAUSAL, name="shared")
    model = fk.Model([q, positions], attention(attention(q, q, q, positions), q, q, positions))
    assert model.init_state() == {}
    with pytest.raises(fk.FKerasError, match="'shared' has a cache and is called 2 times"):
        model.init_cache(2, 8)
    dense = layers.Dense(4, name="shared")
    assert fk.Model(q, dense(dense(q))).init_cache(2, 8) == {}


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, 8), {}, "positive integer for batch, received 0"),
        ((3, -1), {}, "positive integer for length, received -1"),
        ((3, 8.0), {}, "positive integer for length, received 8.0"),
        ((3, True), {}, "positive integer for length, received True"),
        ((3, 8), {"slack": -1}, "integer of 0 or more for slack, received -1"),
    ],
)
def test_wrong_sizes(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        decoder().init_cache(*arguments, **options)
    with pytest.raises(ValueError, match=message):
        layers.Positions().init_cache(*arguments, **options)


def test_the_former_call_names_the_new_one():
    layer = layers.Dropout(0.5)
    assert layer.init_state(3, 10) == layer.init_cache(3, 10) == {}
    for keeper in (decoder(), layers.Positions()):
        with pytest.warns(DeprecationWarning, match=r"now init_cache\(batch, length\)") as warned:
            former = keeper.init_state(3, 10, slack=2)
        assert warned[0].filename == __file__
        new = keeper.init_cache(3, 10, slack=2)
        assert jax.tree.map(lambda a: a.shape, former) == jax.tree.map(lambda a: a.shape, new)
        with pytest.raises(ValueError, match="slack together with a batch and a length"):
            keeper.init_state(slack=2)
        with pytest.raises(ValueError, match="positive integer for length, received nothing"):
            keeper.init_state(3)


class Counts(fk.Layer):
    """A user's layer with a state and a cache, without a base class for caches."""

    def init_state(self, x):
        return {"calls": jnp.zeros(())}

    def init_cache(self, size, x):
        assert isinstance(x, fk.engine.Spec)
        return {"seen": jnp.zeros((size.batch, size.length + size.slack))}

    def forward(self, context, x):
        return fk.Output(x, context.state)


class Recounts(Counts):
    def init_cache(self, size, x):
        return {**super().init_cache(size, x), "more": jnp.zeros(size.batch)}


def test_a_cache_of_a_users_layer():
    x = fk.Input((4,))
    for layer, entries in ((Counts(), {"calls", "seen"}), (Recounts(), {"calls", "seen", "more"})):
        assert layer.init_state((2, 4)).keys() == {"calls"}
        state = layer.init_cache(2, 8, (2, 4), slack=1)
        assert state.keys() == entries
        assert state["seen"].shape == (2, 9)
        model = fk.Model(x, layers.Wrapper(layer)(x))
        cached = model.init_cache(2, 8, slack=1)
        assert cached["wrapper"]["layer"].keys() == entries
        np.testing.assert_array_equal(model.apply(np.ones((2, 4)), state=cached).value, 1)


def test_sizes_by_name():
    state = layers.Positions().init_cache(batch=2, length=8)
    assert state["length"].shape == (2,)
    for wrong, word in (({"batch": 2}, "length"), ({"batch": 2, "length": 8, "rows": 3}, "rows")):
        with pytest.raises(TypeError, match=f"^Layer.init_cache.*'{word}'"):
            decoder().init_cache(**wrong)


def test_a_fixed_batch():
    ids = fk.Input((None,), batch_size=2, dtype="int32", name="ids")
    model = fk.Model(ids, layers.Positions()(ids))
    assert model.init_cache(2, 8)["positions"]["length"].shape == (2,)
    with pytest.raises(fk.FKerasError, match="batch size 2 of the input 'ids', received 3"):
        model.init_cache(3, 8)


def test_a_state_without_some_caches():
    state = decoder().init_cache(3, 10)
    for name, path in (("positions", "'positions'"), ("block_1", "'block_1/attention'")):
        part = {key: value for key, value in state.items() if key != name}
        with pytest.raises(
            fk.FKerasError, match=f"caches of all layers .* without those of {path}"
        ):
            decoder().apply(IDS, state=part)
        with pytest.raises(fk.FKerasError, match="caches of all layers"):
            jax.jit(lambda part: decoder().apply(IDS, state=part))(part)
