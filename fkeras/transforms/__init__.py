"""Functions from model to model: surgery, probes, freezing, folding, quantizing, rematerializing,
rolling; functions of two models: differences, patches, agreement; and attributions.

Each transform returns a new model and keeps all arrays that it does not change.
"""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.layers.adapters.adapter import Adapter as Adapter
from fkeras.layers.adapters.bottleneck import Bottleneck as Bottleneck
from fkeras.layers.adapters.low_rank import DoRA as DoRA
from fkeras.layers.adapters.low_rank import LoRA as LoRA
from fkeras.layers.adapters.prompts import SoftPrompt as SoftPrompt
from fkeras.layers.adapters.scaling import IA3 as IA3
from fkeras.transforms.adapting.adapt import adapt as adapt
from fkeras.transforms.adapting.merging import merge_adapters as merge_adapters
from fkeras.transforms.adapting.tree import Adapters as Adapters
from fkeras.transforms.adapting.tree import adapters as adapters
from fkeras.transforms.adapting.tree import with_adapters as with_adapters
from fkeras.transforms.attribution import grad_cam as grad_cam
from fkeras.transforms.attribution import integrated_gradients as integrated_gradients
from fkeras.transforms.attribution import saliency as saliency
from fkeras.transforms.casting import cast as cast
from fkeras.transforms.comparison.agreeing import Agreement as Agreement
from fkeras.transforms.comparison.agreeing import CallAgreement as CallAgreement
from fkeras.transforms.comparison.agreeing import agree as agree
from fkeras.transforms.comparison.changes import CallChange as CallChange
from fkeras.transforms.comparison.changes import ConfigChange as ConfigChange
from fkeras.transforms.comparison.changes import LayerChange as LayerChange
from fkeras.transforms.comparison.changes import WeightChange as WeightChange
from fkeras.transforms.comparison.differences import Difference as Difference
from fkeras.transforms.comparison.differences import diff as diff
from fkeras.transforms.comparison.fingerprinting import fingerprint as fingerprint
from fkeras.transforms.comparison.patching import ConflictError as ConflictError
from fkeras.transforms.comparison.patching import apply as apply
from fkeras.transforms.comparison.patching import revert as revert
from fkeras.transforms.deployment.folding import fold as fold
from fkeras.transforms.deployment.folding import unfolded as unfolded
from fkeras.transforms.deployment.quantizing import dequantize as dequantize
from fkeras.transforms.deployment.quantizing import quantize as quantize
from fkeras.transforms.depth import roll as roll
from fkeras.transforms.depth import unroll as unroll
from fkeras.transforms.freezing import freeze as freeze
from fkeras.transforms.freezing import unfreeze as unfreeze
from fkeras.transforms.graph.cutting import cut as cut
from fkeras.transforms.graph.editing import edit as edit
from fkeras.transforms.graph.probing import probe as probe
from fkeras.transforms.graph.rewriting import inline as inline
from fkeras.transforms.graph.rewriting import rename as rename
from fkeras.transforms.graph.rewriting import split_host as split_host
from fkeras.transforms.graph.surgery import insert as insert
from fkeras.transforms.graph.surgery import remove as remove
from fkeras.transforms.graph.surgery import replace as replace
from fkeras.transforms.remat import rematerialized as rematerialized
from fkeras.transforms.replacing import replace_layers as replace_layers

_publish(__name__)
