"""Writes the scores and the sequences of transformers' generation for the tests of `fk.generate`.

    python tools/references/generation_reference.py

Needs torch and transformers; written with torch 2.13 and transformers 5.24. The file
`tests/generation/data/transformers.npz` holds random scores, the scores behind each sampler, the
sequences of beam searches with the stored Llama, 0 behind their ends, and the log-probabilities of its
greedy tokens. The file `settings.json` beside has the tokens of small models by generation settings.
"""

import json
import pathlib

import numpy as np
import option_reference
import torch
from option_reference import BASES, option_checks
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation import logits_process as processes

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLERS = {
    "repetition": processes.RepetitionPenaltyLogitsProcessor(1.3),
    "temperature": processes.TemperatureLogitsWarper(0.7),
    "top_k": processes.TopKLogitsWarper(7),
    "top_p": processes.TopPLogitsWarper(0.83),
    "min_p": processes.MinPLogitsWarper(0.07),
    "typical": processes.TypicalLogitsWarper(0.6),
}
# width, length penalty, early stopping, repetition penalty
BEAMS = ((3, 1.0, False, 1.0), (4, 2.0, True, 1.0), (2, -1.0, False, 1.4), (5, 1.0, False, 1.4))
ENDS, NEW = [5, 9, 11], 9
# architecture of option_reference.py and settings, such as those of BART for summaries and of Marian
SETTINGS = [
    (
        "bart",
        {
            **{"num_beams": 4, "length_penalty": 2.0, "early_stopping": True, "min_length": 6},
            **{"no_repeat_ngram_size": 3, "forced_bos_token_id": 0, "forced_eos_token_id": 2},
            **{"eos_token_id": 2, "max_length": 12},
        },
    ),
    (
        "marian",
        {
            **{"num_beams": 3, "bad_words_ids": [[48], [15, 15], [2]], "forced_eos_token_id": 2},
            **{"eos_token_id": 2, "max_new_tokens": 9, "min_length": 20, "min_new_tokens": 4},
            "renormalize_logits": True,
        },
    ),
    (
        "m2m_100",
        {
            **{"forced_bos_token_id": 33, "no_repeat_ngram_size": 1, "eos_token_id": [2, 5]},
            **{"repetition_penalty": 1.3, "max_new_tokens": 9, "min_length": 5},
        },
    ),
]


def main():
    torch.manual_seed(0)
    scores, ids = torch.randn(12, 40) * 3, torch.randint(0, 40, (12, 6))
    arrays = {"scores": scores, "ids": ids}
    chained = scores
    for name, process in SAMPLERS.items():
        arrays[name] = process(ids, scores.clone())
        chained = process(ids, chained)
    arrays["chain"] = chained

    folder = ROOT / "tests/pretrained/data/llama"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with np.load(folder / "expected.npz") as file:
        prompt = torch.tensor(file["ids"][:, :7].astype("int64"))
    for number, (width, penalty, early, repetition) in enumerate(BEAMS):
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            num_beams=width,
            length_penalty=penalty,
            early_stopping=early,
            repetition_penalty=repetition,
            eos_token_id=ENDS,
            pad_token_id=0,
            bos_token_id=None,
            do_sample=False,
            max_new_tokens=NEW,
        )[:, prompt.shape[1] :].numpy()
        # transformers fills rows up with the end token
        ended = np.cumsum(np.isin(found, ENDS), axis=1)
        found = np.where(ended - np.isin(found, ENDS) > 0, 0, found)
        arrays[f"beam_{number}"] = np.pad(found, ((0, 0), (0, NEW - found.shape[1]))).astype(
            "int32"
        )
    found = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        eos_token_id=None,
        pad_token_id=0,
        bos_token_id=None,
        do_sample=False,
        max_new_tokens=NEW,
        return_dict_in_generate=True,
        output_scores=True,
    )
    arrays["transitions"] = model.compute_transition_scores(
        found.sequences, found.scores, normalize_logits=True
    )
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    target = ROOT / "tests/generation/data/transformers.npz"
    target.parent.mkdir(exist_ok=True)
    np.savez_compressed(target, **arrays)


@torch.no_grad()
def by_settings():
    """Writes the tokens of two texts by settings; transformers fills rows up with the token 0."""
    rows = []
    for kind, settings in SETTINGS:
        model, _ = option_reference.opened(kind, *BASES[kind])
        ids, mask = (torch.tensor(a.astype("int64")) for a in option_checks.padded())
        model.generation_config = GenerationConfig(
            **{"pad_token_id": 0, "bos_token_id": None, **settings},
            decoder_start_token_id=BASES[kind][1]["decoder_start_token_id"],
        )
        tokens = model.generate(input_ids=ids, attention_mask=mask)[:, 1:]
        rows.append({"kind": kind, "settings": settings, "tokens": tokens.tolist()})
    target = ROOT / "tests/generation/data/settings.json"
    target.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
    by_settings()
