"""Every key of `config.json` with an unusual value: the numbers of transformers, or an error that names the key."""

import numpy as np
import pytest

from fkeras.pretrained.families.table import family_of
from tests.pretrained.option_checks import computed, mapping_of, stored

ENTRIES = stored()


def names_of(options):
    """The keys of options, and those of mappings in options."""
    inner = [key for value in options.values() if isinstance(value, dict) for key in value]
    return [*options, *inner]


@pytest.mark.parametrize("model_type", ENTRIES)
def test_keys_that_transformers_ignores_change_nothing(model_type):
    entry = ENTRIES[model_type]
    family = family_of(mapping_of(model_type, entry, "", {}))

    def read(where, options):
        config = family.config.read(mapping_of(model_type, entry, where, options))
        return family.adapted(config, entry["tensors"][0])

    base = read("", {})
    for where, options, numbers, _ in entry["rows"]:
        # a row of many keys has those that no class declares
        parts = [{k: v} for k, v in options.items()] if len(options) > 5 else [options]
        for part in parts if numbers == "same" else ():
            try:
                config = read(where, part)
            except ValueError as error:
                assert any(name in str(error) for name in names_of(part)), part
            else:
                assert config == base or family.build(config) == family.build(base), part


def rows():
    for model_type, entry in ENTRIES.items():
        for n, row in enumerate(entry["rows"]):
            if row[2] != "same":
                yield pytest.param(model_type, *row, id=f"{model_type}-{n}-{'-'.join(row[1])}")


@pytest.mark.parametrize(("model_type", "where", "options", "numbers", "shapes"), [*rows()])
def test_options_compute_the_numbers_of_transformers(
    model_type, where, options, numbers, shapes, tmp_path
):
    entry = ENTRIES[model_type]
    mapping = mapping_of(model_type, entry, where, options)
    try:
        ours = computed(tmp_path, model_type, mapping, entry["tensors"][shapes])
    except ValueError as error:
        assert any(name in str(error) for name in names_of(options)), str(error)
        pytest.skip(str(error)[:150])
    for name, expected in numbers.items():
        np.testing.assert_allclose(ours[name], expected, atol=1e-4, rtol=1e-4, err_msg=name)
