"""Quantizes the layers of a model while their weights are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax

from fkeras.authoring.engine import join_path, leaves_of, skeleton_of
from fkeras.authoring.layers import Quantized
from fkeras.engine import Layer, Model, replace_weights, sublayers
from fkeras.pretrained.tables.names import Match
from fkeras.transforms import quantize


class Coding:
    """The quantized form of a model, and the layers that become quantized.

    Args:
        model: a model with specs in the place of arrays.
        quantization: as for `fk.quantize`.

    Attributes:
        model: the quantized model, with specs in the place of arrays.
        floats: for each float weight of a layer that becomes quantized, its spec, by path.

    Raises:
        ValueError: for a quantization that needs samples, and a model without layers to quantize.
    """

    def __init__(self, model: Model, quantization: Any):
        self.quantization = quantization
        self.model: Model = jax.eval_shape(lambda model: quantize(model, quantization), model)
        coded = {
            path: layer for path, layer in sublayers(self.model) if isinstance(layer, Quantized)
        }
        self._layers = {path: layer for path, layer in sublayers(model) if path in coded}
        self.floats: dict[str, Any] = {}
        # by path of a weight, the path of its layer
        self._owners: dict[str, str] = {}
        # by path of a weight with codes of its own, the quantized layer and the name of the weight
        self._separate: dict[str, tuple[str, Quantized, str]] = {}
        for path, layer in self._layers.items():
            coded_layer = coded[path]
            if coded_layer.separate:
                specs = specs_of(layer)
                names = {join_path(path, name): name for name in coded_layer.separate}
                self.floats |= {name_path: specs[name] for name_path, name in names.items()}
                self._separate |= {p: (path, coded_layer, name) for p, name in names.items()}
                continue
            names = {join_path(path, name): spec for name, spec in specs_of(layer).items()}
            self.floats |= names
            self._owners |= dict.fromkeys(names, path)

    def ordered(self, matches: Iterable[Match]) -> list[Match]:
        """Returns the matches in an order in which the weights of a layer follow each other."""
        matches, places = list(matches), dict[str, int]()
        for match in matches:
            for path in match.weights:
                places.setdefault(self._owners.get(path, path), len(places))
        return sorted(
            matches, key=lambda m: min(places[self._owners.get(path, path)] for path in m.weights)
        )

    def code(self, weights: dict[str, Any], paths: Iterable[str]) -> dict[str, jax.Array]:
        """Returns the codes of the layers that own weights at `paths`, by path, once all weights are read.

        A kernel of a mixture of experts is coded without the other kernels of its layer.

        Args:
            weights: the weights that are read; the floats of these layers are removed.
        """
        codes = {}
        for path in paths:
            if path in self._separate:
                owner, layer, name = self._separate[path]
                for part, array in layer.codes(name, weights.pop(path)).items():
                    codes[join_path(owner, part)] = jax.device_put(array)
        for owner in dict.fromkeys(self._owners[path] for path in paths if path in self._owners):
            layer = self._layers[owner]
            names = {name: join_path(owner, name) for name in specs_of(layer)}
            if all(path in weights for path in names.values()):
                arrays = {name: weights.pop(path) for name, path in names.items()}
                coded = quantize(replace_weights(layer, arrays), self.quantization)
                codes |= {join_path(owner, name): leaf for name, leaf in specs_of(coded).items()}
        return codes


def specs_of(layer: Layer) -> Mapping[str, Any]:
    """Returns the leaves of a layer by path, without those that are None."""
    pairs = zip(skeleton_of(layer).names, leaves_of(layer), strict=True)
    return {name: leaf for name, leaf in pairs if leaf is not None}
