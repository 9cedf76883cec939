"""Drawings of networks as text: Graphviz DOT and Mermaid."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import cast

import jax

from fkeras.engine.values.annotations import Graph, Network


@dataclasses.dataclass(frozen=True)
class Details:
    """What the box of a layer shows.

    Attributes:
        shapes: whether to show output shapes.
        names: whether to show the layer's name.
        dtypes: whether to show output dtypes.
        trainable: whether to show if weights are trained.
        activations: whether to show the activation function.
    """

    shapes: bool = True
    names: bool = True
    dtypes: bool = False
    trainable: bool = False
    activations: bool = False


def to_dot(
    network: Network,
    *,
    shapes: bool = True,
    nested: bool = True,
    details: Details | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Returns the graph in Graphviz's language: a box for each layer, an arrow for each tensor.

    Args:
        network: a network with a graph.
        shapes: whether the boxes show output shapes.
        nested: whether nested networks are drawn as clusters.
        details: what the boxes show; None for names, classes and `shapes`.
        settings: Graphviz's attributes of the drawing, such as `{"rankdir": "LR"}`.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> print(fk.to_dot(fk.Model(x, fk.layers.Dense(2)(x)), shapes=False))
        digraph model {
          node [shape=box];
          "x" [label="x\\nInputLayer"];
          "dense" [label="dense\\nDense"];
          "x" -> "dense";
        }
    """
    lines = ["digraph model {"]
    lines.extend(f"  {name}={_quote(value)};" for name, value in settings.items())
    lines.append("  node [shape=box];")
    lines.extend(_dot_lines(network, "", details or Details(shapes), nested, 1))
    return "\n".join([*lines, "}"])


def _dot_lines(
    network: Network, path: str, details: Details, nested: bool, level: int
) -> Iterator[str]:
    pad = "  " * level
    graph = network._require_graph("A picture")
    for name in graph.layers:
        layer, full = network.layers[name], _path(path, name)
        label = "\n".join(box_lines(network, name, details))
        if nested and getattr(layer, "graph", None) is not None:
            yield f"{pad}subgraph {_quote('cluster_' + full)} {{"
            yield f"{pad}  label={_quote(label)};"
            yield f"{pad}  {_quote(full)} [label={_quote('in/out')}, shape=point];"
            yield from _dot_lines(cast("Network", layer), full, details, nested, level + 1)
            yield f"{pad}}}"
        else:
            yield f"{pad}{_quote(full)} [label={_quote(label)}];"
    for start, end in edges_of(graph):
        yield f"{pad}{_quote(_path(path, start))} -> {_quote(_path(path, end))};"


def to_mermaid(network: Network, *, shapes: bool = True, nested: bool = True) -> str:
    """Returns the graph in Mermaid's language, which Markdown viewers draw.

    Args:
        network: a network with a graph.
        shapes: whether the boxes show output shapes.
        nested: whether nested networks are drawn as subgraphs.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> print(fk.to_mermaid(fk.Model(x, fk.layers.Dense(2)(x)), shapes=False))
        flowchart TD
          n_x["x<br/>InputLayer"]
          n_dense["dense<br/>Dense"]
          n_x --> n_dense
    """
    return "\n".join(["flowchart TD", *_mermaid_lines(network, "", shapes, nested, 1)])


def _mermaid_lines(
    network: Network, path: str, shapes: bool, nested: bool, level: int
) -> Iterator[str]:
    pad = "  " * level
    graph = network._require_graph("A picture")
    for name in graph.layers:
        layer, full = network.layers[name], _path(path, name)
        label = "<br/>".join(box_lines(network, name, Details(shapes))).replace('"', "&quot;")
        if nested and getattr(layer, "graph", None) is not None:
            yield f'{pad}subgraph {_identifier(full)}["{label}"]'
            yield from _mermaid_lines(cast("Network", layer), full, shapes, nested, level + 1)
            yield f"{pad}end"
        else:
            yield f'{pad}{_identifier(full)}["{label}"]'
    for start, end in edges_of(graph):
        yield f"{pad}{_identifier(_path(path, start))} --> {_identifier(_path(path, end))}"


def _path(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def box_lines(network: Network, name: str, details: Details) -> list[str]:
    """Returns the lines of text in the box of a layer."""
    layer, graph = network.layers[name], network.graph
    lines = [name] if details.names else []
    lines.append(type(layer).__name__)
    activation = getattr(layer, "activation", None)
    if details.activations and activation is not None:
        lines.append(str(getattr(activation, "__name__", None) or type(activation).__name__))
    specs = [s for n in graph.calls_of[name] for s in graph.calls[n].outputs]
    if details.shapes:
        lines.append(", ".join(dict.fromkeys(str(s.shape) for s in specs)))
    if details.dtypes:
        lines.append(", ".join(dict.fromkeys(str(s.dtype) for s in specs)))
    if details.trainable and jax.tree.leaves(layer):
        lines.append("trainable" if layer.trainable else "frozen")
    return lines


def edges_of(graph: Graph) -> Iterator[tuple[str, str]]:
    """Returns the names of producer and consumer of each tensor, once for each use."""
    return ((graph.coords[slot].layer, call.layer) for call in graph.calls for slot in call.inputs)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _identifier(text: str) -> str:
    # an escape for each character: the names a-b and a_b stay two boxes
    return "n_" + re.sub(r"\W", lambda match: f"_{ord(match[0]):x}_", text)
