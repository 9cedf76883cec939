"""Adapters in files: PEFT's folders both ways, KerasHub's files, and damaged or foreign files."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import transforms

DATA = pathlib.Path(__file__).parent / "data"
KEY = jax.random.key(0)
FOLDERS = sorted(folder.name for folder in (DATA / "peft").iterdir())


def base_of(name):
    with np.load(DATA / "peft" / name / "expected.npz") as file:
        folder, ids, logits = str(file["base"]), file["ids"], file["logits"]
    if not (DATA / folder / "model.safetensors").exists():
        pytest.skip(f"there is no checkpoint {folder!r} yet")
    return fk.pretrained.load(DATA / folder, dtype="float32"), jnp.asarray(ids, "int32"), logits


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_peft_computes_its_logits_and_is_written_back(name, tmp_path):
    loaded, ids, logits = base_of(name)
    model = fk.pretrained.load_adapter(DATA / "peft" / name, loaded.model, loaded.config)
    np.testing.assert_allclose(model(ids), logits, atol=2e-4, rtol=1e-4)
    merged = transforms.merge_adapters(model)
    np.testing.assert_allclose(merged(ids), logits, atol=2e-4, rtol=1e-4)
    fk.pretrained.save_adapter(tmp_path, model, loaded.config)
    again = fk.pretrained.load_adapter(tmp_path, loaded.model, loaded.config)
    np.testing.assert_allclose(again(ids), model(ids), atol=1e-5)
    if name not in ("embedding", "tied"):  # PEFT adds the tensors of the base
        first, second = (
            fk.saving.weights.safetensors.read_table(
                str(f / "adapter_model.safetensors"), fk.Limits()
            )
            for f in (DATA / "peft" / name, tmp_path)
        )
        assert {n: a.read().tolist() for n, a in first.arrays.items()} == {
            n: a.read().tolist() for n, a in second.arrays.items()
        }
