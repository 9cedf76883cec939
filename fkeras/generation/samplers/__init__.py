"""Samplers: choose the next token from the logits of a language model.

A sampler processes logits: the logits of forbidden tokens become minus infinity. Afterwards the next
token is drawn from the softmax of the logits; with `Greedy` the next token has the largest logit, and
`Beam` searches for the best sequence. `Chain` combines samplers, and applies them in the order that
Hugging Face documents, in whichever order they are passed. The numbers of a sampler are leaves of a
pytree: a change of the temperature does not recompile.
"""

from fkeras.authoring.engine import publish as _publish
from fkeras.generation.samplers.grammars import Constraint as Constraint
from fkeras.generation.samplers.grammars import Grammars as Grammars
from fkeras.generation.samplers.rules import Beam as Beam
from fkeras.generation.samplers.rules import Chain as Chain
from fkeras.generation.samplers.rules import Greedy as Greedy
from fkeras.generation.samplers.rules import History as History
from fkeras.generation.samplers.rules import MinNewTokens as MinNewTokens
from fkeras.generation.samplers.rules import MinP as MinP
from fkeras.generation.samplers.rules import Normalized as Normalized
from fkeras.generation.samplers.rules import RepetitionPenalty as RepetitionPenalty
from fkeras.generation.samplers.rules import Sampler as Sampler
from fkeras.generation.samplers.rules import SuppressedIds as SuppressedIds
from fkeras.generation.samplers.rules import Temperature as Temperature
from fkeras.generation.samplers.rules import TopK as TopK
from fkeras.generation.samplers.rules import TopP as TopP
from fkeras.generation.samplers.rules import Typical as Typical
from fkeras.generation.samplers.sequences import ForcedIds as ForcedIds
from fkeras.generation.samplers.sequences import MinLength as MinLength
from fkeras.generation.samplers.sequences import NoRepeatedNgrams as NoRepeatedNgrams
from fkeras.generation.samplers.sequences import SuppressedSequences as SuppressedSequences
from fkeras.generation.samplers.settings import configured as configured

_publish(__name__)
