"""The wings of saving, legacy files and ONNX: each is imported by the first file that needs the wing."""

import typing

from fkeras.engine.config.public_names import publish as _publish

if typing.TYPE_CHECKING:
    from fkeras.saving import legacy as legacy
    from fkeras.saving import onnx as onnx

_publish(__name__, late={"saving.legacy": (), "saving.onnx": ()})
