"""Models in files: `.keras`, HDF5, weights alone, and exported programs.

No file is trusted. Nothing in a file is executed, imported or used as a path; sizes that a file
claims are compared with its bytes before memory is allocated; and every rejected file raises a
`FileError` that names the part of the file and the layer. A file is written under a temporary name
and then renamed, so a crash leaves the old file whole.
"""

from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.limits import Limits
from fkeras.saving.export.exporting import export, export_step
from fkeras.saving.models import load_model, save_model
from fkeras.saving.trainings import load_training
from fkeras.saving.weight_files import load_weights, save_weights

__all__ = (
    "FileError",
    "Limits",
    "export",
    "export_step",
    "load_model",
    "load_training",
    "load_weights",
    "save_model",
    "save_weights",
)
