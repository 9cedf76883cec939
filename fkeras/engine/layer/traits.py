"""`Traits`: properties of a layer that the engine and the file writers read.

The names begin with an underscore: completion in an editor lists what users call, and a subclass may
have fields named `where` or `resolve`. Layers of the catalogue override these names; a user's layer
seldom needs them. Names that some layers alone need are declared beside the class: `KeepsTokens`
(`engine.call.caches`), `HandlesStrings` (`engine.call.strings`), and `KerasForm`, `LosesMasks` and
`CompletesOptions` (`engine.config.keras_form`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from fkeras.engine.config.configurable import option
from fkeras.engine.tree.skeleton import WeightRoles
from fkeras.engine.tree.weights import weight


# `dataclass_transform` covers the subclasses of the class that it decorates, so the fields of `Layer`
# need it here. pyright evaluates TYPE_CHECKING and reports assignments to fields. mypy takes an
# expression that it does not evaluate for False: in its frozen classes an inherited field with a
# converter has the type of the constructor's argument.
@dataclass_transform(
    frozen_default=TYPE_CHECKING, field_specifiers=(option, weight, dataclasses.field)
)
class Traits:
    """Declares the traits of a layer, and their defaults; `Layer` inherits them."""

    name: str | None
    supports_masking: ClassVar[bool]

    #: whether floating inputs and the layer's weights are cast to the compute dtype
    _autocast: ClassVar[bool] = True
    #: field of children whose name is left out of the paths of their weights
    _transparent_field: ClassVar[str | None] = None
    #: fields that may hold children; None: every field that holds layers
    _child_fields: ClassVar[tuple[str, ...] | None] = None
    #: names of the weights whose declaration departs from the default
    _weight_roles: ClassVar[WeightRoles] = WeightRoles()

    def _resolve(self, *specs: Any) -> Self:
        """Returns the layer with all configuration that depends on shapes; called when recording."""
        return self

    def _masks_inputs(self, mask: Any) -> bool:
        """Returns whether the option `mask` is the mask of the inputs, not an argument of `call`."""
        return True

    @property
    def _where(self) -> str:
        """The layer in messages: name (if any) and class."""
        kind = type(self).__name__
        return f"{self.name!r} ({kind})" if self.name else kind
