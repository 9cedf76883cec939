"""`VocabularyFolder`: the vocabulary of an older checkpoint, with its configuration and its class."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fkeras.authoring.engine import describe_value
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import check, field, parse
from fkeras.pretrained.vocabularies.sentencepiece_file import SentencePieces, read_sentencepiece
from fkeras.pretrained.vocabularies.tokenizer_parts import end_template, template

CONFIG, SPECIAL, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
WORDS, TOKENS, MERGES = "vocab.txt", "vocab.json", "merges.txt"
MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
#: files of vocabularies, from which `tokenizer_json` makes `tokenizer.json`
VOCABULARIES = (WORDS, TOKENS, MERGES, *MODELS, ADDED)
_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")

#: returns the step that puts special tokens around a text, for the ids of all tokens
Around = Callable[[Mapping[str, int]], "dict[str, Any] | None"]


class TokenizerClass(NamedTuple):
    """How a class of tokenizers reads its files.

    Attributes:
        build: returns the parts of `tokenizer.json`. The part "around" is an `Around`; the part "special"
            lists special tokens that have no names.
        files: the files of the vocabulary; `MODELS` for one of these files.
        tokens: special tokens by name, which the files may rename.
        slow: whether sentencepiece itself reads the texts in transformers: special tokens remove the
            spaces around them, and control pieces without a name stay text.
    """

    build: Callable[[VocabularyFolder], dict[str, Any]]
    files: tuple[str, ...]
    tokens: Mapping[str, str]
    slow: bool = False


@dataclasses.dataclass(frozen=True)
class VocabularyFolder:
    """The vocabulary of a folder, with its configuration and the class of its tokenizer.

    Attributes:
        originals: contents of the files `VOCABULARIES` that the folder has.
        config: `special_tokens_map.json` and `tokenizer_config.json` in one mapping.
        name: name of the class.
        kind: the class.
        limits: resource limits.
    """

    originals: Mapping[str, bytes]
    config: Mapping[str, Any]
    name: str
    kind: TokenizerClass
    limits: Limits

    @functools.cached_property
    def source(self) -> str:
        """The first file of the vocabulary.

        Raises:
            FileError: for missing files, and for several models of sentencepiece.
        """
        present = [name for name in self.originals if name != ADDED]
        expected = self.kind.files
        if expected == MODELS:
            models = [name for name in present if name in MODELS]
            if len({self.originals[name] for name in models}) > 1:
                raise FileError(
                    f"expected one model of sentencepiece, received different files "
                    f"{' and '.join(models)}. Remove the file that does not belong to the model.",
                    member=models[1],
                )
            expected = (*models, MODELS[0])[:1]
        missing = [name for name in expected if name not in self.originals]
        if missing:
            raise FileError(
                f"expected the file {' and '.join(missing)} of a {self.name}, received a folder with "
                f"{', '.join(present)}. Download the missing file, or correct tokenizer_class in {CONFIG}.",
                member=missing[0],
            )
        return expected[0]

    @functools.cached_property
    def pieces(self) -> SentencePieces:
        return read_sentencepiece(self.originals[self.source], self.source, self.limits)

    def flag(self, name: str, default: bool) -> bool:
        value = field(self.config, name, (bool, type(None)), default=None, member=CONFIG)
        return default if value is None else value

    @functools.cached_property
    def special(self) -> dict[str, str]:
        """Special tokens by name, such as "bos_token"."""
        named = {f"{name}_token": self.kind.tokens.get(name) for name in _NAMES}
        named |= {n: content_of(self.config[n], n) for n in named if n in self.config}
        return {name: token for name, token in named.items() if token}

    def token(self, name: str) -> str:
        """Returns the special token of a name such as "eos".

        Raises:
            FileError: if the configuration removes the token.
        """
        token = self.special.get(f"{name}_token")
        if token is None:
            raise FileError(
                f"expected the {name}_token of a {self.name} as a text, received null. Leave the key out "
                "for the usual token.",
                member=CONFIG,
            )
        return token

    def around(self, before: str, after: str, *, doubled: bool = False) -> Around:
        """Returns the template with named special tokens around a text.

        Args:
            before: name of the token before a text, such as "cls"; "" for none.
            after: name of the token after a text.
            doubled: whether a second text also begins with the token `after`.
        """
        start, end = ([self.token(name)] if name else [] for name in (before, after))
        return lambda ids: template(start, end, end if doubled else [], ids)

    def ends(self, *, bos: bool = False) -> Around:
        """Returns the template of the tokens that `add_bos_token` and `add_eos_token` ask for.

        Args:
            bos: the default of `add_bos_token`.
        """
        config = {
            **self.special,
            "add_bos_token": self.flag("add_bos_token", bos),
            "add_eos_token": self.flag("add_eos_token", False),
        }
        return lambda ids: end_template(config, ids)

    def lines(self, name: str) -> list[str]:
        lines = self._text(name).split("\n")
        return lines[:-1] if not lines[-1].strip() else lines

    def ids(self, name: str) -> dict[str, int]:
        """Returns the ids by tokens in a JSON file."""
        ids = check(parse(self._text(name), None, name, self.limits), dict, "the text", member=name)
        wrong = next((token for token, number in ids.items() if type(number) is not int), None)
        if wrong is not None:
            raise FileError(
                f"expected an id for the token {wrong[:80]!r}, received {describe_value(ids[wrong])}.",
                member=name,
            )
        return ids

    def _text(self, name: str) -> str:
        try:
            return self.originals[name].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FileError(
                f"expected UTF-8, received other bytes at {error.start}. The file is damaged.",
                member=name,
            ) from error


def content_of(token: Any, name: str) -> str | None:
    """Returns the text of a token in a configuration: a text, or an object with flags."""
    text = token.get("content") if isinstance(token, Mapping) else token
    if token is not None and not isinstance(text, str):
        raise FileError(
            f"expected {name} as a text or an object with content, received {describe_value(token)}.",
            member=CONFIG,
        )
    return text


def special_config(special: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `special_tokens_map.json` and `tokenizer_config.json` in one mapping.

    The file `special_tokens_map.json` counts in older folders only, which lack "added_tokens_decoder".
    """
    return {**special, **config} if "added_tokens_decoder" in config else {**config, **special}
