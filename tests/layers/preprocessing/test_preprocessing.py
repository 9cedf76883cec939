"""Categories, bins and hashes; configs that Keras wrote.

Keras 3.15.1 with TensorFlow 2 computed the numbers marked with "Keras"; the tests do not need TensorFlow.
The hashes are TensorFlow's `to_hash_bucket_fast`, `to_hash_bucket_strong` (modulo 2**63 - 1) and
`sparse.cross_hashed`.
"""

import json

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkeras as fk
from fkeras import layers
from fkeras.nn.hashing.decimals import hash_integers, write_decimals
from fkeras.nn.hashing.fingerprints import hash_strings
from fkeras.nn.hashing.wide import Wide

LARGE = 2**63 - 1
TEXT = "abcdefghijklmnopqrstuvwxyz0123456789" * 8
# length of a prefix of TEXT: FarmHash, SipHash with the key (133, 137); Keras
HASHES = {
    0: (1936946117179621456, 4928313950774450900),
    1: (3694432073954588132, 7077939996121841354),
    2: (3066228220894225695, 3814769135020288330),
    3: (2640714258260161385, 6899845086433867945),
    4: (1897425971756105985, 7808205235328240072),
    7: (4341691227789030229, 6345475727699773311),
    8: (9145071594317031690, 4821859048491749637),
    16: (6080716761534418621, 2540178693098969413),
    17: (2171023947900359593, 7235737185026253614),
    32: (934449955909727258, 1440154576784840433),
    33: (8403347783973109260, 5406934313078344568),
    64: (3646545258579766308, 941225485998302752),
    65: (3889391544646074892, 1669816311921071172),
    128: (2056131915184924913, 8888357787337769633),
    129: (4687628222062474711, 8540346730366443596),
    200: (3225094344678046759, 1106674257569022394),
}
# integer: FarmHash, SipHash with the key (1, 2) of its decimal form; Keras
INTEGERS = {
    0: (5975597238397796928, 6292274230828363823),
    7: (590358713228080281, 2903071730630827929),
    -7: (157654154374354255, 7452006794209424375),
    123: (6000784015536866124, 2113743549092310684),
    -123: (1226447273558774175, 6756586074713674847),
    9999: (7398750453262648022, 8137328924588709695),
    1234567: (7403371938570208423, 7477053060497140549),
    12345678: (3430003927990384362, 6508726819379278012),
    -12345678: (7333875822948227941, 3544424384497431304),
    2147483647: (1086117229775984950, 548487774368633359),
    -2147483648: (6520386892892340469, 5394341600935450062),
}


def _join(wide):
    return (np.asarray(wide.high).astype("uint64") << np.uint64(32)) | np.asarray(wide.low)


def test_hashes_of_strings_match_tensorflow():
    texts = [TEXT[:n].encode() for n in HASHES]
    for column, salt in enumerate((None, (133, 137))):
        hashes = hash_strings(texts, salt) % np.uint64(LARGE)
        assert hashes.tolist() == [pair[column] for pair in HASHES.values()]
    negative = hash_strings([b"", b"a"], (-1, 2**62)) % np.uint64(LARGE)
    assert negative.tolist() == [4331401532214193551, 9135491259974883099]


@pytest.mark.exhaustive
def test_hashes_of_integers_agree_on_host_and_device():
    numbers = jnp.array(list(INTEGERS), "int32")
    texts = [b"%d" % n for n in INTEGERS]
    for column, salt in enumerate((None, (1, 2))):
        host = hash_strings(texts, salt)
        assert (host % np.uint64(LARGE)).tolist() == [pair[column] for pair in INTEGERS.values()]

        def high_and_low(x, salt=salt):
            wide = hash_integers(x, salt)
            return wide.high, wide.low

        np.testing.assert_array_equal(_join(Wide(*jax.jit(high_and_low)(numbers))), host)


@pytest.mark.exhaustive
def test_decimal_forms():
    numbers = np.array([0, -1, 10, 2147483647, -2147483648])
    left, right, lengths = write_decimals(jnp.array(numbers, "int32"))
    for number, characters, backwards, length in zip(numbers, left, right, lengths, strict=True):
        text = str(number)
        assert length == len(text)
        assert bytes(characters.astype("uint8").tolist()).rstrip(b"\0").decode() == text
        assert bytes(backwards.astype("uint8").tolist()).rstrip(b"\0").decode() == text[::-1]


words = st.integers(0, 2**64 - 1)


