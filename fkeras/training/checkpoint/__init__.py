"""Checkpoints: atomic saves of a training on disk, and fingerprints of what they belong to.

Layout of a folder: `latest/<step>` and `best/<step>`, each with a folder `arrays` in
orbax's format, or such a folder for each of several processes, `arrays`, `arrays-1`, with the parts
of the arrays that the process holds, and a `manifest.json` with checksums of all arrays and files; `last.json`, a record of the newest save; `lock`, held by one run at a
time; and `partial`, where a save is written before a rename publishes the save.
"""

from fkeras.host.processes.compare import compare as compare
from fkeras.training.checkpoint.data_fingerprint import data_fingerprint as data_fingerprint
from fkeras.training.checkpoint.fingerprint import model_fingerprint as model_fingerprint
from fkeras.training.checkpoint.fingerprint import optimizer_fingerprint as optimizer_fingerprint
from fkeras.training.checkpoint.plan import Checkpoint as Checkpoint
from fkeras.training.checkpoint.reading import Restored as Restored
from fkeras.training.checkpoint.reading import restore as restore
from fkeras.training.checkpoint.storage.errors import CheckpointError as CheckpointError
from fkeras.training.checkpoint.store import Store as Store
from fkeras.training.checkpoint.store import open_store as open_store
