"""Imports of Keras's modules: one error with the fkeras code to write."""

import importlib.util

import pytest

import fkeras as fk
from fkeras.engine.migration_hints.imports import MissingModules

IMPORTS = (
    ("from fkeras.models import Sequential", "`fk.Sequential`"),
    ("import fkeras.models", "`fk.Sequential`"),
    ("import fkeras.backend as K", "`fk.ops`"),
    ("from fkeras.preprocessing import image", "`layers.RandomFlip()`"),
    ("from fkeras.layers import BatchNormalisation", "Did you mean 'BatchNormalization'?"),
    ("from fkeras.random import uniformm", "Did you mean 'uniform'?"),
    ("from fkeras import Dense", "`fk.layers.Dense`"),
    ("from fkeras import Sequentiall", "Did you mean 'Sequential'?"),
    ("from fkeras.utils import to_categoricl", "Did you mean 'to_categorical'?"),
    ("from fkeras.callbacks import EarlyStopping", "`from fkeras import callbacks`"),
    ("from fkeras.optimizers.legacy import Adam", "`fk.optimizers.Adam()`"),
)


@pytest.mark.parametrize(("statement", "part"), IMPORTS)
def test_an_import_of_keras_names_the_code_to_write(statement, part):
    with pytest.raises(ImportError) as caught:
        exec(statement, {})
    assert part in str(caught.value) and caught.value.__context__ is None


def test_other_imports_and_lookups_keep_their_errors():
    with pytest.raises(ModuleNotFoundError, match="No module named 'fkerass'"):
        exec("import fkerass", {})
    assert MissingModules().find_spec("json.nothing", None) is None
    assert importlib.util.find_spec("fkeras.layers") is not None
    assert not hasattr(fk.layers, "BatchNormalisation")
    with pytest.raises(AttributeError):
        fk.layers.BatchNormalisation  # noqa: B018