@pytest.mark.exhaustive
@settings(max_examples=25, deadline=None, derandomize=True)
@given(words, words, st.integers(1, 63), st.sampled_from([1, 3, 997, 2**16, 10**6 + 3, 2**31 - 1]))
def test_wide_arithmetic_matches_64_bits(a, b, places, divisor):
    template = jnp.zeros((1,), "uint32")
    x, y = Wide.of(a, template), Wide.of(b, template)
    cut = 2**64 - 1
    assert int(_join(x + y)[0]) == (a + b) & cut
    assert int(_join(x * y)[0]) == (a * b) & cut
    assert int(_join((x ^ y) | (x >> places))[0]) == (a ^ b) | (a >> places)
    assert int(_join(x << places)[0]) == (a << places) & cut
    assert int(x.remainder(divisor)[0]) == a % divisor


def test_hashing_gives_the_bins_of_keras():
    x = np.array([["A"], ["B"], ["C"], ["D"], ["E"], [""]])
    Hashing = layers.Hashing
    assert Hashing(3)(x).ravel().tolist() == [1, 0, 1, 1, 2, 2]
    assert Hashing(3, mask_value="")(x).ravel().tolist() == [1, 1, 2, 2, 1, 0]
    assert Hashing(3, salt=[133, 137])(x).ravel().tolist() == [1, 2, 1, 0, 2, 2]
    assert Hashing(3, salt=133)(x).ravel().tolist() == [0, 0, 2, 1, 0, 2]
    assert Hashing(1, mask_value="")(x).ravel().tolist() == [0] * 6
    assert Hashing(3, output_mode="multi_hot")([["A", "B"], ["C", "D"]]).tolist() == [
        [1, 1, 0],
        [0, 1, 0],
    ]
    assert Hashing(3, output_mode="count")(["A", "C", "D"]).tolist() == [0, 3, 0]
    assert Hashing(3)("A").shape == ()
    assert Hashing(10)([[1.5, 2.0, -3.7]]).tolist() == [[9, 9, 9]]
    assert Hashing(10)([[True, False]]).tolist() == [[0, 7]]
    one_hot = Hashing(3, output_mode="one_hot")
    assert one_hot(x).shape == (6, 3)
    assert one_hot([["A", "B"]]).tolist() == [[[0, 1, 0], [1, 0, 0]]]


@pytest.mark.exhaustive
def test_hashing_of_integers_is_the_same_everywhere():
    x = np.array([[1, 2, 3], [-4, 50, 600]])
    assert layers.Hashing(10)(x).tolist() == [[9, 9, 1], [0, 8, 1]]  # Keras
    layer = layers.Hashing(10, mask_value=50)
    expected = [[1, 5, 4], [8, 0, 6]]  # Keras
    host = layer(x)
    assert isinstance(host, np.ndarray) and host.dtype == np.int32
    assert host.tolist() == expected
    on_device = jnp.array(x, "int32")
    assert layer(on_device).tolist() == expected
    assert jax.jit(jax.vmap(layer))(on_device).tolist() == expected
    inputs = fk.Input((3,), dtype="int32")
    model = fk.Model(inputs, layer(inputs))
    assert model(on_device).tolist() == expected
    # a string never equals an integer: no entry is masked
    assert jax.jit(layers.Hashing(10, mask_value="50"))(on_device).tolist() != expected


def test_hashing_rejects_bad_arguments():
    with pytest.raises(ValueError, match="num_bins: expected an integer from 1"):
        layers.Hashing(0)
    with pytest.raises(ValueError, match=r"to 2\*\*31 - 1"):
        layers.Hashing(2**31)
    with pytest.raises(ValueError, match="salt: expected an integer or a pair"):
        layers.Hashing(3, salt=(1, 2, 3))
    with pytest.raises(ValueError, match="JAX arrays are dense"):
        layers.Hashing(3, output_mode="count", sparse=True)
    with pytest.raises(ValueError, match="output_mode: expected"):
        layers.Hashing(3, output_mode="ints")
    with pytest.raises(TypeError, match="expected int32 on the device, received uint32"):
        jax.jit(layers.Hashing(3))(jnp.zeros(2, "uint32"))
    with pytest.raises(
        ValueError, match="row 1: expected strings, received the missing value None; 1 of 2"
    ):
        layers.Hashing(3)(np.array(["a", None], object))
    with pytest.raises(ValueError, match="rows of one length"):
        layers.Hashing(3)([["a"], ["b", "c"]])


