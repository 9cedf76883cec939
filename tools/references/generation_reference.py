"""Writes the scores and the sequences of transformers' generation for the tests of `fk.generate`.

    python tools/references/generation_reference.py

Needs torch and transformers; written with torch 2.13 and transformers 5.24. The file
`tests/generation/data/transformers.npz` holds random scores, the scores behind each sampler, the
sequences of beam searches with the stored Llama, 0 behind their ends, and the log-probabilities of its
greedy tokens.
"""

import pathlib

import numpy as np
import torch
from transformers import AutoModelForCausalLM
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


if __name__ == "__main__":
    main()
