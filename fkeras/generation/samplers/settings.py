"""The sampler that the generation settings of a checkpoint describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.authoring.engine import describe_value
from fkeras.engine import FrozenDict
from fkeras.generation.samplers.rules import (
    Beam,
    Chain,
    Greedy,
    MinNewTokens,
    MinP,
    Normalized,
    RepetitionPenalty,
    Sampler,
    SuppressedIds,
    Temperature,
    TopK,
    TopP,
    Typical,
)
from fkeras.generation.samplers.sequences import (
    ForcedIds,
    MinLength,
    NoRepeatedNgrams,
    SuppressedSequences,
)

# settings without a sampler, with the values that change nothing
_REFUSED = FrozenDict(
    {
        "constraints": (None,),
        "diversity_penalty": (None, 0),
        "dola_layers": (None,),
        "encoder_no_repeat_ngram_size": (None, 0),
        "encoder_repetition_penalty": (None, 1),
        "epsilon_cutoff": (None, 0),
        "eta_cutoff": (None, 0),
        "exponential_decay_length_penalty": (None,),
        "force_words_ids": (None,),
        "guidance_scale": (None, 1),
        "num_beam_groups": (None, 1),
        "penalty_alpha": (None, 0),
        "sequence_bias": (None,),
        "token_healing": (None, False),
        "top_h": (None,),
        "watermarking_config": (None,),
    }
)


def configured(settings: Mapping[str, Any]) -> Sampler:
    """Returns the sampler of the settings in `generation_config.json`, as transformers reads them.

    `do_sample` draws tokens; otherwise `num_beams` above 1 is a beam search, and the most likely token is
    chosen without both. As in transformers, `top_k` is 50 for settings that draw and leave `top_k` out,
    and `temperature`, `top_k`, `top_p`, `min_p` and `typical_p` have no effect without `do_sample`.
    `min_new_tokens` replaces `min_length`. `forced_eos_token_id` ends a row at `max_new_tokens`, or at
    `max_length` tokens with the prompt: pass `fk.generate` the same length. Other lengths and unknown settings
    are ignored.

    Args:
        settings: the settings, such as `loaded.generation.settings`.

    Raises:
        TypeError: for a value that is no mapping.
        ValueError: for a setting that changes the tokens and has no sampler, such as
            `encoder_no_repeat_ngram_size`, and for a value out of range.

    Example:
        >>> import fkeras as fk
        >>> fk.samplers.configured({"do_sample": True, "temperature": 0.6, "top_k": 0, "top_p": 0.9})
        Chain(Temperature(temperature=0.6), TopP(p=0.9))
        >>> fk.samplers.configured({"temperature": 0.6})
        Chain(Greedy())
    """
    where = "samplers.configured"
    if not isinstance(settings, Mapping):
        raise TypeError(
            f"{where}: expected a mapping of settings, received {describe_value(settings)}. Pass "
            "loaded.generation.settings."
        )
    for name, neutral in _REFUSED.items():
        if settings.get(name) not in neutral:
            raise ValueError(
                f"{where}: expected settings that have a sampler, received {name}="
                f"{str(settings[name])[:80]}. Leave the setting out: {{k: v for k, v in "
                f"loaded.generation.settings.items() if k != {name!r}}}."
            )

    def value(name: str, default: Any) -> Any:
        found = settings.get(name)
        return default if found is None else found

    beams, draws = value("num_beams", 1), value("do_sample", False)
    early = value("early_stopping", False)
    if not isinstance(draws, bool) or not isinstance(early, bool) or (draws and beams != 1):
        raise ValueError(
            f"{where}: expected True or False for do_sample and early_stopping, and num_beams=1 beside "
            f"do_sample=True, received do_sample={draws!r}, early_stopping={early!r} and "
            f"num_beams={beams!r}. Pass other settings, or samplers of fk.samplers."
        )
    parts: list[Sampler] = []

    def add(kind: type[Sampler], name: str, neutral: Any) -> None:
        if value(name, neutral) != neutral:
            parts.append(kind(settings[name]))  # type: ignore[call-arg]

    def ids_of(name: str) -> Any:
        found = value(name, ())
        return (found,) if isinstance(found, int) else found

    add(RepetitionPenalty, "repetition_penalty", 1)
    add(NoRepeatedNgrams, "no_repeat_ngram_size", 0)
    ends = ids_of("eos_token_id")
    words = value("bad_words_ids", [])
    if isinstance(words, list):  # transformers never forbids an end token
        words = [word for word in words if word not in [[i] for i in ends]]
    if words:
        parts.append(SuppressedSequences(words))
    is_new = value("min_new_tokens", None) is not None
    kind, name = (MinNewTokens, "min_new_tokens") if is_new else (MinLength, "min_length")
    if value(name, 0) != 0 and ends:
        parts.append(kind(settings[name], ends))
    parts += _forced(where, ids_of, value)
    for name, first_only in (("suppress_tokens", False), ("begin_suppress_tokens", True)):
        if len(value(name, ())):
            parts.append(SuppressedIds(settings[name], first_only))
    if not draws:
        penalty = value("length_penalty", 1.0)
        if beams == 1:
            return Chain(*parts, Greedy())
        # elsewhere normalization changes no token
        parts += [Normalized()] if value("renormalize_logits", False) else []
        return Chain(*parts, Beam(beams, penalty, early))
    add(Temperature, "temperature", 1)
    if (k := value("top_k", 50)) != 0:
        parts.append(TopK(k))
    add(TopP, "top_p", 1)
    add(MinP, "min_p", 0)
    add(Typical, "typical_p", 1)
    return Chain(*parts)


def _forced(where: str, ids_of: Any, value: Any) -> list[Sampler]:
    """Returns the samplers of `forced_bos_token_id` and `forced_eos_token_id`."""
    first, last = ids_of("forced_bos_token_id"), ids_of("forced_eos_token_id")
    if first and len(value("begin_suppress_tokens", ())):
        raise ValueError(
            f"{where}: expected begin_suppress_tokens or forced_bos_token_id, received both. Leave one "
            "setting out, and add its sampler with samplers.Chain."
        )
    never = set(value("suppress_tokens", ()))
    for name, ids in (("forced_bos_token_id", first), ("forced_eos_token_id", last)):
        if ids and never.issuperset(ids):
            raise ValueError(
                f"{where}: expected a token that suppress_tokens permits as {name}, received "
                f"{ids}. Leave one of both settings out."
            )
    parts: list[Sampler] = [ForcedIds(1, first)] if first else []
    if last:
        name = "max_length" if value("max_new_tokens", None) is None else "max_new_tokens"
        if not isinstance(count := value(name, None), int):
            raise ValueError(
                f"{where}: expected an integer as max_new_tokens or max_length beside "
                f"forced_eos_token_id, received {count!r}. Add the max_new_tokens of fk.generate to the "
                "settings, or leave forced_eos_token_id out."
            )
        parts.append(ForcedIds(count - 1, last, with_prompt=name == "max_length"))
    return parts
