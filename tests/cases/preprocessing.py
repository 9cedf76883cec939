"""Rows of the layer table: encodings of categories, bins, hashes, lookups of integers.

`StringLookup` and `TextVectorization` work on strings, which JAX arrays cannot hold; their tests are in
tests/layers/lookup/test_text_vectorization.py. The other layers with `keras=False` need TensorFlow in
Keras; tests/layers/preprocessing/test_preprocessing.py has numbers that Keras computed.
"""

from fkeras import layers
from tests.cases import Case

CASES = (
    Case(layers.CategoryEncoding(5, "one_hot"), (("int32", (3, 1), 5),)),
    Case(layers.CategoryEncoding(5, "count"), (("int32", (2, 4), 5),)),
    Case(layers.CategoryEncoding(4), (("int32", (2, 6), 4),)),
    Case(layers.Discretization([-0.5, 0.0, 1.0]), ((2, 3, 4),)),
    Case(layers.Discretization([-0.5, 0.0], output_mode="count"), ((3, 4),)),
    Case(layers.Discretization([0.5], output_mode="one_hot"), ((2, 3),)),
    Case(layers.Hashing(7, mask_value=3, salt=(1, 2)), (("int32", (2, 3, 2), 900),), keras=False),
    Case(layers.Hashing(4, output_mode="count"), (("int32", (2, 3), 900),), keras=False),
    Case(
        layers.HashedCrossing(9, "one_hot"),
        ([("int32", (3, 1), 50), ("int32", (3, 1), 50)],),
        keras=False,
    ),
    Case(layers.HashedCrossing(5), ([("int32", (4,), 50)] * 3,), keras=False),
    Case(
        layers.IntegerLookup(vocabulary=[3, 1, 5], mask_token=0, num_oov_indices=2),
        (("int32", (2, 4), 7),),
        keras=False,
    ),
    Case(
        layers.IntegerLookup(
            vocabulary=[3, 1, 5],
            idf_weights=[0.5, 1.5, 1.0],
            output_mode="tf_idf",
            max_tokens=6,
            pad_to_max_tokens=True,
        ),
        (("int32", (2, 4), 7),),
        keras=False,
    ),
)
