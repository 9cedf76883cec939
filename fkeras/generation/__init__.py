"""Text generation with language models, and samplers."""

from fkeras.authoring.engine import publish as _publish
from fkeras.generation import samplers as samplers
from fkeras.generation.generating import generate as generate
from fkeras.generation.generator import Generated as Generated
from fkeras.generation.generator import Generator as Generator

_publish(__name__)
