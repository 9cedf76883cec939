"""Pretrained models: reads and writes checkpoints of Hugging Face, GGUF files and adapters of PEFT."""

from fkeras.authoring.engine import publish as _publish
from fkeras.pretrained.adapter_files.loading import load_adapter as load_adapter
from fkeras.pretrained.adapter_files.saving import save_adapter as save_adapter
from fkeras.pretrained.families.bert import BertConfig as BertConfig
from fkeras.pretrained.families.bert import DistilBertConfig as DistilBertConfig
from fkeras.pretrained.families.bert import RobertaConfig as RobertaConfig
from fkeras.pretrained.families.clip import ClipConfig as ClipConfig
from fkeras.pretrained.families.clip import ClipTextConfig as ClipTextConfig
from fkeras.pretrained.families.clip import ClipVisionConfig as ClipVisionConfig
from fkeras.pretrained.families.clip import SiglipConfig as SiglipConfig
from fkeras.pretrained.families.clip import SiglipTextConfig as SiglipTextConfig
from fkeras.pretrained.families.deepseek import DeepseekConfig as DeepseekConfig
from fkeras.pretrained.families.falcon import FalconConfig as FalconConfig
from fkeras.pretrained.families.gemma import GemmaConfig as GemmaConfig
from fkeras.pretrained.families.gpt2 import GPT2Config as GPT2Config
from fkeras.pretrained.families.gpt_neox import GPTNeoXConfig as GPTNeoXConfig
from fkeras.pretrained.families.llama import LlamaConfig as LlamaConfig
from fkeras.pretrained.families.mixtral import MixtralConfig as MixtralConfig
from fkeras.pretrained.families.modernbert import ModernBertConfig as ModernBertConfig
from fkeras.pretrained.families.opt import OPTConfig as OPTConfig
from fkeras.pretrained.families.phi import PhiConfig as PhiConfig
from fkeras.pretrained.families.starcoder2 import Starcoder2Config as Starcoder2Config
from fkeras.pretrained.families.t5 import T5Config as T5Config
from fkeras.pretrained.families.table import build as build
from fkeras.pretrained.families.vit import Dinov2Config as Dinov2Config
from fkeras.pretrained.families.vit import Dinov2RegistersConfig as Dinov2RegistersConfig
from fkeras.pretrained.families.vit import SiglipVisionConfig as SiglipVisionConfig
from fkeras.pretrained.families.vit import ViTConfig as ViTConfig
from fkeras.pretrained.families.whisper import WhisperConfig as WhisperConfig
from fkeras.pretrained.files.generation import Generation as Generation
from fkeras.pretrained.loading import Loaded as Loaded
from fkeras.pretrained.loading import load as load
from fkeras.pretrained.media.images import ImageProcessor as ImageProcessor
from fkeras.pretrained.media.sounds import SoundProcessor as SoundProcessor
from fkeras.pretrained.tables.config import Config as Config
from fkeras.pretrained.texts.token_lookup import TokenLookup as TokenLookup
from fkeras.pretrained.texts.tokenizer import Answers as Answers
from fkeras.pretrained.texts.tokenizer import Tokenizer as Tokenizer
from fkeras.pretrained.writing import save as save

_publish(__name__)