@pytest.mark.exhaustive
def test_crossing_gives_the_bins_of_keras():
    words, numbers = np.array(["A", "B", "A", "B", "A"]), np.array([101, 101, 101, 102, 102])
    cross = layers.HashedCrossing(5)
    assert cross((words, numbers)).tolist() == [1, 4, 1, 1, 3]
    big = layers.HashedCrossing(1000000)
    assert big((words, numbers)).tolist() == [794891, 97754, 794891, 409576, 403523]
    assert big((words, numbers, words)).tolist() == [402795, 740364, 402795, 331661, 891779]
    second = np.array([1, -2, 3, 4, 2147483647])
    expected = [672036, 543821, 579299, 566472, 268476]
    assert big((numbers, second)).tolist() == expected
    on_device = [jnp.array(numbers, "int32"), jnp.array(second, "int32")]
    assert jax.jit(big)(on_device).tolist() == expected
    assert big(on_device).tolist() == expected
    assert cross((np.array("A"), np.array(101))) == 1
    one_hot = layers.HashedCrossing(5, "one_hot")
    assert one_hot((words, numbers)).argmax(-1).tolist() == [1, 4, 1, 1, 3]
    np.testing.assert_array_equal(
        one_hot((words[:, None], numbers[:, None])), one_hot((words, numbers))
    )


def test_crossing_rejects_bad_arguments():
    cross = layers.HashedCrossing(5)
    with pytest.raises(ValueError, match="two features or more, received 1"):
        cross([np.array([1])])
    with pytest.raises(ValueError, match="two features or more, received 1"):
        cross(np.array([1]))
    with pytest.raises(ValueError, match=r"features of one shape, received \(2,\), \(3,\)"):
        cross(([1, 2], [1, 2, 3]))
    with pytest.raises(ValueError, match=r"of shape \(b,\) or \(b, 1\)"):
        cross(([[1, 2]], [[1, 2]]))
    with pytest.raises(TypeError, match="strings or integers, received float64"):
        cross(([1.5], [1]))
    with pytest.raises(TypeError, match="integers on the device, received float32"):
        cross([jnp.ones(1), jnp.ones(1)])


def test_known_ids_out_of_range_are_reported():
    layer = layers.CategoryEncoding(3, "one_hot")
    for ids, received in (([0, 3], 3), (jnp.array([-1, 0]), -1), (np.array(7), 7)):
        with pytest.raises(ValueError, match=f"ids from 0 to 2, received {received}"):
            layer(ids)
    encoded = jax.jit(layer)(jnp.array([0, 3, -1]))
    np.testing.assert_array_equal(encoded, [[1, 0, 0], [np.nan] * 3, [np.nan] * 3])
    fractions = jax.jit(layer)(jnp.array([1.0, 1.7, jnp.nan]))
    np.testing.assert_array_equal(fractions, [[0, 1, 0], [np.nan] * 3, [np.nan] * 3])
    for mode in ("multi_hot", "count"):
        samples = jax.jit(layers.CategoryEncoding(2, mode))(jnp.array([[0, 1], [1, 2]]))
        np.testing.assert_array_equal(samples, [[1, 1], [np.nan] * 2])
    with pytest.raises(ValueError, match=r"expected integer ids, received 1\.7 at \[1\]. Round"):
        layer(np.array([1.0, 1.7]))


@pytest.mark.exhaustive
def test_counts_may_be_weighted():
    layer = layers.CategoryEncoding(4, "count")
    ids, weights = (
        [[0, 1], [0, 0], [1, 2], [3, 1]],
        [[0.1, 0.2], [0.1, 0.1], [0.2, 0.3], [0.4, 0.2]],
    )
    expected = [[0.1, 0.2, 0, 0], [0.2, 0, 0, 0], [0, 0.2, 0.3, 0], [0, 0.2, 0, 0.4]]
    np.testing.assert_allclose(layer(ids, count_weights=weights), expected, rtol=1e-6)
    inputs, scale = fk.Input((2,), dtype="int32"), fk.Input((2,))
    model = fk.Model([inputs, scale], layer(inputs, count_weights=scale))
    arrays = [jnp.array(ids), jnp.array(weights)]
    np.testing.assert_allclose(model(arrays), expected, rtol=1e-6)
    grads = jax.grad(lambda w: jnp.sum(layer(arrays[0], count_weights=w)[:, 0]))(arrays[1])
    assert grads.tolist() == [[1, 0], [1, 1], [0, 0], [0, 0]]
    with pytest.raises(ValueError, match="count_weights=None with output_mode='multi_hot'"):
        layers.CategoryEncoding(4)(ids, count_weights=weights)
    with pytest.raises(ValueError, match="count_weights of the shape of the ids"):
        layer(ids, count_weights=[1.0, 2.0])


