"""Functions from model to model: surgery, probes, freezing, folding, quantizing, rematerializing,
rolling; and functions of two models: differences, patches, agreement.

Each transform returns a new model and keeps all arrays that it does not change.
"""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.transforms.agreeing import Agreement as Agreement
from fkeras.transforms.agreeing import CallAgreement as CallAgreement
from fkeras.transforms.agreeing import agree as agree
from fkeras.transforms.changes import CallChange as CallChange
from fkeras.transforms.changes import ConfigChange as ConfigChange
from fkeras.transforms.changes import LayerChange as LayerChange
from fkeras.transforms.changes import WeightChange as WeightChange
from fkeras.transforms.cutting import cut as cut
from fkeras.transforms.depth import roll as roll
from fkeras.transforms.depth import unroll as unroll
from fkeras.transforms.differences import Difference as Difference
from fkeras.transforms.differences import diff as diff
from fkeras.transforms.editing import edit as edit
from fkeras.transforms.fingerprinting import fingerprint as fingerprint
from fkeras.transforms.folding import fold as fold
from fkeras.transforms.folding import unfolded as unfolded
from fkeras.transforms.freezing import freeze as freeze
from fkeras.transforms.freezing import unfreeze as unfreeze
from fkeras.transforms.patching import ConflictError as ConflictError
from fkeras.transforms.patching import apply as apply
from fkeras.transforms.patching import revert as revert
from fkeras.transforms.probing import probe as probe
from fkeras.transforms.quantizing import dequantize as dequantize
from fkeras.transforms.quantizing import quantize as quantize
from fkeras.transforms.remat import rematerialized as rematerialized
from fkeras.transforms.replacing import replace_layers as replace_layers
from fkeras.transforms.rewriting import inline as inline
from fkeras.transforms.rewriting import rename as rename
from fkeras.transforms.rewriting import split_host as split_host
from fkeras.transforms.surgery import insert as insert
from fkeras.transforms.surgery import remove as remove
from fkeras.transforms.surgery import replace as replace

_publish(__name__)
