"""Models that others trained, in Hugging Face's format: opened, and written back."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.pretrained.token_lookup import TokenLookup as TokenLookup
from fkeras.pretrained.tokenizer import Answers as Answers
from fkeras.pretrained.tokenizer import Tokenizer as Tokenizer

_publish(__name__)
