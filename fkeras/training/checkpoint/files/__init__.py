"""The files of a checkpoint: arrays, manifest, lock, checksums."""
