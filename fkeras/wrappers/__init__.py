"""Estimators of scikit-learn that train networks, with the names of `keras.wrappers`."""

import typing

from fkeras.authoring.engine import publish as _publish

if typing.TYPE_CHECKING:
    from fkeras.wrappers.estimators import SKLearnClassifier as SKLearnClassifier
    from fkeras.wrappers.estimators import SKLearnRegressor as SKLearnRegressor
    from fkeras.wrappers.estimators import SKLearnTransformer as SKLearnTransformer

__all__ = ("SKLearnClassifier", "SKLearnRegressor", "SKLearnTransformer")

# the base classes are those of scikit-learn, an optional package
_publish(__name__, late={"wrappers.estimators": __all__})
