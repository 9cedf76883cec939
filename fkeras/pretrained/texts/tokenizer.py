"""`Tokenizer`: encodes texts and decodes ids with the tokenizer files of a checkpoint.

The package `tokenizers` computes the ids. A `Tokenizer` is an immutable value: the contents of its
files. `Tokenizer.read` and `Tokenizer.write` preserve the bytes of the files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.authoring.engine import (
    Leaf,
    MissingAttributeError,
    describe_value,
    entry,
    explains_arguments,
)
from fkeras.engine import FrozenDict, suggest
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import parse
from fkeras.pretrained.texts.chat import render
from fkeras.pretrained.texts.control_tokens import encodings_without
from fkeras.pretrained.texts.delimiters import DelimitedText, free_delimiters
from fkeras.pretrained.texts.fast_tokenizer import guarded, open_tokenizer
from fkeras.pretrained.texts.tokenizer_files import (
    FILES,
    GENERATION,
    MODEL,
    ORIGINALS,
    TEMPLATE,
    read_tokenizer,
)
from fkeras.pretrained.texts.traced_text import ANSWER, USER, trace
from fkeras.pretrained.vocabularies.gguf_tokenizer import tokenizer_files
from fkeras.pretrained.vocabularies.vocabulary_folder import CONFIG, SPECIAL, special_config


class Answers(NamedTuple):
    """The ids of a conversation, and a mask of the ids in answers of the assistant.

    Attributes:
        ids: the ids of the whole conversation.
        mask: for each id, whether the id belongs to an answer of the assistant.

    Example:
        >>> answers = Answers([5, 7], [False, True])
        >>> [i for i, learned in zip(answers.ids, answers.mask) if learned]
        [7]
    """

    ids: list[int]
    mask: list[bool]


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """Encodes texts and decodes ids with the tokenizer files of a checkpoint.

    Two tokenizers are equal if their `files` are equal.

    Args:
        files: the contents of the files by name: "tokenizer.json", and optionally
            "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja" and
            "generation_config.json".
        originals: the contents of files of older formats by name, such as "vocab.txt" or
            "tokenizer.model". No id depends on `originals`; `write` writes the files.

    Raises:
        FileError: for files that describe no tokenizer.
        ImportError: from the first use, if the package tokenizers is not installed.

    Example:
        >>> model = '{"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2}, "unk_token": "?"}'
        >>> split = '{"type": "Whitespace"}'
        >>> tokenizer = Tokenizer(
        ...     {"tokenizer.json": f'{{"model": {model}, "pre_tokenizer": {split}}}'}
        ... )
        >>> tokenizer.encode("b a c"), tokenizer.decode([1, 0])
        ([1, 0, 2], 'b a')
    """

    files: Mapping[str, str]
    originals: Mapping[str, bytes] = dataclasses.field(default=FrozenDict(), compare=False)

    def __post_init__(self) -> None:
        folder = not isinstance(self.files, Mapping)
        for name, text in [("files", self.files)] if folder else self.files.items():
            if name not in FILES or not isinstance(text, str):
                raise ValueError(
                    f"Tokenizer: expected the texts of the files {', '.join(FILES)}, received {name!r}: "
                    f"{describe_value(text)}.{suggest(name, FILES)} Read a folder: Tokenizer.read(folder)."
                )
        for name, data in self.originals.items():
            if name not in ORIGINALS or not isinstance(data, bytes):
                raise ValueError(
                    f"Tokenizer: expected the bytes of the files {', '.join(ORIGINALS)} as originals, "
                    f"received {name!r}: {describe_value(data)}.{suggest(name, ORIGINALS)} Read a folder "
                    "with Tokenizer.read(folder)."
                )
        if MODEL not in self.files:
            raise ValueError(
                f"Tokenizer: expected the text of {MODEL}, received only "
                f"{', '.join(self.files) or 'no file'}. Read a folder with Tokenizer.read(folder)."
            )
        object.__setattr__(self, "files", FrozenDict(self.files))
        object.__setattr__(self, "originals", FrozenDict(self.originals))
        # errors in the files are reported here, a missing package tokenizers at the first use
        with contextlib.suppress(ImportError):
            _ = self._fast, self.end_ids

    @classmethod
    def read(
        cls, folder: str | os.PathLike[str], *, limits: Limits | None = None
    ) -> Tokenizer | None:
        """Reads the tokenizer of a folder; None if the folder has no vocabulary.

        An older folder has no `tokenizer.json`, but `vocab.txt`, or `vocab.json` and `merges.txt`, or a model
        of sentencepiece. From these files `read` makes `tokenizer.json` for BERT, DistilBERT, GPT-2, RoBERTa,
        XLM-RoBERTa, CLIP, SigLIP, Whisper, Qwen, Llama, Mistral, Phi 3, Gemma and T5: `tokenizer_class` in
        `tokenizer_config.json` or else `model_type` in `config.json` names the kind of tokenizer.

        Args:
            folder: a folder in the layout of Hugging Face.
            limits: resource limits; `config_bytes` limits each file, and `objects` the pieces of a
                sentencepiece model.

        Raises:
            FileError: for a damaged file, for files that contradict each other, for an unknown class of an
                older folder, and for a file above the limit.

        Example:
            >>> import pathlib, tempfile
            >>> folder = pathlib.Path(tempfile.mkdtemp())
            >>> Tokenizer.read(folder) is None
            True
            >>> _ = (folder / "config.json").write_text('{"model_type": "bert"}')
            >>> _ = (folder / "vocab.txt").write_text("[PAD]\\n[UNK]\\n[CLS]\\n[SEP]\\n[MASK]\\nhello\\n")
            >>> Tokenizer.read(folder).encode("Hello")
            [2, 5, 3]
        """
        path = as_path(folder)
        content = read_tokenizer(path, limits or Limits())
        if content is None:
            return None
        try:
            return cls(content.files, content.originals)
        except FileError as error:
            name = content.source if error.member in (None, MODEL) else error.member
            file = os.path.join(path, name or content.source)
            raise FileError(error.problem, file=file, key=error.key) from error.__cause__

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer | None:
        """Returns the tokenizer of a GGUF file; None if the file has no tokenizer.

        Args:
            metadata: the metadata of the file: values by keys such as "tokenizer.ggml.tokens".

        Raises:
            FileError: for a missing or malformed value, and an unknown type of tokenizer.

        Example:
            >>> Tokenizer.from_gguf({"general.architecture": "llama"}) is None
            True
        """
        files = tokenizer_files(metadata)
        return None if files is None else cls(files)

    def get_config(self) -> dict[str, Any]:
        """Returns `files`, for the configuration of a layer that holds the tokenizer."""
        return {"files": dict(self.files)}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Tokenizer:
        """Returns the tokenizer of a configuration.

        Args:
            config: the dictionary that `get_config` returned.
            custom_objects: has no effect: a tokenizer contains no code.
        """
        return cls(entry(config, "files", Mapping))

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Writes `files` and `originals` into a folder, with the bytes that were read.

        Args:
            folder: an existing folder.

        Example:
            >>> import pathlib, tempfile
            >>> folder = tempfile.mkdtemp()
            >>> Tokenizer({"tokenizer.json": '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'}).write(folder)
            >>> [path.name for path in pathlib.Path(folder).iterdir()]
            ['tokenizer.json']
        """
        texts = {name: text.encode("utf-8") for name, text in self.files.items()}
        for name, data in {**self.originals, **texts}.items():
            with replacing(os.path.join(as_path(folder), name)) as file:
                file.write(data)

    def __repr__(self) -> str:
        size = ""
        # a loaded model can be printed without the package tokenizers
        with contextlib.suppress(ImportError):
            size = f"{self.size} ids, "
        return f"Tokenizer({size}files: {', '.join((*self.files, *self.originals))})"

    if not TYPE_CHECKING:  # a type checker would accept every attribute and call

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            raise TypeError(
                "Tokenizer: a tokenizer is no function. Write ids = tokenizer.encode(text), or "
                "tokenizer.chat(messages) for a conversation."
            )

    # -- the files ----------------------------------------------------------------------------

    @functools.cached_property
    def _fast(self) -> Any:
        return open_tokenizer(self.files[MODEL], MODEL)

    def _json(self, name: str) -> Mapping[str, Any]:
        value = parse(self.files[name], member=name) if name in self.files else {}
        if not isinstance(value, Mapping):
            raise FileError(
                f"expected a JSON object, received {describe_value(value)}.", member=name
            )
        return value

    @functools.cached_property
    def _config(self) -> Mapping[str, Any]:
        return special_config(self._json(SPECIAL), self._json(CONFIG))

    @functools.cached_property
    def _named(self) -> Mapping[str, str]:
        """The special tokens by their names in templates, such as "bos_token"."""
        named = {}
        for name, token in self._config.items():
            text = token.get("content") if isinstance(token, Mapping) else token
            if name.endswith("_token") and isinstance(text, str):
                named[name] = text
        return named

    def _id(self, name: str) -> int | None:
        token = self._named.get(name)
        return None if token is None else self._fast.token_to_id(token)

    @property
    def bos_id(self) -> int | None:
        """The id of the BOS token, or None."""
        return self._id("bos_token")

    @property
    def eos_id(self) -> int | None:
        """The id of the EOS token, or None; `end_ids` has the ids of all end tokens."""
        return self._id("eos_token")

    @property
    def pad_id(self) -> int | None:
        """The id of the padding token, or None. It may also be an end token: pass `lengths` for padded ids."""
        return self._id("pad_token")

    @functools.cached_property
    def end_ids(self) -> tuple[int, ...]:
        """The ids of the end tokens: those in `generation_config.json`, or else `eos_id`."""
        value = self._json(GENERATION).get("eos_token_id", self.eos_id)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if any(not isinstance(i, int) or isinstance(i, bool) or i < 0 for i in ids):
            raise FileError(
                f"expected ids as eos_token_id, received {describe_value(value)}.",
                member=GENERATION,
            )
        return tuple(ids)

    @functools.cached_property
    def size(self) -> int:
        """The size of the vocabulary: the largest id + 1. The embedding of a model may have more rows."""
        return max(self._fast.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @functools.cached_property
    def templates(self) -> Mapping[str, str]:
        """The chat templates by name; a single template has the name "default"."""
        value = self.files.get(TEMPLATE, self._config.get("chat_template"))
        if value is None:
            return FrozenDict()
        if isinstance(value, str):
            return FrozenDict({"default": value})
        if isinstance(value, list) and all(
            isinstance(t, Mapping)
            and isinstance(t.get("name"), str)
            and isinstance(t.get("template"), str)
            for t in value
        ):
            return FrozenDict({t["name"]: t["template"] for t in value})
        raise FileError(
            "expected chat_template as a text or a list of names and templates, received "
            f"{describe_value(value)}.",
            member=CONFIG,
        )

    # -- texts --------------------------------------------------------------------------------

    @explains_arguments
    def encode(
        self, text: str, *, special_tokens: bool = True, add_special_tokens: bool = True
    ) -> list[int]:
        """Returns the ids of a text.

        Args:
            text: any text.
            special_tokens: whether a special token in the text, such as "<|im_end|>", becomes its id.
                Pass False for untrusted text: each special token, also if the tokenizer normalizes the
                text to the token, is split after its first character, and encoded as ordinary text.
            add_special_tokens: whether to add the special tokens that the files configure, such as the
                BOS token. The BOS token is not added to a text that starts with the BOS token.

        Raises:
            TypeError: for a value that is no string.
            ValueError: for a text that Unicode cannot represent.

        Example:
            >>> model = '{"type": "BPE", "vocab": {"<": 0, "s": 1, ">": 2}, "merges": []}'
            >>> added = '[{"id": 3, "content": "<s>", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}]'
            >>> tokenizer = Tokenizer({"tokenizer.json": f'{{"model": {model}, "added_tokens": {added}}}'})
            >>> tokenizer.encode("s<s>"), tokenizer.encode("s<s>", special_tokens=False)
            ([1, 3], [1, 0, 1, 2])
        """
        if not isinstance(text, str):
            raise TypeError(
                f"Tokenizer.encode: expected a text, received {describe_value(text)}. Encode the "
                "texts of a list one by one."
            )
        traced = text if special_tokens else trace(text, USER)
        encodings = [encoding for _, encoding in self._encodings(traced, {USER: self._special})]
        raw = type(encodings[0]).merge(encodings)
        if not add_special_tokens:
            return raw.ids
        with guarded("Tokenizer.encode"):
            ids = self._fast.post_process(raw, add_special_tokens=True).ids
        begins = raw.ids[:1] == [self.bos_id]
        adds_bos, adds_eos = (self._config.get(f"add_{name}_token") for name in ("bos", "eos"))
        if self.bos_id is not None:
            added = ids[:1] == [self.bos_id] and (not begins or ids[1:2] == [self.bos_id])
            if added and (adds_bos is False or begins):
                ids = ids[1:]
            elif adds_bos is True and not added and not begins:
                ids = [self.bos_id, *ids]
        if self.eos_id is not None:
            added = ids[-1:] == [self.eos_id] and len(raw.ids) < len(ids)
            if adds_eos is True and not added:
                ids = [*ids, self.eos_id]
        return ids

    @explains_arguments
    def decode(self, ids: Sequence[int] | Leaf, *, special_tokens: bool = False) -> str:
        """Returns the text of ids.

        An incomplete character at the end becomes the replacement character "�"; `fk.utils.TextStream`
        holds incomplete characters back until they are complete.

        Args:
            ids: integers, as a list or an array with one axis.
            special_tokens: whether to keep special tokens such as "<|im_end|>" in the text.

        Raises:
            ValueError: for ids without a token, and for more than one axis.

        Example:
            >>> vocabulary = '{"a": 0, "b": 1}'
            >>> model = f'{{"type": "BPE", "vocab": {vocabulary}, "merges": []}}'
            >>> Tokenizer({"tokenizer.json": f'{{"model": {model}, "decoder": {{"type": "Fuse"}}}}'}).decode([1, 0])
            'ba'
        """
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(
                "Tokenizer.decode: expected a list of ids or an array of integers with one axis, "
                f"received {describe_value(ids)}. Decode the rows of a batch one by one."
            )
        numbers = array.tolist()
        for position, number in enumerate(numbers):
            if not 0 <= number < 1 << 32 or self._fast.id_to_token(number) is None:
                raise ValueError(
                    f"Tokenizer.decode: id {number} at position {position} has no token; the "
                    f"tokenizer has {self.size} ids. Remove padding, and pass vocabulary_size=tokenizer.size "
                    "to fk.generate."
                )
        with guarded("Tokenizer.decode"):
            return self._fast.decode(numbers, skip_special_tokens=not special_tokens)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        template: str | None = None,
        **variables: Any,
    ) -> list[int]:
        """Returns the ids of a conversation that the chat template renders.

        Only the template adds the BOS token. Special tokens with characters of messages, tools or documents
        are encoded as ordinary text, also if the template joins, strips or lowers their parts. Answers of the assistant keep added tokens that the files do not mark as
        special, such as "<think>".

        Args:
            messages: dictionaries with "role" and "content".
            tools: JSON schemas of functions that the model may call.
            documents: documents for retrieval-augmented generation.
            add_generation_prompt: whether to append the start of an answer of the assistant.
            template: the name of a template of the files, or the text of a template; None for the
                template "tool_use" if `tools` is not empty, or else "default".
            variables: further variables of the template, such as `enable_thinking=False`, or
                `strftime_now` for a fixed date.

        Raises:
            TypeError: for messages that are no dictionaries.
            ValueError: for a missing template, an error in the template, and messages that the template
                rejects.
            ImportError: if the package jinja2 is not installed.

        Example:
            >>> words = '{"hi": 0, "?": 1, "U": 2}'
            >>> model = f'{{"type": "WordLevel", "vocab": {words}, "unk_token": "?"}}'
            >>> tokenizer = Tokenizer({
            ...     "tokenizer.json": f'{{"model": {model}, "pre_tokenizer": {{"type": "Whitespace"}}}}',
            ...     "chat_template.jinja": "{% for m in messages %}U {{ m.content }}{% endfor %}",
            ... })
            >>> tokenizer.chat([{"role": "user", "content": "hi"}])
            [2, 0]
        """
        values = {"tools": tools, "documents": documents, **variables}
        text, control = self._chat_text(messages, values, add_generation_prompt, template)
        return [i for _, encoding in self._encodings(text.plain, control) for i in encoding.ids]

    def chat_answers(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        template: str | None = None,
        **variables: Any,
    ) -> Answers:
        """Returns the ids of a conversation and the mask of the answers, for a loss on answers only.

        The answers are the blocks `{% generation %}` of the template. For a template without such blocks,
        an answer is the text that the template renders after the generation prompt for a message of the
        assistant.

        Args:
            messages: dictionaries with "role" and "content".
            tools: JSON schemas of functions that the model may call.
            documents: documents for retrieval-augmented generation.
            template: the name or the text of a template, as in `chat`.
            variables: further variables of the template.

        Raises:
            ValueError: as in `chat`, and for a template without `{% generation %}` that renders earlier
                messages differently when the conversation continues.

        Example:
            >>> words = '{"U": 0, "A": 1, "hi": 2, "?": 3}'
            >>> model = f'{{"type": "WordLevel", "vocab": {words}, "unk_token": "?"}}'
            >>> tokenizer = Tokenizer({
            ...     "tokenizer.json": f'{{"model": {model}, "pre_tokenizer": {{"type": "Whitespace"}}}}',
            ...     "chat_template.jinja": "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
            ...     "{% if add_generation_prompt %}A {% endif %}",
            ... })
            >>> tokenizer.chat_answers([
            ...     {"role": "U", "content": "hi"},
            ...     {"role": "assistant", "content": "hi"},
            ... ], template=tokenizer.templates["default"].replace("m.role", "'A' if m.role == 'assistant' else 'U'"))
            Answers(ids=[0, 2, 1, 2], mask=[False, False, False, True])
        """
        values = {"tools": tools, "documents": documents, **variables}
        text, control = self._chat_text(messages, values, False, template)
        spans = text.spans()
        if not spans:
            spans = self._answer_spans(messages, values, template, text)
        ids, offsets = [], []
        for start, encoding in self._encodings(text.plain, control):
            ids += encoding.ids
            offsets += [(start + begin, start + end) for begin, end in encoding.offsets]
        mask = [
            any(
                (begin < stop and end > start) or start <= begin == end < stop
                for start, stop in spans
            )
            for begin, end in offsets
        ]
        return Answers(ids, mask)

    def _answer_spans(
        self, messages: Sequence, values: Mapping, template: str | None, whole: DelimitedText
    ) -> list[tuple[int, int]]:
        """Returns start and end of each answer: the text that follows a generation prompt."""
        spans = []
        full = whole.plain
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            prompt = self._chat_text(messages[:number], values, True, template)[0].plain
            answered = self._chat_text(messages[: number + 1], values, False, template)[0].plain
            if not full.startswith(answered) or not answered.startswith(prompt):
                raise ValueError(
                    "Tokenizer.chat_answers: the chat template writes earlier messages differently "
                    f"once the conversation continues (message {number}), and does not mark answers. "
                    "Put {% generation %} and {% endgeneration %} around the answer in the template."
                )
            spans.append((len(prompt), len(answered)))
        return spans

    def _chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        values: Mapping[str, Any],
        prompt: bool,
        template: str | None,
    ) -> tuple[DelimitedText, Mapping[int, frozenset[int]]]:
        """Returns the text of a conversation, and the ids that texts of each origin must not become."""
        source = self._template(template, bool(values.get("tools")))
        if isinstance(messages, str | Mapping) or not all(
            isinstance(m, Mapping) and isinstance(m.get("role"), str) for m in messages
        ):
            raise TypeError(
                "Tokenizer.chat: expected a list of dictionaries with a role, received "
                f"{describe_value(messages)}. Write [{{'role': 'user', 'content': 'text'}}]."
            )
        begin, end = free_delimiters((source, messages, values), 2)
        # added tokens in the template delimit messages, even if the files do not mark them as special
        written = {
            number
            for number, token in self._added.items()
            if len(token) > 1 and not token.isspace() and token in source
        }
        values = {
            **self._named,
            **{k: trace(v, USER) if k in ("tools", "documents") else v for k, v in values.items()},
            "messages": [trace(m, ANSWER if m["role"] == "assistant" else USER) for m in messages],
            "add_generation_prompt": prompt,
        }
        control = {ANSWER: self._special, USER: self._special | written}
        return DelimitedText(render(source, values, begin, end), begin, end), control

    def _template(self, template: str | None, has_tools: bool) -> str:
        if template is not None and template not in self.templates:
            if "{" in template:
                return template
            raise ValueError(
                f"Tokenizer.chat: there is no chat template {template!r}."
                f"{suggest(template, self.templates)} Known: "
                f"{', '.join(self.templates) or 'none'}; or pass the text of a template."
            )
        names = [template] if template else ["tool_use"] * has_tools + ["default"]
        for name in names:
            if name in self.templates:
                return self.templates[name]
        raise ValueError(
            "Tokenizer.chat: the tokenizer has no chat template"
            f"{' named default' if self.templates else ''}. Pass template=..., or encode a prompt "
            "without a template: tokenizer.encode(text)."
        )

    # -- special tokens -----------------------------------------------------------------------

    @functools.cached_property
    def _added(self) -> Mapping[int, str]:
        return {n: t.content for n, t in self._fast.get_added_tokens_decoder().items()}

    @functools.cached_property
    def _special(self) -> frozenset[int]:
        decoder = self._fast.get_added_tokens_decoder()
        named = [self._fast.token_to_id(t) for t in self._named.values() if len(t) > 1]
        return frozenset({n for n, t in decoder.items() if t.special} | {*named} - {None})

    @functools.cached_property
    def _unknown(self) -> int | None:
        """The id of characters that the vocabulary lacks."""
        model = self._json(MODEL).get("model", {})
        token = model.get("unk_token")
        return model.get("unk_id") if token is None else self._fast.token_to_id(token)

    def _encodings(self, text: str, control: Mapping[int, frozenset[int]]) -> list[tuple[int, Any]]:
        return encodings_without(self._fast, text, control, lambda: self._unknown)
