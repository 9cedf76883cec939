"""Checkpoints: whole saves of a training on disk, and the facts by which one is known again.

A folder holds `latest/<step>` and `best/<step>`, each with the arrays as orbax writes them and a
`manifest.json` with a checksum for every array and every file; `last.json`, which records the
newest save; `lock`, which one run at a time holds; and `partial`, where a save is written before
one rename publishes it.
"""

from fkeras.training.checkpoint.compare import compare
from fkeras.training.checkpoint.data_fingerprint import data_fingerprint
from fkeras.training.checkpoint.files.errors import CheckpointError
from fkeras.training.checkpoint.fingerprint import model_fingerprint, optimizer_fingerprint
from fkeras.training.checkpoint.plan import Checkpoint
from fkeras.training.checkpoint.reading import Restored, restore
from fkeras.training.checkpoint.store import Store, open_store

__all__ = (
    "Checkpoint",
    "CheckpointError",
    "Restored",
    "Store",
    "compare",
    "data_fingerprint",
    "model_fingerprint",
    "open_store",
    "optimizer_fingerprint",
    "restore",
)