@pytest.mark.exhaustive
def test_a_sample_is_the_last_axis_at_every_rank():
    ids = np.arange(12).reshape(2, 2, 3) % 4
    for mode in ("count", "multi_hot"):
        layer = layers.CategoryEncoding(4, mode)
        encoded = layer(ids)
        assert encoded.shape == (2, 2, 4)
        assert encoded[1].tolist() == layer(ids[1]).tolist()
    assert layers.CategoryEncoding(3, "count")([0, 2, 2]).tolist() == [1, 0, 2]
    assert layers.CategoryEncoding(3, "binary").output_mode == "multi_hot"
    assert layers.CategoryEncoding(3)(1).tolist() == [0, 1, 0]
    assert layers.CategoryEncoding(3)(np.zeros((2, 0), "int32")).tolist() == [[0] * 3] * 2
    assert layers.CategoryEncoding(300, "one_hot")(np.array([5], "int8")).argmax() == 5
    with pytest.raises(ValueError, match="JAX arrays are dense"):
        layers.CategoryEncoding(3, sparse=True)


DATA = np.array([[-1.5, 1.0, 3.4, 0.5], [0.0, 3.0, 1.3, 0.0]])


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("bins", "epsilon"), [(4, 0.01), (4, 0.3), (3, 0.2)])
def test_adapt_computes_the_boundaries_of_keras(bins, epsilon):
    layer = layers.Discretization(num_bins=bins, epsilon=epsilon)
    wave = np.sin(np.arange(1000.0))
    for data in (DATA, [DATA, DATA + 1, DATA * 2], wave, wave.tolist()[:300]):
        theirs = keras.layers.Discretization(num_bins=bins, epsilon=epsilon)
        theirs.reset_state()  # Keras's adapt requires TensorFlow
        for batch in data if isinstance(data, list) else [data]:
            theirs.update_state(batch)
        theirs.finalize_state()
        ours = layer.adapt(data)
        np.testing.assert_allclose(ours.bin_boundaries, theirs.bin_boundaries, rtol=1e-6)
    batches = (DATA + i for i in range(5))
    assert layer.adapt(batches, steps=2) == layer.adapt([DATA, DATA + 1])
    assert layer.bin_boundaries is None


@pytest.mark.exhaustive
def test_json_round_trip_of_an_adapted_layer():
    layer = layers.Discretization(num_bins=4).adapt(DATA)
    assert layer(DATA).tolist() == [[0, 2, 3, 2], [1, 3, 3, 1]]  # Keras
    config = json.loads(json.dumps(layers.serialize(layer)))
    assert layers.deserialize(config) == layer
    theirs = keras.layers.deserialize(config)
    assert np.asarray(theirs(DATA)).tolist() == layer(DATA).tolist()
    again = layers.deserialize(keras.layers.serialize(theirs))
    assert again.replace(name=None) == layer
    assert layer.adapt(DATA * 2).bin_boundaries != layer.bin_boundaries


@pytest.mark.exhaustive
def test_discretization_at_its_edges():
    layer = layers.Discretization([0.0, 1.0])
    edges = np.array([np.nan, np.inf, -np.inf, 0.0, 1.0], "float32")
    assert layer(edges).tolist() == [-1, 2, 0, 1, 2]  # NaN has no bin; Keras returns the last bin
    for mode in ("one_hot", "multi_hot", "count"):
        vectors = layers.Discretization([0.0], output_mode=mode)(np.array([[np.nan], [1]], "f4"))
        np.testing.assert_array_equal(vectors, [[np.nan] * 2, [0, 1]])
    assert jax.jit(layer)(jnp.array([-1, 0, 5])).tolist() == [0, 1, 2]
    assert layers.Discretization([])([1.0, 2.0]).tolist() == [0, 0]
    # 1 + 2**-9 is 1 in bfloat16
    near = np.array([1 + 2**-9], "float32")
    half = layers.Discretization([1.001], output_mode="count", dtype="mixed_bfloat16")
    assert half(near).tolist() == [0, 1] and half(near).dtype == jnp.bfloat16
    assert layers.Discretization([0.0], output_mode="count")(np.ones((2, 2, 3))).shape == (2, 2, 2)


