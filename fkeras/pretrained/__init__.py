"""Models that others trained, in Hugging Face's format: opened, and written back."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.pretrained.config import Config as Config
from fkeras.pretrained.families import build as build
from fkeras.pretrained.gemma import GemmaConfig as GemmaConfig
from fkeras.pretrained.gpt2 import GPT2Config as GPT2Config
from fkeras.pretrained.llama import LlamaConfig as LlamaConfig
from fkeras.pretrained.loading import Loaded as Loaded
from fkeras.pretrained.loading import load as load
from fkeras.pretrained.mixtral import MixtralConfig as MixtralConfig
from fkeras.pretrained.t5 import T5Config as T5Config
from fkeras.pretrained.token_lookup import TokenLookup as TokenLookup
from fkeras.pretrained.tokenizer import Answers as Answers
from fkeras.pretrained.tokenizer import Tokenizer as Tokenizer
from fkeras.pretrained.writing import save as save

_publish(__name__)
