"""Text generation with language models, and samplers."""

from fkeras.authoring.engine import publish as _publish
from fkeras.generation import samplers as samplers
from fkeras.generation.generating import Generated as Generated
from fkeras.generation.generating import generate as generate

_publish(__name__)
