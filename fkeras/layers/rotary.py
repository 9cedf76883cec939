"""Scalings of rotary positions, for `fk.layers.RotaryEmbedding(scaling=...)`."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.layers.attention.rotary_scaling import Dynamic as Dynamic
from fkeras.layers.attention.rotary_scaling import Linear as Linear
from fkeras.layers.attention.rotary_scaling import Llama3 as Llama3
from fkeras.layers.attention.rotary_scaling import LongRope as LongRope
from fkeras.layers.attention.rotary_scaling import Scaling as Scaling
from fkeras.layers.attention.rotary_scaling import Yarn as Yarn

_publish(__name__)
