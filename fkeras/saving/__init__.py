"""Saving and loading: `.keras` and HDF5 models, weight files, and exported programs.

Files are untrusted. The loaders never execute or import anything from a file, never use its text as
a path, and compare the sizes that a file declares with its bytes before they allocate memory. A
rejected file raises a `FileError` that names the part of the file and the layer. The writers write
to a temporary name and then rename the file, so that a crash leaves the old file intact.
"""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.host.containers.errors import FileError as FileError
from fkeras.host.containers.limits import Limits as Limits
from fkeras.saving.conversion import from_keras as from_keras
from fkeras.saving.conversion import to_keras as to_keras
from fkeras.saving.export.exporting import export as export
from fkeras.saving.export.exporting import export_step as export_step
from fkeras.saving.models import load_model as load_model
from fkeras.saving.models import load_training as load_training
from fkeras.saving.models import model_from_json as model_from_json
from fkeras.saving.models import save_model as save_model
from fkeras.saving.patches import load_patch as load_patch
from fkeras.saving.patches import save_patch as save_patch
from fkeras.saving.weight_files import load_weights as load_weights
from fkeras.saving.weight_files import save_weights as save_weights

_publish(__name__, namespaces=())
