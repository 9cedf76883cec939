"""Text generation with language models, and samplers."""

from fkeras.authoring.engine import publish as _publish
from fkeras.generation import samplers as samplers
from fkeras.generation.generating import generate as generate
from fkeras.generation.generator import Generated as Generated
from fkeras.generation.generator import Generator as Generator
from fkeras.generation.logprobs import Logprobs as Logprobs
from fkeras.generation.scoring import Scores as Scores
from fkeras.generation.scoring import score as score

_publish(__name__)
