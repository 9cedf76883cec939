"""The layers that most networks have, and the base of those that wrap another one."""

from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.core.embedding import Embedding
from fkeras.layers.core.identity import Identity
from fkeras.layers.core.lambda_layer import Lambda
from fkeras.layers.core.masking import Masking
from fkeras.layers.core.reversible_embedding import ReversibleEmbedding
from fkeras.layers.core.wrapper import Wrapper

__all__ = (
    "Dense",
    "EinsumDense",
    "Embedding",
    "Identity",
    "Lambda",
    "Masking",
    "ReversibleEmbedding",
    "Wrapper",
)
