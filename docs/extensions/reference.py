"""Writes the pages of the reference, one for each public namespace and each family of layers.

The pages list the names in `__all__`. Each object is documented on one page: its aliases, and its
names in other namespaces, refer to that page. autodoc inserts signatures and docstrings.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

import docstrings
from address import DOCS, ROOT

sys.path.insert(0, str(ROOT))

import fkeras as fk
from fkeras.engine.config.keras_form import keras_form
from argument_types import argument_types

# classes of fk.layers that Keras 3.15 does not have; a test compares the list with Keras
ONLY_HERE = (
    "Bias",
    "DotProductAttention",
    "Float8Dense",
    "LearnedTokens",
    "LogitScale",
    "MaskedPatches",
    "MixtureOfExperts",
    "PatchSequence",
    "PositionEmbedding",
    "Positions",
    "QuantizedDense",
    "QuantizedEmbedding",
    "QuantizedMixtureOfExperts",
    "RelativePositionBias",
    "RotaryEmbedding",
    "SinePositionEncoding",
    "TokenAndPositionEmbedding",
    "TokenTypes",
    "TransformerDecoder",
    "TransformerEncoder",
)
# the state of layers that do not declare its entries, by class or base class
STATES = {
    "Recurrent": "with `stateful=True` the last states of the cell, (b, u) each; otherwise none",
    "Bidirectional": "`forward_layer` and `backward_layer`, if these layers have state",
    "SpectralNormalization": "`vector_u`, and `layer` if the wrapped layer has state",
    "Wrapper": "`layer`, if the wrapped layer has state",
    "Pipeline": "`layers/0`, `layers/1`, ... for the layers that have state",
    "ForeignLayer": "the state of the module",
    "Network": "one entry for each layer that has state, by the name of the layer",
}
PAGES = DOCS / "reference" / "api"
# namespaces whose classes are listed with their methods
_WITH_MEMBERS = (
    "fkeras",
    "training",
    "training.population",
    "planning",
    "generation",
    "engine",
    "saving",
    "pretrained",
    "wrappers",
)
# file, namespace, title, text; a public namespace without a row gets a page too
_LISTED = (
    (
        "fkeras",
        "",
        "fkeras",
        "Models, symbolic tensors, training and files: `import fkeras as fk`.",
    ),
    ("layers", "layers", "Layers", ""),
    ("losses", "losses", "Losses", "Values that a `Trainer` minimizes, and functions of samples."),
    ("metrics", "metrics", "Metrics", "Metrics are values; their state is part of a run."),
    ("optimizers", "optimizers", "Optimizers", "Each optimizer is also an optax transformation."),
    ("schedules", "optimizers.schedules", "Learning rate schedules", "Functions of the step."),
    ("callbacks", "callbacks", "Callbacks", "Values that `Trainer.fit` calls."),
    ("training", "training", "Training", "The records of a training and its checkpoints."),
    ("populations", "training.population", "Populations", "Rules for the members of populations."),
    ("planning", "planning", "Plans", "Memory and operations of training steps."),
    ("generation", "generation", "Generation", "New tokens from models of token ids."),
    ("samplers", "samplers", "Samplers", "How the next token is chosen."),
    ("pretrained", "pretrained", "Pretrained models", "Models in Hugging Face's format."),
    ("transforms", "transforms", "Transforms", "Functions from model to model."),
    ("saving", "saving", "Files", "Models, trainings and weights in files."),
    ("wrappers", "wrappers", "scikit-learn", "Estimators of scikit-learn that train networks."),
    ("ops", "ops", "Operations", "Functions of arrays, which record a node on symbolic tensors."),
    ("ops_numpy", "ops.numpy", "Operations: numpy", "Operations with NumPy's names."),
    ("ops_nn", "ops.nn", "Operations: nn", "Operations of neural networks."),
    ("ops_image", "ops.image", "Operations: image", "Operations on images."),
    ("ops_linalg", "ops.linalg", "Operations: linalg", "Linear algebra."),
    ("activations", "activations", "Activations", "Activation functions."),
    ("initializers", "initializers", "Initializers", "Initial values of weights."),
    ("regularizers", "regularizers", "Regularizers", "Penalties on weights."),
    ("constraints", "constraints", "Constraints", "Projections of weights after each update."),
    ("masks", "masks", "Attention masks", "Which keys a query attends to, by positions."),
    (
        "rotary",
        "layers.rotary",
        "Rotary scalings",
        "Frequencies of rotary positions for long texts.",
    ),
    ("quantizers", "quantizers", "Quantizers", "Codes and scales of quantized weights."),
    ("random", "random", "Random numbers", "Random numbers from a key, with Keras's names."),
    (
        "utils",
        "utils",
        "Utilities",
        "Class vectors, sequences, images, drawings of models, compiled programs.",
    ),
    ("engine", "engine", "Engine", "Names for authors of layers and transforms."),
)


def _unlisted() -> Iterator[tuple[str, str, str, str]]:
    listed = {space for _, space, *_ in _LISTED}
    for name in sorted(set(fk.__all__) - listed):
        space = getattr(fk, name)
        if isinstance(space, types.ModuleType):
            yield name, name, name.replace("_", " ").capitalize(), ""
            for inner in getattr(space, "__all__", ()):
                if isinstance(getattr(space, inner), types.ModuleType):
                    yield f"{name}_{inner}", f"{name}.{inner}", f"{name}.{inner}", ""


NAMESPACES = (*_LISTED, *_unlisted())
# words for the search, as in the headers of other pages
SEARCH = {"optimizers": "gradient clipping, clipnorm, clipvalue, weight decay, list of optimizers"}
# an object of several namespaces is documented in the first of these
_HOMES = ("", "ops.numpy", "ops.nn", "ops.image", "ops.linalg", "callbacks", "layers", "transforms")
FAMILIES = {
    "core": "Core layers",
    "convolution": "Convolution layers",
    "pooling": "Pooling layers",
    "normalization": "Normalization layers",
    "activation": "Activation layers",
    "regularization": "Regularization layers",
    "recurrent": "Recurrent layers",
    "attention": "Attention layers",
    "merging": "Merging layers",
    "reshaping": "Reshaping layers",
    "preprocessing": "Preprocessing layers",
    "lookup": "Lookup and hashing layers",
    "image.geometry": "Image layers: geometry",
    "image.color": "Image layers: color",
    "image.mixing": "Image layers: mixing",
    "quantized": "Quantized layers",
    "foreign": "Modules of other libraries",
    "base": "Base classes and functions",
}


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", lambda app: write_pages())
    app.connect("autodoc-process-docstring", _convert)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _convert(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    types = argument_types(value)
    if what == "class" and isinstance(value, type) and issubclass(value, fk.Layer):
        # the record shows the first line as its first row
        rest = lines[lines.index("") :] if "" in lines else []
        rest = docstrings.with_entries(rest, _common_arguments(value, rest))
        lines[:] = [*_record(value), *docstrings.to_rst(rest, types)]
    else:
        lines[:] = docstrings.to_rst(lines, types)


def _common_arguments(layer: type[fk.Layer], lines: list[str]) -> list[str]:
    """Returns the entries of the arguments of all layers that a docstring leaves out."""
    fields = [field.name for field in dataclasses.fields(layer) if field.init]
    section = docstrings.entries(inspect.getdoc(fk.Layer) or "", "Args")
    written = docstrings.entries("\n".join(lines), "Args")
    return [
        f"    {name}: {text}"
        for name, text in section.items()
        if name in fields and name not in written
    ]


def namespace(path: str) -> Any:
    """Returns a namespace of the package, such as "ops.numpy"; "" is the package."""
    value: Any = fk
    for part in filter(None, path.split(".")):
        value = getattr(value, part)
    return value


def names(path: str) -> list[str]:
    """Returns the public names of a namespace in alphabetical order."""
    return sorted(namespace(path).__all__, key=str.lower)


def homes() -> dict[str, str]:
    """Returns the page of each documented object: full name -> file name of the page."""
    texts = {}
    for path, name in _objects():
        texts[_full(path, name)] = _page_of(path, name)
    return texts


def _page_of(path: str, name: str) -> str:
    if path == "layers":
        return f"layers_{_family(namespace(path).__dict__[name]).replace('.', '_')}"
    return next(file for file, space, *_ in NAMESPACES if space == path)


def _objects() -> Iterator[tuple[str, str]]:
    """Yields `(namespace, name)` for each object, with the namespace that documents the object."""
    seen: set[int] = set()
    paths = [space for _, space, *_ in NAMESPACES]
    for path in [*_HOMES, *(path for path in paths if path not in _HOMES)]:
        space = namespace(path)
        # the object's own name precedes its aliases
        for name in sorted(names(path), key=lambda n: n != _own_name(getattr(space, n))):
            value = getattr(space, name)
            if not isinstance(value, types.ModuleType) and id(value) not in seen:
                if _hashable(value):
                    seen.add(id(value))
                yield path, name


def _hashable(value: Any) -> bool:
    return isinstance(value, type) or callable(value)


def _own_name(value: Any) -> str:
    return getattr(value, "__name__", "")


def _family(value: Any) -> str:
    if not isinstance(value, type):
        return "base"
    parts = value.__module__.split(".")
    if parts[1] != "layers":
        return "base"
    return ".".join(parts[2:4]) if parts[2] == "image" else parts[2]


def write_pages() -> None:
    """Writes all pages, and removes pages that no longer exist."""
    pages = dict(_pages())
    PAGES.mkdir(parents=True, exist_ok=True)
    for path in PAGES.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = PAGES / f"{name}.md"
        # Sphinx reads a page again only if the file changed
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _pages() -> Iterator[tuple[str, str]]:
    places: dict[str, list[str]] = {}
    for full, page in homes().items():
        places.setdefault(page, []).append(full)
    ids = {id(getattr(namespace(path), name)): _full(path, name) for path, name in _objects()}
    for file, path, title, text in NAMESPACES:
        if file == "layers":
            yield file, _layers_page(places)
            for family, name in FAMILIES.items():
                page = f"layers_{family.replace('.', '_')}"
                yield page, "\n".join([f"# {name}", "", *_texts(places.get(page, []))])
            continue
        own = places.get(file, [])
        text = text or (inspect.getdoc(namespace(path)) or "").partition("\n\n")[0]
        inner = [name for name, space, *_ in NAMESPACES if path and space.startswith(f"{path}.")]
        words = SEARCH.get(file)
        lines = [
            *(["---", "fkeras:", f"  search: {words}", "---", ""] if words else []),
            f"# {title}",
            "",
            text,
            "",
            *_toctree(inner),
            *_table(path, own, ids),
            *_texts(own),
        ]
        yield file, "\n".join(lines)


def _toctree(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return ["```{toctree}", ":maxdepth: 1", ":hidden:", "", *names, "```", ""]


def _full(path: str, name: str) -> str:
    return f"fkeras.{path}.{name}" if path else f"fkeras.{name}"


def _last(full: str) -> str:
    return full.rpartition(".")[2]


def _table(path: str, own: list[str], ids: dict[int, str]) -> Iterator[str]:
    yield from ("| name | |", "|---|---|")
    for name in names(path):
        value = getattr(namespace(path), name)
        full = _full(path, name)
        if isinstance(value, types.ModuleType):
            inner = f"{path}.{name}" if path else name
            if any(space == inner for _, space, *_ in NAMESPACES):
                file = next(file for file, space, *_ in NAMESPACES if space == inner)
                yield f"| [`{name}`]({file}.md) | {_summary(value) or 'namespace'} |"
            continue
        target = full if full in own else ids.get(id(value), full)
        yield f"| {{py:obj}}`{name} <{target}>` | {_summary(value)} |"
    yield ""


def _summary(value: Any) -> str:
    line = (inspect.getdoc(value) or "").partition("\n")[0]
    parts = line.replace("|", "\\|").split("`")
    return "`".join(part if n % 2 else _escape(part) for n, part in enumerate(parts))


def _escape(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_").replace("$", "\\$").replace("<", "&lt;")


def _texts(fulls: list[str]) -> Iterator[str]:
    for full in sorted(fulls, key=lambda full: _last(full).lower()):
        path, _, name = full.rpartition(".")
        value = getattr(namespace(path.partition(".")[2]), name)
        yield from ("```{eval-rst}", f".. currentmodule:: {path}", "")
        if isinstance(value, type):
            yield f".. autoclass:: {name}"
            if path.removeprefix("fkeras.") in _WITH_MEMBERS or (
                name in ("Callback", "Loss", "Metric", "Optimizer")
            ):
                yield from ("   :members:", "   :member-order: bysource")
            # scikit-learn adds methods to its estimators, whose texts refer to its own site
            added = [n for n, m in vars(value).items() if type(m).__module__.startswith("sklearn.")]
            if added:
                yield f"   :exclude-members: {', '.join(added)}"
        elif inspect.isroutine(value):
            yield f".. autofunction:: {name}"
        elif hasattr(value, "__wrapped__"):  # an operation: autodoc shows no arguments of an object
            text = docstrings.to_rst(inspect.getdoc(value).splitlines(), argument_types(value))
            yield from (f".. py:function:: {name}{_signature(value)}", "")
            yield from (f"   {line}" if line else "" for line in text)
        else:
            yield f".. autodata:: {name}\n   :no-value:"
        yield from ("```", "")


def _signature(value: Any) -> str:
    """Returns the arguments of a function without their types, which follow in the list."""
    signature = inspect.signature(value)
    arguments = [
        argument.replace(annotation=inspect.Parameter.empty)
        for argument in signature.parameters.values()
    ]
    return str(signature.replace(parameters=arguments, return_annotation=inspect.Signature.empty))


def _layers_page(places: dict[str, list[str]]) -> str:
    lines = [
        "# Layers",
        "",
        "The letters of shapes: `b` batch, `t` time, `s` second time axis, `h w`",
    ]
    lines += ["image, `c` channels, `f` filters, `d` features, `u` units.", ""]
    lines += _toctree([*(f"layers_{family.replace('.', '_')}" for family in FAMILIES), "rotary"])
    aliases = _aliases()
    for family, title in FAMILIES.items():
        page = f"layers_{family.replace('.', '_')}"
        lines += [f"## [{title}]({page}.md)", "", "| layer | |", "|---|---|"]
        for full in sorted(places.get(page, []), key=str.lower):
            value = getattr(fk.layers, _last(full))
            others = "".join(f", `{name}`" for name in aliases.get(_last(full), ()))
            lines.append(f"| {{py:obj}}`{_last(full)} <{full}>`{others} | {_summary(value)} |")
        lines.append("")
    return "\n".join(lines)


def _aliases() -> dict[str, list[str]]:
    aliases: dict[str, list[str]] = {}
    for name in names("layers"):
        own = _own_name(getattr(fk.layers, name))
        if own != name and own in fk.layers.__all__:
            aliases.setdefault(own, []).append(name)
    return aliases


def _record(layer: type[fk.Layer]) -> Iterator[str]:
    """Yields a table of a layer: equation, shapes, weights, state, Keras's name."""
    name = layer.__name__
    shapes = docstrings.section(layer.__doc__, "Shapes")
    weights = [
        field.name for field in dataclasses.fields(layer) if "fkeras.weight" in field.metadata
    ]
    rows = [("Equation", docstrings.first_line(layer.__doc__))]
    if shapes:
        rows.append(("Shapes", docstrings.escape(shapes)))
    rows.append(("Weights", ", ".join(f"``{weight}``" for weight in weights) or "none of its own"))
    rows.append(("State", _state(layer)))
    if name in fk.layers.__all__ or name in ("Model", "Sequential", "Layer"):
        space = "keras" if name in ("Model", "Sequential") else "keras.layers"
        rows.append(("Keras", "no such class" if name in ONLY_HERE else f"``{space}.{name}``"))
    yield from (".. list-table::", "   :class: record", "   :widths: 15 85", "")
    for title, text in rows:
        yield f"   * - {title}"
        yield f"     - {text}"
    yield ""


def _state(layer: type[fk.Layer]) -> str:
    # in a few classes `_keras_form` is a property
    form = keras_form(layer)
    order = form.state_order if isinstance(form, fk.engine.KerasForm) else ()
    if order:
        return ", ".join(f"``{name}``" for name in order)
    if layer.init_state is fk.Layer.init_state:
        return "none"
    for base in layer.__mro__:
        if base.__name__ in STATES:
            return docstrings.escape(STATES[base.__name__])
    raise LookupError(f"STATES lacks {layer.__name__}, which has state: describe the state there")
