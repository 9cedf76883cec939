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
    RepetitionPenalty,
    Sampler,
    SuppressedIds,
    Temperature,
    TopK,
    TopP,
    Typical,
)

# settings without a sampler, with the values that change nothing
_REFUSED = FrozenDict(
    {
        "bad_words_ids": (None,),
        "constraints": (None,),
        "diversity_penalty": (None, 0),
        "dola_layers": (None,),
        "encoder_no_repeat_ngram_size": (None, 0),
        "encoder_repetition_penalty": (None, 1),
        "epsilon_cutoff": (None, 0),
        "eta_cutoff": (None, 0),
        "exponential_decay_length_penalty": (None,),
        "force_words_ids": (None,),
        "forced_bos_token_id": (None,),
        "forced_eos_token_id": (None,),
        "guidance_scale": (None, 1),
        "min_length": (None, 0),
        "no_repeat_ngram_size": (None, 0),
        "num_beam_groups": (None, 1),
        "penalty_alpha": (None, 0),
        "sequence_bias": (None,),
        "top_h": (None,),
        "watermarking_config": (None,),
    }
)


def configured(settings: Mapping[str, Any]) -> Sampler:
    """Returns the sampler of the settings in `generation_config.json`, as transformers reads them.

    `do_sample` draws tokens; otherwise `num_beams` above 1 is a beam search, and the most likely token is
    chosen without both. As in transformers, `top_k` is 50 for settings that draw and leave `top_k` out,
    and `temperature`, `top_k`, `top_p`, `min_p` and `typical_p` have no effect without `do_sample`. Lengths,
    such as `max_new_tokens`, and unknown settings are ignored.

    Args:
        settings: the settings, such as `loaded.generation.settings`.

    Raises:
        TypeError: for a value that is no mapping.
        ValueError: for a setting that changes the tokens and has no sampler, such as
            `no_repeat_ngram_size`, and for a value out of range.

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

    add(RepetitionPenalty, "repetition_penalty", 1)
    if value("min_new_tokens", 0) != 0 and (ends := value("eos_token_id", ())) != ():
        ends = (ends,) if isinstance(ends, int) else ends
        parts.append(MinNewTokens(settings["min_new_tokens"], ends))
    for name, first_only in (("suppress_tokens", False), ("begin_suppress_tokens", True)):
        if len(value(name, ())):
            parts.append(SuppressedIds(settings[name], first_only))
    if not draws:
        penalty = value("length_penalty", 1.0)
        return Chain(*parts, Greedy() if beams == 1 else Beam(beams, penalty, early))
    add(Temperature, "temperature", 1)
    if (k := value("top_k", 50)) != 0:
        parts.append(TopK(k))
    add(TopP, "top_p", 1)
    add(MinP, "min_p", 0)
    add(Typical, "typical_p", 1)
    return Chain(*parts)
