"""Opens untrusted files with the package `tokenizers`: resource limits, and errors instead of panics."""

from __future__ import annotations

import base64
import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fkeras.authoring.engine import missing_package
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import parse
from fkeras.pretrained.vocabularies.tokenizer_parts import ENDS

# resource limits: factor by which normalizer, decoder or post-processor may lengthen a text, and characters
# of a word, whose parts WordPiece tries one after the other
_GROWTH = 1 << 8
_WORD = 1000
_CHARSMAP = "precompiled_charsmap"


def open_tokenizer(text: str, member: str) -> Any:
    """Returns the tokenizer of the package `tokenizers` for the content of `tokenizer.json`.

    Args:
        member: name of the file in error messages.

    Raises:
        FileError: for content that describes no tokenizer.
        ImportError: if the package tokenizers is not installed.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise missing_package("Tokenizer", "tokenizers", error) from error
    # the package ends the process for a wrong length; keys may be written with escapes
    if _CHARSMAP in text or "\\u00" in text:
        _check_charsmaps(parse(text, member=member), member)
    with guarded("expected a tokenizer of the package tokenizers", member):
        fast = tokenizers.Tokenizer.from_str(text)
        # callers pad and truncate; the padding in an untrusted file may be huge
        fast.no_truncation()
        fast.no_padding()
        ids = fast.get_vocab(with_added_tokens=True).values()
        suffix = getattr(fast.model, "end_of_word_suffix", None)
        if suffix and isinstance(fast.decoder, tokenizers.decoders.ByteLevel):
            # the decoder in the files of CLIP keeps the suffix of words, which stands for a space
            ends = tokenizers.Regex(ENDS)
            words = [
                tokenizers.decoders.Replace(suffix, " "),
                tokenizers.decoders.Replace(ends, ""),
            ]
            fast.decoder = tokenizers.decoders.Sequence([fast.decoder, *words])
    if max(ids, default=0) >= 1 << 31:
        raise FileError("expected ids below 2**31, received larger ids.", member=member)
    for part in (fast.normalizer, fast.decoder, fast.post_processor):
        if part is not None and _growth(parse(part.__getstate__())) > _GROWTH:
            raise FileError(
                f"replaces texts by texts that are more than {_GROWTH} times longer. The "
                "file is damaged or crafted.",
                member=member,
            )
    longest = getattr(fast.model, "max_input_chars_per_word", 0)
    if longest > _WORD:
        raise FileError(
            f"expected max_input_chars_per_word of at most {_WORD}, received {longest}: the time grows "
            "with the square. The usual value is 100.",
            member=member,
        )
    if getattr(fast.model, "dropout", None):
        warnings.warn(
            f"Tokenizer: the BPE model has dropout={fast.model.dropout}, which makes ids random. The dropout "
            "is ignored; remove it from tokenizer.json.",
            stacklevel=2,
        )
        fast.model.dropout = None
    return fast


def _check_charsmaps(state: Any, member: str) -> None:
    """Checks the length at the start of each table of replacements."""
    if isinstance(state, Mapping):
        table = state.get(_CHARSMAP)
        if isinstance(table, str):
            start, size = (
                base64.b64decode(table[:8] + "=" * (-len(table[:8]) % 4)),
                3 * len(table) // 4,
            )
            length = int.from_bytes(start[:4], "little")
            if len(start) < 4 or length > size - 4 or length % 4:
                raise FileError(
                    f"expected a charsmap with the length of its search tree, received the length {length} in "
                    f"{size} bytes. The file is damaged or crafted.",
                    member=member,
                )
        state = list(state.values())
    for part in state if isinstance(state, list) else ():
        _check_charsmaps(part, member)


def _growth(state: Any) -> float:
    """Returns an upper bound of the factor by which replacements lengthen a text."""
    if isinstance(state, list):
        return float(np.prod([_growth(part) for part in state], dtype=np.float64))
    if not isinstance(state, Mapping):
        return 1.0
    if state.get("type") == "Replace":
        return max(1.0, float(len(str(state.get("content", "")))))
    if state.get("type") == "Prepend":
        return max(1.0, float(len(str(state.get("prepend", "")))))
    if state.get("type") == "TemplateProcessing":
        added = {name: len(token["ids"]) for name, token in state["special_tokens"].items()}
        pieces = [*state["single"], *state["pair"]]
        # a piece is the text, or the ids of a token
        return float(sum(added.get(p.get("SpecialToken", {}).get("id"), 1) for p in pieces))
    if state.get("type") == "Precompiled":
        table = base64.b64decode(str(state.get("precompiled_charsmap", "")))
        # the replacements follow a search tree, whose size comes first; a zero ends each replacement
        texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        return max(1.0, float(max(map(len, texts))))
    parts = ("normalizers", "decoders", "processors")
    return _growth(next((state[name] for name in parts if name in state), None))


@contextlib.contextmanager
def guarded(where: str, member: str | None = None) -> Iterator[None]:
    """Converts errors of the package `tokenizers`, including panics of Rust."""
    try:
        yield
    except (FileError, ImportError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        problem = f"{where}: {str(error)[:300]}"
        if member is None:
            raise ValueError(f"{problem} ({type(error).__name__}). Check the text.") from error
        raise FileError(f"{problem}. The file is damaged or crafted.", member=member) from error
