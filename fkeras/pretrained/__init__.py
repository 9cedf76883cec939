"""Models that others trained, in Hugging Face's format: opened, and written back."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.pretrained.adapter_files import load_adapter as load_adapter
from fkeras.pretrained.adapter_writing import save_adapter as save_adapter
from fkeras.pretrained.bert import BertConfig as BertConfig
from fkeras.pretrained.bert import DistilBertConfig as DistilBertConfig
from fkeras.pretrained.bert import RobertaConfig as RobertaConfig
from fkeras.pretrained.clip import ClipConfig as ClipConfig
from fkeras.pretrained.clip import ClipTextConfig as ClipTextConfig
from fkeras.pretrained.clip import ClipVisionConfig as ClipVisionConfig
from fkeras.pretrained.clip import SiglipConfig as SiglipConfig
from fkeras.pretrained.clip import SiglipTextConfig as SiglipTextConfig
from fkeras.pretrained.config import Config as Config
from fkeras.pretrained.families import build as build
from fkeras.pretrained.gemma import GemmaConfig as GemmaConfig
from fkeras.pretrained.gpt2 import GPT2Config as GPT2Config
from fkeras.pretrained.images import ImageProcessor as ImageProcessor
from fkeras.pretrained.llama import LlamaConfig as LlamaConfig
from fkeras.pretrained.loading import Loaded as Loaded
from fkeras.pretrained.loading import load as load
from fkeras.pretrained.mixtral import MixtralConfig as MixtralConfig
from fkeras.pretrained.modernbert import ModernBertConfig as ModernBertConfig
from fkeras.pretrained.sounds import SoundProcessor as SoundProcessor
from fkeras.pretrained.t5 import T5Config as T5Config
from fkeras.pretrained.token_lookup import TokenLookup as TokenLookup
from fkeras.pretrained.tokenizer import Answers as Answers
from fkeras.pretrained.tokenizer import Tokenizer as Tokenizer
from fkeras.pretrained.vit import Dinov2Config as Dinov2Config
from fkeras.pretrained.vit import Dinov2RegistersConfig as Dinov2RegistersConfig
from fkeras.pretrained.vit import SiglipVisionConfig as SiglipVisionConfig
from fkeras.pretrained.vit import ViTConfig as ViTConfig
from fkeras.pretrained.whisper import WhisperConfig as WhisperConfig
from fkeras.pretrained.writing import save as save

_publish(__name__)
