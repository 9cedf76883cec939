"""Files of a checkpoint: arrays, manifest, record, lock and checksums."""
