"""Drawings of models as files."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Any

from fkeras.engine.config.converters import boolean, choice, integer
from fkeras.engine.network.draw import Details, to_dot, to_mermaid
from fkeras.engine.network.network import Network
from fkeras.files.atomic import as_path, replacing

# formats that need no other program, and formats that Graphviz draws
_TEXTS = ("dot", "gv", "mmd")
_DRAWN = ("png", "svg", "pdf", "jpg", "jpeg", "gif", "ps", "eps")
_DIRECTION = choice("TB", "LR", "BT", "RL")
_LINES = choice("ortho", "curved", "polyline", "spline", "line")
_RESOLUTION = integer(minimum=1, maximum=2400)


def model_to_dot(
    model: Network,
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> str:
    """Returns a model's graph in Graphviz's language, with Keras's options.

    Keras returns an object of pydot; `pydot.graph_from_dot_data(text)` converts the text.

    Args:
        model: a model with a graph.
        show_shapes: whether to show output shapes.
        show_dtype: whether to show output dtypes.
        show_layer_names: whether to show the names of the layers.
        rankdir: direction of the arrows: "TB" for top to bottom, "LR" for left to right, "BT", "RL".
        expand_nested: whether to draw the layers of nested models.
        dpi: resolution in dots per inch.
        show_layer_activations: whether to show activation functions.
        show_trainable: whether to show if weights are trained.
        splines: form of the arrows: "ortho", "curved", "polyline", "spline" or "line".

    Returns:
        The text.

    Raises:
        TypeError: if `model` is no model.
        ValueError: for a model without a graph, and for unknown words.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> print(model_to_dot(fk.Model(x, fk.layers.Dense(2)(x)), rankdir="LR"))
        digraph model {
          rankdir="LR";
          dpi="200";
          splines="ortho";
          node [shape=box];
          "x" [label="x\\nInputLayer"];
          "dense" [label="dense\\nDense"];
          "x" -> "dense";
        }
    """
    where = "model_to_dot"
    if not isinstance(model, Network):
        raise TypeError(
            f"{where}: expected a model, received {type(model).__name__}. A layer is drawn as part "
            "of a model: fk.Model(x, layer(x))."
        )
    details = Details(
        shapes=boolean.check(f"{where}: show_shapes", show_shapes),
        names=boolean.check(f"{where}: show_layer_names", show_layer_names),
        dtypes=boolean.check(f"{where}: show_dtype", show_dtype),
        trainable=boolean.check(f"{where}: show_trainable", show_trainable),
        activations=boolean.check(f"{where}: show_layer_activations", show_layer_activations),
    )
    settings = {
        "rankdir": _DIRECTION.check(f"{where}: rankdir", rankdir),
        "dpi": str(_RESOLUTION.check(f"{where}: dpi", dpi)),
        "splines": _LINES.check(f"{where}: splines", splines),
    }
    nested = boolean.check(f"{where}: expand_nested", expand_nested)
    return to_dot(model, nested=nested, details=details, settings=settings)


def plot_model(
    model: Network,
    to_file: Any = "model.png",
    show_shapes: bool = False,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = False,
    dpi: int = 200,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
    splines: str = "ortho",
) -> str:
    """Writes a drawing of a model's graph to a file.

    The path's ending is the format: "png", "svg", "pdf", "jpg", "gif" and "ps" are drawn by the
    program `dot` of Graphviz (https://graphviz.org), which must be installed. The texts "dot" and
    "gv" (Graphviz's language) and "mmd" (Mermaid's language, which Markdown viewers draw) need no
    program.

    Args:
        model: a model with a graph.
        to_file: path of the file.
        show_shapes: whether to show output shapes.
        show_dtype: whether to show output dtypes.
        show_layer_names: whether to show the names of the layers.
        rankdir: direction of the arrows, as in `model_to_dot`.
        expand_nested: whether to draw the layers of nested models.
        dpi: resolution in dots per inch.
        show_layer_activations: whether to show activation functions.
        show_trainable: whether to show if weights are trained.
        splines: form of the arrows, as in `model_to_dot`.

    Returns:
        The path of the file.

    Raises:
        ImportError: if the format needs Graphviz and the program `dot` is missing.
        ValueError: for an unknown format, and in the cases of `model_to_dot`.

    Example:
        >>> import fkeras as fk, pathlib, tempfile
        >>> x = fk.Input((4,), name="x")
        >>> model = fk.Model(x, fk.layers.Dense(2)(x))
        >>> place = plot_model(model, pathlib.Path(tempfile.mkdtemp(), "model.dot"))
        >>> pathlib.Path(place).read_text()[:15]
        'digraph model {'
    """
    path = as_path(to_file)
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in (*_TEXTS, *_DRAWN):
        raise ValueError(
            f"plot_model: to_file: expected a path that ends with one of "
            f"{', '.join('.' + name for name in (*_DRAWN, *_TEXTS))}, received {path!r}. Write "
            "to_file='model.png'."
        )
    text = model_to_dot(
        model,
        show_shapes=show_shapes,
        show_dtype=show_dtype,
        show_layer_names=show_layer_names,
        rankdir=rankdir,
        expand_nested=expand_nested,
        dpi=dpi,
        show_layer_activations=show_layer_activations,
        show_trainable=show_trainable,
        splines=splines,
    )
    if kind == "mmd":
        text = to_mermaid(model, shapes=show_shapes, nested=expand_nested)
    content = (text + "\n").encode() if kind in _TEXTS else _drawn(text, kind)
    with replacing(path) as file:
        file.write(content)
    return path


def _drawn(text: str, kind: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise ImportError(
            f"plot_model: a .{kind} file needs the program dot of Graphviz, which was not found. "
            "Install Graphviz (https://graphviz.org/download), or write to_file='model.mmd' for a "
            "text that Markdown viewers draw."
        )
    result = subprocess.run([program, f"-T{kind}"], input=text.encode(), capture_output=True)
    if result.returncode:
        raise RuntimeError(
            f"plot_model: Graphviz failed: {result.stderr.decode(errors='replace').strip()[:500]}. "
            "Write to_file='model.dot' and run dot on the file."
        )
    return result.stdout
