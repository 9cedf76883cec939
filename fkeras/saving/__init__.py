"""Models in files: `.keras`, HDF5, weights alone, and exported programs.

No file is trusted. Nothing that a file holds is run, imported or used as a path; what it claims to
hold is compared with what it stores before memory is taken for it; and every refusal is a
`FileError` that names the part of the file and the layer. Files are written beside their place and
then renamed, so that there is always a whole one.
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
