"""Cases of a parametrized test of which a few run by default, and all with `-m exhaustive`."""

import pytest


def quick_cases(names, *quick):
    """Returns the parameters of a test: names in `quick` as they are, the others marked exhaustive."""
    unknown = set(quick) - set(names)
    assert not unknown, f"no cases of these names: {unknown}"
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in names
    ]
