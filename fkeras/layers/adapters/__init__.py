"""Adapters of frozen layers, for parameter-efficient fine-tuning."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.layers.adapters.adapted import Adapted as Adapted
from fkeras.layers.adapters.adapter import Adapter as Adapter
from fkeras.layers.adapters.bottleneck import Bottleneck as Bottleneck
from fkeras.layers.adapters.low_rank import DoRA as DoRA
from fkeras.layers.adapters.low_rank import LoRA as LoRA
from fkeras.layers.adapters.prompts import SoftPrompt as SoftPrompt
from fkeras.layers.adapters.scaling import IA3 as IA3

_publish(__name__)
