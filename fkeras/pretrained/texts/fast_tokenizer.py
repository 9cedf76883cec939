"""Opens untrusted files with the package `tokenizers`: resource limits, and errors instead of panics."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fkeras.engine.messages.optional_packages import missing_package
from fkeras.pretrained.vocabularies.tokenizer_parts import ENDS
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.strict_json import parse

# resource limit: factor by which replacements may lengthen a text
_GROWTH = 1 << 12


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
    for part in (fast.normalizer, fast.decoder):
        if part is not None and _growth(parse(part.__getstate__())) > _GROWTH:
            raise FileError(
                f"replaces characters by texts that are more than {_GROWTH} times longer. The "
                "file is damaged or crafted.",
                member=member,
            )
    return fast


def _growth(state: Any) -> float:
    """Returns an upper bound of the factor by which replacements lengthen a text."""
    if isinstance(state, list):
        return float(np.prod([_growth(part) for part in state], dtype=np.float64))
    if not isinstance(state, Mapping):
        return 1.0
    if state.get("type") == "Replace":
        return max(1.0, float(len(str(state.get("content", "")))))
    if state.get("type") == "Precompiled":
        table = base64.b64decode(str(state.get("precompiled_charsmap", "")))
        # the replacements follow a search tree, whose size comes first; a zero ends each replacement
        texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        return max(1.0, float(max(map(len, texts))))
    return _growth(state.get("normalizers", state.get("decoders")))


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
