"""Drawings of models: pictures, text in Graphviz's language, and files."""

from __future__ import annotations

import os

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine.config.converters import boolean, choice, integer
from fkeras.engine.network.draw import Details, to_dot, to_mermaid
from fkeras.engine.network.network import Network
from fkeras.engine.network.picture import Picture
from fkeras.engine.network.raster import FORMATS
from fkeras.engine.network.svg import to_svg
from fkeras.engine.values.argument_types import FilePath

_TEXT_FORMATS = ("dot", "gv", "mmd")
_DIRECTION = choice("TB", "LR", "BT", "RL")
_SPLINES = choice("ortho", "curved", "polyline", "spline", "line")
_DPI = integer(minimum=1, maximum=2400)


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
        show_trainable: whether to show which layers are trainable.
        splines: shape of the arrows: "ortho", "curved", "polyline", "spline" or "line".

    Returns:
        The graph in the DOT language.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: for a model without a graph, and for an option out of range.

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
    details = _details(
        where,
        model,
        show_shapes=show_shapes,
        show_layer_names=show_layer_names,
        show_dtype=show_dtype,
        show_trainable=show_trainable,
        show_layer_activations=show_layer_activations,
    )
    settings = {
        "rankdir": _DIRECTION.check(f"{where}: rankdir", rankdir),
        "dpi": str(_DPI.check(f"{where}: dpi", dpi)),
        "splines": _SPLINES.check(f"{where}: splines", splines),
    }
    nested = boolean.check(f"{where}: expand_nested", expand_nested)
    return to_dot(model, nested=nested, details=details, settings=settings)


def _details(where: str, model: Network, **options: bool) -> Details:
    """Returns the checked options about the boxes; rejects a value that is no model."""
    if not isinstance(model, Network):
        raise TypeError(
            f"{where}: expected a model, received {type(model).__name__}. Make a model of a layer: "
            "fk.Model(x, layer(x))."
        )
    checked = {name: boolean.check(f"{where}: {name}", value) for name, value in options.items()}
    return Details(
        shapes=checked["show_shapes"],
        names=checked["show_layer_names"],
        dtypes=checked["show_dtype"],
        trainable=checked["show_trainable"],
        activations=checked["show_layer_activations"],
    )


def draw(
    model: Network,
    show_shapes: bool = True,
    show_dtype: bool = False,
    show_layer_names: bool = True,
    rankdir: str = "TB",
    expand_nested: bool = True,
    show_layer_activations: bool = False,
    show_trainable: bool = False,
) -> Picture:
    """Draws a model's graph, without another program.

    A notebook shows the drawing, and `save` writes a file, such as "model.png" or "model.svg". Layers with weights are blue, inputs
    gray. A frame surrounds the layers of a nested model. An arrow back to an earlier box is a later
    call of a shared layer.

    Args:
        model: a model with a graph.
        show_shapes: whether to show output shapes.
        show_dtype: whether to show output dtypes.
        show_layer_names: whether to show the names of the layers.
        rankdir: direction of the arrows: "TB" for top to bottom, "LR" for left to right, "BT", "RL".
        expand_nested: whether to draw the layers of nested models.
        show_layer_activations: whether to show activation functions.
        show_trainable: whether to show which layers are trainable.

    Returns:
        The drawing.

    Raises:
        TypeError: if `model` is not a model.
        ValueError: for a model without a graph, and for an option out of range.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> picture = fk.utils.draw(fk.Model(x, fk.layers.Dense(2)(x)), rankdir="LR")
        >>> "(None, 2)" in picture.svg
        True
    """
    details = _details(
        "draw",
        model,
        show_shapes=show_shapes,
        show_layer_names=show_layer_names,
        show_dtype=show_dtype,
        show_trainable=show_trainable,
        show_layer_activations=show_layer_activations,
    )
    nested = boolean.check("draw: expand_nested", expand_nested)
    direction = _DIRECTION.check("draw: rankdir", rankdir)
    svg = to_svg(model, nested=nested, details=details, direction=direction)
    return Picture(svg, f"the graph of {model._where}")


def plot_model(
    model: Network,
    to_file: FilePath = "model.png",
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

    The file extension selects the format. "svg" and the images "png", "pdf", "jpg", "jpeg", "eps" and "ps"
    are the drawing of `draw`, without `splines`; images need the package matplotlib. The texts "dot" and
    "gv" (Graphviz's language) and "mmd" (Mermaid's language, which Markdown viewers draw) are for other
    programs. Mermaid drawings use only `show_shapes` and `expand_nested`.

    Args:
        model: a model with a graph.
        to_file: path of the file.
        Other arguments: those of `model_to_dot`.

    Returns:
        The path of the file.

    Raises:
        ImportError: for an image, if matplotlib is missing.
        ValueError: for an unknown format, and in the cases of `model_to_dot`.

    Example:
        >>> import fkeras as fk, pathlib, tempfile
        >>> x = fk.Input((4,), name="x")
        >>> model = fk.Model(x, fk.layers.Dense(2)(x))
        >>> path = plot_model(model, pathlib.Path(tempfile.mkdtemp(), "model.dot"))
        >>> pathlib.Path(path).read_text()[:15]
        'digraph model {'
    """
    path = as_path(to_file)
    extension = os.path.splitext(path)[1][1:].lower()
    formats = ("svg", *FORMATS, *_TEXT_FORMATS)
    if extension not in formats:
        raise ValueError(
            f"plot_model: to_file: expected a path with an extension among "
            f"{', '.join('.' + name for name in formats)}, received {path!r}. Write "
            "to_file='model.png'."
        )
    # for all formats: `model_to_dot` checks the options
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
    if extension not in _TEXT_FORMATS:
        picture = draw(
            model,
            show_shapes,
            show_dtype,
            show_layer_names,
            rankdir,
            expand_nested,
            show_layer_activations,
            show_trainable,
        )
        return picture.save(path, dpi)
    if extension == "mmd":
        text = to_mermaid(model, shapes=show_shapes, nested=expand_nested)
    with replacing(path) as file:
        file.write((text + "\n").encode())
    return path
