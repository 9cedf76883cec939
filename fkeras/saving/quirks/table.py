"""Table of quirks: behaviour of Keras versions that files do not record.

A quirk is a function `(config, origin, custom) -> config` in a file of this folder, and a row of
`QUIRKS`. The readers of `.keras` archives and of legacy HDF5 files both apply the rows. No row
names a file format: the outputs depend on the program that wrote the file, not on the format.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.quirks.batch_sizes import with_any_batch
from fkeras.saving.quirks.dropped_masks import with_dropped_masks
from fkeras.saving.quirks.empty_attention import with_keras_rows
from fkeras.saving.quirks.freezing import with_batch_statistics, with_trained_children
from fkeras.saving.quirks.merge_masks import with_lost_masks, with_merged_masks
from fkeras.saving.quirks.origin import Origin
from fkeras.saving.quirks.quantized_inputs import with_quantized_inputs

Model = TypeVar("Model")
Stage = Literal["stored", "converted", "optional"]


@dataclasses.dataclass(frozen=True)
class Quirk:
    """A change to configurations that certain versions of Keras wrote.

    Attributes:
        change: `(config, origin, custom) -> config`; `custom` holds the names of the user's
            classes, which no quirk may change.
        since: first version with the behaviour.
        before: first version without the behaviour; None if the newest version has the behaviour.
        stage: "stored": the change applies to the configuration as the file holds it, with the
            class names of that version. "converted": to the configuration in Keras 3's form.
            "optional": as "converted", but omitted if no model can be constructed with the change.
    """

    change: Callable[[Any, Origin, frozenset[str]], Any]
    since: tuple[int, ...] = (1,)
    before: tuple[int, ...] | None = None
    stage: Stage = "converted"

    def concerns(self, version: tuple[int, ...]) -> bool:
        """Returns whether programs of this version have the behaviour."""
        # (3,) < (3, 4), but a file with the version "3" counts as the newest version of Keras 3
        exact = (*version, math.inf) if version == (3,) else version
        return self.since <= exact and (self.before is None or exact < self.before)


# rows without `before` hold for the newest version of Keras too: there, fkeras's defaults for new
# models deliberately differ from Keras
QUIRKS = (
    Quirk(with_batch_statistics, before=(3,), stage="stored"),
    Quirk(with_keras_rows),
    Quirk(with_dropped_masks, before=(3,)),
    Quirk(with_lost_masks, since=(3,), before=(3, 4)),
    Quirk(with_merged_masks, since=(3, 4)),
    Quirk(with_trained_children, since=(3,)),
    Quirk(with_quantized_inputs, since=(3,), before=(3, 14)),
    Quirk(with_any_batch, stage="optional"),
)


def with_quirks(
    config: ParsedJson, origin: Origin, custom: Iterable[str] = (), stage: Stage = "converted"
) -> Any:
    """Applies the changes of all quirks of one stage to a configuration.

    Args:
        stage: stage of the quirks to apply, see `Quirk`.

    Example:
        >>> layer = {"module": "keras.layers", "class_name": "Attention", "config": {}}
        >>> with_quirks([layer], Origin((3, 15, 1)))[0]["config"]
        {'empty_rows': 'keras'}
    """
    names = frozenset(custom)
    for quirk in QUIRKS:
        if quirk.stage == stage and quirk.concerns(origin.version):
            config = quirk.change(config, origin, names)
    return config


def make_model(config: ParsedJson, origin: Origin, make: Callable[[Any], Model]) -> Model:
    """Constructs a model with the optional quirks, or without them if that fails."""
    changed = with_quirks(config, origin, stage="optional")
    if changed != config:
        try:
            return make(changed)
        except Exception:
            pass  # a layer needs the fixed batch size, or the file has errors: raised below
    return make(config)