def test_discretization_rejects_bad_arguments():
    with pytest.raises(ValueError, match="received neither"):
        layers.Discretization()
    with pytest.raises(ValueError, match="received both"):
        layers.Discretization([1.0], num_bins=3)
    with pytest.raises(ValueError, match="in increasing order"):
        layers.Discretization([1.0, 0.0])
    with pytest.raises(ValueError, match="epsilon: expected a number between 0 and 1"):
        layers.Discretization(num_bins=3, epsilon=2.0)
    with pytest.raises(ValueError, match="has no boundaries yet"):
        layers.Discretization(num_bins=3)(DATA)
    with pytest.raises(ValueError, match="fixed bin_boundaries"):
        layers.Discretization([1.0]).adapt(DATA)
    with pytest.raises(ValueError, match="adapt received no numbers"):
        layers.Discretization(num_bins=3).adapt([])


POLICY = {"module": "keras", "class_name": "DTypePolicy", "registered_name": None}
SHARED = {"invert": False, "max_tokens": None, "num_oov_indices": 1, "mask_token": None}
SHARED |= {"output_mode": "int", "sparse": False, "pad_to_max_tokens": False, "salt": None}


@pytest.mark.parametrize(
    ("name", "config", "layer"),  # written by Keras
    [
        (
            "Hashing",
            {
                **{"num_bins": 3, "salt": [4, 4], "mask_value": None, "trainable": True},
                **{"output_mode": "int", "sparse": False},
                "dtype": POLICY | {"config": {"name": "int64"}},
            },
            layers.Hashing(3, salt=4),
        ),
        (
            "HashedCrossing",
            {"num_bins": 5, "output_mode": "int", "sparse": False, "dtype": "int64"},
            layers.HashedCrossing(5),
        ),
        (
            "IntegerLookup",
            {
                **SHARED,
                **{"oov_token": -1, "vocabulary_dtype": "int64", "idf_weights": None},
                **{"vocabulary": [3, 4], "vocabulary_size": 3, "oov_method": "floormod"},
                "dtype": POLICY | {"config": {"name": "float32"}},
            },
            layers.IntegerLookup(vocabulary=[3, 4]),
        ),
        (
            "Discretization",
            {
                **{"bin_boundaries": [1.0, 2.0], "num_bins": None, "epsilon": 0.01},
                **{"output_mode": "int", "sparse": False, "name": None, "dtype": "float32"},
            },
            layers.Discretization([1.0, 2.0]),
        ),
    ],
)
def test_configurations_of_keras_are_read(name, config, layer):
    written = {"module": "keras.layers", "class_name": name, "config": config}
    assert layers.deserialize(written) == layer
    ours = layers.serialize(layer)["config"]
    assert {k: ours[k] for k in config if k not in ("dtype", "trainable", "vocabulary_size")} == {
        k: v for k, v in config.items() if k not in ("dtype", "trainable", "vocabulary_size")
    }
    if name.startswith("Hash"):
        assert ours["dtype"] == "int64"


UNSUITABLE = {
    "negative variance": (
        lambda: layers.Normalization(mean=[0.0, 1.0], variance=[1.0, -1.0]),
        r"Normalization: variance: expected numbers of 0 or more, received -1.0",
    ),
    "large mean": (
        lambda: layers.Normalization(mean=1e300, variance=1.0),
        r"Normalization: mean: expected numbers of at most 3.4e\+38, .*float32, received 1e\+300",
    ),
    "large data": (
        lambda: layers.Normalization().adapt(np.array([[1e30], [-1e30]])),
        r"Normalization: variance: expected numbers of at most 3.4e\+38",
    ),
    "large scale": (
        lambda: layers.Rescaling([1.0, 1e300]),
        r"Rescaling: scale: expected numbers of at most 3.4e\+38",
    ),
    "scale of half precision": (
        lambda: layers.Rescaling(1e5, dtype="float16"),
        r"Rescaling: scale: expected numbers of at most 6.55e\+04, the largest of float16",
    ),
    "no scale": (lambda: layers.Rescaling([]), "Rescaling: scale: expected a number, or numbers"),
    "encoding of words": (
        lambda: layers.StringLookup(encoding="x"),
        r"StringLookup: encoding: expected the name of a text encoding, received 'x'",
    ),
    "encoding of texts": (
        lambda: layers.TextVectorization(encoding="hex"),
        r"TextVectorization: encoding: expected the name of a text encoding, received 'hex'",
    ),
    "texts of no words": (
        lambda: layers.TextVectorization(output_sequence_length=0),
        r"output_sequence_length: expected a positive integer or None, received 0",
    ),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_numbers_and_names_that_cannot_compute_are_rejected(name):
    make, words = UNSUITABLE[name]
    with pytest.raises(ValueError, match=words):
        make()
