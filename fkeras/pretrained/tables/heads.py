"""Heads: the parts of a checkpoint beside its encoder or decoder, and the classes of transformers with these parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fkeras.authoring.engine import Integer, describe_value, integer, several, text
from fkeras.engine import FrozenDict, option
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.inert_keys import Reasons
from fkeras.pretrained.tables.sentence_files import PROMPTS, pooling_file

#: the parts of a class of transformers, by the ending of its name
HEADS: Mapping[str, tuple[str, ...]] = FrozenDict(
    {
        "AlbertForPreTraining": ("masked", "sentence_order"),
        "Backbone": ("maps",),
        "BartForConditionalGeneration": ("bias",),
        "ElectraForPreTraining": ("replaced",),
        "ForCTC": ("ctc",),
        "ForCausalLM": ("causal",),
        "ForConditionalGeneration": ("decoder",),
        "ForImageClassification": ("classifier",),
        "ForImageClassificationWithTeacher": ("classifier", "teacher"),
        "ForMaskedLM": ("masked",),
        "ForNextSentencePrediction": ("next_sentence",),
        "ForPreTraining": ("masked", "next_sentence"),
        "ForQuestionAnswering": ("answers",),
        "ForSequenceClassification": ("classifier",),
        "ForTokenClassification": ("token_classifier",),
        "LMHeadModel": ("causal",),
        "M2M100ForConditionalGeneration": (),
        "MarianMTModel": ("bias",),
        "Model": (),
        "PegasusForConditionalGeneration": ("bias",),
        "WithProjection": ("projection",),
    }
)


def parts_of_class(name: Any) -> tuple[str, ...] | None:
    """Returns the parts of a class of transformers; None for another name."""
    endings = [ending for ending in HEADS if isinstance(name, str) and name.endswith(ending)]
    return HEADS[max(endings, key=len)] if endings else None


def class_of(config: Config, classes: Sequence[str]) -> str:
    """Returns the class with the most parts of a configuration; the first class if none fits."""
    own = set(getattr(config, "parts", ()))
    fitting = [name for name in classes if own.issuperset(parts_of_class(name) or ())]
    return max(fitting or classes, key=lambda name: len(own & set(parts_of_class(name) or ())))


def decoder_classes(
    name: str, *, texts: bool = True, tokens: bool = True, answers: bool = True
) -> tuple[str, ...]:
    """Returns the classes of a decoder, such as "LlamaForCausalLM" and "LlamaModel".

    Args:
        name: start of the names.
        texts: whether transformers has a class for classes of texts.
        tokens: whether transformers has a class for classes of tokens.
        answers: whether transformers has a class for answers.
    """
    endings = {
        "ForCausalLM": True,
        "Model": True,
        "ForSequenceClassification": texts,
        "ForTokenClassification": tokens,
        "ForQuestionAnswering": answers,
    }
    return tuple(f"{name}{end}" for end, exists in endings.items() if exists)


class HeadsConfig(Config):
    """Configuration of an encoder or decoder whose checkpoints have different heads.

    Args of the family:
        parts: parts of the checkpoint beside the encoder or decoder, such as "pooler" or "classifier". The
            model has an output for each head. Not a key of `config.json`: `load` derives the parts from the
            key `architectures` and from the tensor names.
        num_labels: number of classes of the classifier of texts, images or tokens.
    """

    parts: tuple[str, ...] = option(
        default=(), convert=several(text(), "a tuple of names", least=0), kw_only=True
    )
    num_labels: Integer = option(default=2, convert=integer(minimum=1), kw_only=True)

    neutral: ClassVar[Reasons] = FrozenDict(
        {
            "the activation that CrossEncoder of sentence-transformers applies to the logits": (
                "sbert_ce_default_activation_function",
                "sentence_transformers",
            )
        }
    )
    #: for each part the suffixes of its tensor names; "/" stands before a whole name
    endings: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict({})

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [part for part in self.parts if part not in self.endings]
        if unknown:
            raise ValueError(
                f"{type(self).__name__}: parts: expected names of {', '.join(self.endings) or 'no parts'}, "
                f"received {unknown[0][:80]!r}."
            )

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        labels = mapping.get("id2label")
        fields = dict(mapping)
        if isinstance(labels, Mapping):
            fields["num_labels"] = len(labels)
        return fields

    def write(self) -> dict[str, Any]:
        mapping = super().write()
        mapping.pop("parts", None)
        labels = mapping.get("id2label")
        if isinstance(labels, Mapping) and len(labels) != self.num_labels:
            # names of other classes
            del mapping["id2label"]
            mapping.pop("label2id", None)
        if not self.source and not {"classifier", "token_classifier"} & {*self.parts}:
            mapping.pop("num_labels", None)
        return mapping

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, from the key `id2label`; "LABEL_0" and so on without names."""
        names = self.source.get("id2label")
        names = names if isinstance(names, Mapping) and len(names) == self.num_labels else {}
        return tuple(str(names.get(str(n), f"LABEL_{n}")) for n in range(self.num_labels))

    @property
    def named_parts(self) -> tuple[str, ...] | None:
        """Parts of the class in the key `architectures`; None without a class."""
        classes = self.source.get("architectures")
        return parts_of_class(classes[0]) if isinstance(classes, tuple | list) and classes else None

    @property
    def has_sentence(self) -> bool:
        """Whether the folder is one of sentence-transformers, which pools the hidden states."""
        return pooling_file(self.beside) is not None


class TextHeadsConfig(HeadsConfig):
    """Configuration of a model of texts, which may be in a folder of sentence-transformers."""

    def prompt(self, name: str | None = None) -> str:
        """Returns the text that precedes a text, from `config_sentence_transformers.json`.

        Args:
            name: name of the prompt, such as "query"; None for the default prompt, which is empty in most
                folders.

        Raises:
            ValueError: for a name that the file lacks, and for a file with other content.

        Example:
            >>> import fkeras as fk
            >>> file = {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": None}
            >>> beside = {"config_sentence_transformers.json": file}
            >>> config = fk.pretrained.BertConfig(beside=beside)
            >>> config.prompt("query") + "Where do cats sleep?", config.prompt()
            ('query: Where do cats sleep?', '')
        """
        content = self.beside.get(PROMPTS, {})
        prompts = (content.get("prompts") or {}) if isinstance(content, Mapping) else content
        texts = prompts.values() if isinstance(prompts, Mapping) else (None,)
        if not all(isinstance(value, str) for value in texts):
            raise ValueError(
                f"{PROMPTS}: expected a text for each name of a prompt, received "
                f"{describe_value(prompts)}. Correct the file."
            )
        if name is None:
            name = content.get("default_prompt_name")
            if name is None:
                return ""
        if name not in prompts:
            raise ValueError(
                f"{type(self).__name__}.prompt: expected one of {', '.join(map(repr, prompts)) or 'no names'}, "
                f"the prompts of {PROMPTS}, received {str(name)[:80]!r}."
            )
        return prompts[name]
