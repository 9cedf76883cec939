"""Saving and loading: `.keras` and HDF5 models, weight files, and exported programs.

Files are untrusted. The loaders never execute or import anything from a file, never use its text as
a path, and compare the sizes that a file declares with its bytes before they allocate memory. A
rejected file raises a `FileError` that names the part of the file and the layer. The writers write
to a temporary name and then rename the file, so that a crash leaves the old file intact.
"""

from fkeras.engine.migration_hints.names import explain_unknown_names
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.limits import Limits
from fkeras.saving.conversion import from_keras, to_keras
from fkeras.saving.export.exporting import export, export_step
from fkeras.saving.models import load_model, load_training, save_model
from fkeras.saving.weight_files import load_weights, save_weights

__all__ = (
    "FileError",
    "Limits",
    "export",
    "export_step",
    "from_keras",
    "load_model",
    "load_training",
    "load_weights",
    "save_model",
    "save_weights",
    "to_keras",
)

explain_unknown_names(__name__)
