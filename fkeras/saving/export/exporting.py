"""`export` and `export_step`: write models and training steps as files that need only JAX to run.

For a path that ends in ".onnx", `export` writes an ONNX file instead: see `fkeras.saving.onnx`. A
program of JAX holds the lowered program and, for a model, the weights as constants. A process without
fkeras runs the program:

    from jax import export
    with open("model.jax", "rb") as file:
        program = export.deserialize(file.read())
    outputs = program.call(inputs)

JAX reads files of JAX versions up to six months older and three weeks newer
(https://docs.jax.dev/en/latest/export/export.html): export with the oldest version of JAX that has
to run the file. Reading requires the package flatbuffers. The calling convention is the newest, or
the one in JAX's setting `jax_export_calling_convention_version`; the description records it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine import FKerasError, Layer, Network
from fkeras.engine.call.strings import reads_strings
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.values import structure
from fkeras.engine.values.argument_types import FilePath, Inputs
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.spec import Spec, as_specs, as_structs
from fkeras.engine.values.values_by_call import plain_dicts
from fkeras.host.processes.gathering import is_spread
from fkeras.host.processes.writing import write_together
from fkeras.saving import wings
from fkeras.saving.export import program
from fkeras.saving.tracing.multiples import with_multiples
from fkeras.saving.tracing.trace import trace, uses_key
from fkeras.training import Trainer, TrainState
from fkeras.training.callbacks.base.snapshot import by_path
from fkeras.training.data import batch_parts, texts
from fkeras.training.step import objective
from fkeras.training.step.step import train_logs
from fkeras.transforms.comparison.checking import require_agreement

#: a shape with the batch axis, or shapes in the structure of the inputs
Shapes: TypeAlias = Sequence[Any] | Mapping[str, Any]


@hides_internal_frames
def export(
    model: Layer,
    state: Mapping[str, Any] | None,
    path: FilePath,
    *,
    platforms: Sequence[str] = program.PLATFORMS,
    shapes: Shapes | None = None,
    constraints: Sequence[str] = (),
    mask: Shapes | None = None,
    training: bool = False,
    updates: bool = False,
    opset: int = program.OPSET,
    check: Inputs | None = None,
) -> None:
    """Writes a model and its weights as one program that JAX alone runs, or as an ONNX file.

    The suffix of the path selects the format. A path that ends in ".onnx" gives a graph of ONNX's
    operators, which computes `model(inputs, state=state)` in inference: see the guide on exporting.
    Each input and output has the name of its layer, and each unknown size a name, "batch" for the
    first axis. The file is checked by the package onnx. A layer whose computation has no ONNX form
    is an error that names the layer; a layer of a user may have a method `to_onnx(writer, *inputs)`,
    which emits the nodes. Every other path gives a program of JAX:

    `program.call(inputs)` computes `model(inputs, state=state)`. The inputs have the structure of
    the model's inputs: an array, a list or a dictionary. Unknown sizes of the model stay unknown in
    the program. The other arguments of the program are keyword arguments: `mask`; `key`, as the
    words of `jax.random.key_data(jax.random.key(0))`, if the model draws random numbers; and
    `state`, with `updates=True`. A second file, `<path>.json`, lists inputs and outputs with shapes
    and dtypes, the platforms, the calling convention and the digest of the program.

    If the arrays are spread over several processes, every process makes the call: the first process
    writes the files, and all processes return when the files are complete.

    Args:
        model: a built model, or a built layer with inputs of the given `shapes`.
        state: state of the model; None for a model without state.
        path: path of the file; missing folders are created.
        platforms: target platforms, among "cpu", "cuda", "rocm" and "tpu".
        shapes: shapes of the inputs, with the batch axis, in the structure of the inputs. A size is
            an integer, None or a name for an unknown size, or an expression such as "2*t". Without
            `shapes`, the shapes of the model.
        constraints: constraints on unknown sizes, such as "t <= 512"; all sizes are at least 1.
        mask: shape of a mask of the inputs, or a structure of shapes; the program then has the
            argument `mask`.
        training: whether the program computes a training call.
        updates: whether the program has the argument `state` and returns `(outputs, state)`. By
            default the state is a constant, and the program returns the outputs.
        opset: version of ONNX's operators, for ".onnx" files: 17 or higher. An ONNX file takes none
            of `platforms`, `constraints`, `training` and `updates`.
        check: inputs of the model, on which the file is computed and compared with the model as by
            `transforms.agree`; None for no comparison. An ONNX file then needs the package
            onnxruntime.

    Raises:
        FKerasError: for a model that is not built, or a layer that cannot be exported because the
            layer calls back to Python, depends on an unknown size or has no ONNX form.
        ValueError: for an unknown platform, an unknown opset, or an argument that the format does
            not have; if the file computes other values on `check`.
        ProcessError: if another process could not write, has ended, or makes another call.
        ImportError: if the package flatbuffers is not installed; for an ONNX file, the package onnx.

    Example:
        >>> import jax, jax.export, jax.numpy as jnp, pathlib, tempfile, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)]).build(jax.random.key(0))
        >>> place = pathlib.Path(tempfile.mkdtemp(), "model.jax")
        >>> fk.export(model, None, place)
        >>> program = jax.export.deserialize(place.read_bytes())
        >>> program.platforms, program.call(jnp.ones((5, 3))).shape
        (('cpu', 'cuda', 'tpu'), (5, 2))
    """
    _check_model(model)
    if check is not None and (mask is not None or training or updates):
        raise ValueError(
            f"export, {model._where}: check compares calls of the inputs alone in inference, received "
            "mask, training or updates too. Leave check out, and call the program on its arguments."
        )
    names = program.check_platforms(platforms)
    if as_path(path).lower().endswith(".onnx"):
        given = {
            "platforms": tuple(platforms) != program.PLATFORMS,
            "constraints": bool(constraints),
            "training": training,
            "updates": updates,
        }
        for name, is_given in given.items():
            if is_given:
                raise ValueError(
                    f"export, {model._where}: an ONNX file has no {name}. Leave {name} away, or write "
                    "a program of JAX: a path that ends in .jax."
                )
        write = functools.partial(_write_onnx, path=path, shapes=shapes, mask=mask, opset=opset)
        _write_once(write, model, state, path)
        _compare(model, state, path, check)
        return
    if opset != program.OPSET:
        raise ValueError(
            f"export, {model._where}: expected a path that ends in .onnx with opset={opset}, "
            f"received {as_path(path)!r}. Leave opset away, or change the suffix."
        )
    write = functools.partial(
        _write_model,
        path=path,
        platforms=names,
        shapes=shapes,
        constraints=constraints,
        mask=mask,
        training=training,
        updates=updates,
    )
    _write_once(write, model, state, path)
    _compare(model, state, path, check)


def _compare(
    model: Layer, state: Mapping[str, Any] | None, path: FilePath, check: Inputs | None
) -> None:
    """Compares a written file with the model on the inputs of `check`."""
    if check is not None:
        require_agreement("fk.export", (model, state), path, check)


def _write_once(
    write: Callable[[Any, Any], None], model: Layer, state: Mapping[str, Any] | None, path: FilePath
) -> None:
    """Calls `write(model, state)`, in the first process alone if several hold the arrays."""
    if is_spread((model, state)):
        place = {"path": as_path(path)}
        write_together("export", place, (model, state), lambda whole: write(*_on_device(whole)))
    else:
        write(model, state)


def _write_onnx(
    model: Layer,
    state: Mapping[str, Any] | None,
    path: FilePath,
    shapes: Shapes | None,
    mask: Shapes | None,
    opset: int,
) -> None:
    names, specs = _inputs(model, shapes)
    masks = None if mask is None else _specs(as_specs(mask), "bool")
    with_multiples(
        model._where,
        (specs, masks),
        lambda t: wings.onnx.write_model(model, state, as_path(path), names, t[0], t[1], opset),
    )


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def _check_model(model: Layer) -> None:
    if not isinstance(model, Layer):
        check_not_keras(model, "export")
        raise TypeError(
            f"export: expected a model, received {type(model).__name__}. Write fk.export(model, "
            "state, 'model.jax'); a training step is written by fk.export_step."
        )
    if not model.built:
        raise FKerasError(
            f"export, {model._where}: has no weights yet. Build it: "
            "model = model.build(jax.random.key(0)).",
            layer=model._where,
        )
    if reads_strings(model) and isinstance(model, Network):
        raise FKerasError(
            f"export, {model._where}: expected numeric inputs, received strings, which devices do "
            "not support. Export the device part: host, device = fk.split_host(model).",
            layer=model._where,
        )


def _write_model(
    model: Layer,
    state: Mapping[str, Any] | None,
    path: FilePath,
    platforms: tuple[str, ...],
    shapes: Shapes | None,
    constraints: Sequence[str],
    mask: Shapes | None,
    training: bool,
    updates: bool,
) -> None:
    """Writes the program of a model whose arrays this process holds."""
    names, specs = _inputs(model, shapes)
    impl = str(jax.random.key_impl(jax.random.key(0)))
    key_shape = jax.random.key_data(jax.random.key(0)).shape

    # the exported program receives the key as raw words, the trace below a typed key
    def compute(
        x: Any,
        *,
        mask: jax.Array | None = None,
        key: jax.Array | None = None,
        state: Mapping[str, Any] | None = state,
    ) -> Any:
        # without a key, the results do not depend on the key
        typed_key = jax.random.key(0) if key is None else key
        if key is not None and not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            typed_key = jax.random.wrap_key_data(key, impl=impl)
        out = model.apply(x, state=state, training=training, key=typed_key, mask=mask)
        value = plain_dicts(out.value)
        return (value, {**(state or {}), **out.updates}) if updates else value

    options = {}
    if updates:
        options["state"] = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), dict(state or {})
        )
    # trace with a key, and keep the argument only if the program draws random numbers: callers of
    # a deterministic program need not pass a key
    typed_key = jax.eval_shape(lambda: jax.random.key(0))

    def traced(trees: tuple) -> tuple[Any, Any, bool]:
        # inputs and masks in one scope: a name such as "t" must mean the same size in both
        x, masks = _structs(trees, constraints)
        arguments = {**options, "key": typed_key, **({} if mask is None else {"mask": masks})}
        return x, masks, uses_key(trace(model._where, compute, (x,), arguments))

    masks = _specs(as_specs(mask), "bool") if mask is not None else None
    x, masks, draws = with_multiples(model._where, (specs, masks), traced)
    if mask is not None:
        options["mask"] = masks
    if draws:
        options["key"] = jax.ShapeDtypeStruct(key_shape, "uint32")
    exported = program.lower(model._where, compute, (x,), options, platforms)
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    about = {
        "kind": "model",
        "model": model.name or type(model).__name__,
        "training": training,
        "call": f"program.call(inputs{''.join(f', {name}={name}' for name in options)})",
        "constraints": list(constraints),
        "inputs": program.describe(jax.tree.leaves(x), names),
        "input_structure": _numbered(x),
        "options": {name: program.describe(*_named(tree)) for name, tree in options.items()},
        "key": impl if "key" in options else None,
        "outputs": program.describe(*_outputs(model, outputs[0] if updates else outputs)),
        "output_structure": _numbered(outputs[0] if updates else outputs),
        "returns_state": updates,
    }
    program.write(path, exported, about)


@hides_internal_frames
def export_step(
    trainer: Trainer,
    run: TrainState,
    batch: tuple,
    path: FilePath,
    *,
    platforms: Sequence[str] = program.PLATFORMS,
    constraints: Sequence[str] = (),
) -> None:
    """Writes a training step as a program that needs only JAX to run, and the initial run.

    The program computes `trainer.step(run, batch)`. The program's run is a dictionary of arrays by
    path: `<path>.npz` holds this dictionary for the given run, and `<path>.json` the description.
    A process with only JAX and NumPy runs the program:

        with open("step.jax", "rb") as file:
            step = jax.export.deserialize(file.read())
        run = dict(np.load("step.jax.npz"))
        run, logs = step.call(run, x, y)
        np.savez("after.npz", **run)

    `fkeras.training.callbacks.load_weights("after.npz", run)` reads weights, state, optimizer state
    and step of such a dictionary. Arrays of dtypes that NumPy does not have (bfloat16) are stored
    as unsigned integers of the same size.

    If the arrays are spread over several processes, every process makes the call: the first process
    writes the files, and all processes return when the files are complete.

    Args:
        trainer: a trainer without a mesh.
        run: a run of the trainer, from `init` or `fit`.
        batch: `(x, y)` or `(x, y, sample_weight)`; for an objective any tree. Arrays define the
            shape of one sample, and the number of samples stays unknown in the program; a
            `jax.ShapeDtypeStruct` fixes the number of samples too.
        path: path of the file; missing folders are created.
        platforms: target platforms, among "cpu", "cuda", "rocm" and "tpu".
        constraints: constraints on the number of samples "b", such as "b >= 8".

    Raises:
        FKerasError: if a layer, the loss or a metric cannot be exported.
        ValueError: for an unknown platform, or a trainer with a mesh.
        ProcessError: if another process could not write, has ended, or makes another call.
        ImportError: if the package flatbuffers is not installed.

    Example:
        >>> import jax, jax.export, numpy as np, pathlib, tempfile, fkeras as fk
        >>> trainer = fk.Trainer("adam", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> x, y = np.ones((4, 3), "float32"), np.zeros((4, 1), "float32")
        >>> place = pathlib.Path(tempfile.mkdtemp(), "step.jax")
        >>> fk.export_step(trainer, run, (x, y), place)
        >>> step = jax.export.deserialize(place.read_bytes())
        >>> arrays, logs = step.call(dict(np.load(f"{place}.npz")), x[:2], y[:2])
        >>> int(arrays["step"]), sorted(logs)
        (1, ['loss'])
    """
    platforms = program.check_platforms(platforms)
    if not isinstance(run, TrainState):
        raise TypeError(
            f"export_step: expected a run, received {type(run).__name__}. Write "
            "fk.export_step(trainer, trainer.init(model, key), (x, y), 'step.jax')."
        )
    if trainer.mesh is not None:
        raise ValueError(
            "export_step: expected a trainer for one device, received one with a mesh. Export the "
            "step of dataclasses.replace(trainer, mesh=None, sharding=None)."
        )
    # the position in the data and the memory of callbacks belong to the loop, not to the step
    core = run.replace(position=None, memory={})
    write = functools.partial(
        _write_step, trainer, batch=batch, path=path, platforms=platforms, constraints=constraints
    )
    if is_spread(core):
        place = {"path": as_path(path)}
        write_together("export_step", place, core, lambda whole: write(_on_device(whole)))
    else:
        write(core)


def _write_step(
    trainer: Trainer,
    core: TrainState,
    batch: Any,
    path: FilePath,
    platforms: tuple[str, ...],
    constraints: Sequence[str],
) -> None:
    """Writes the program of a training step, and the run, whose arrays this process holds."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    if texts.takes_strings(core.model) and texts.holds_strings(parts[:1]):
        raise FKerasError(
            f"export_step, {core.model._where}: expected numeric inputs, received strings, which devices "
            "do not support. Pass the numbers: host, _ = fk.split_host(run.model); "
            "fk.export_step(trainer, run, (host(x), y), 'step.jax').",
            layer=core.model._where,
        )
    if trainer.objective is None:
        batch_parts.unpack(trainer, batch)
    else:
        empty = objective.empty(trainer, core.model, core.state, batch)
        # an objective names its metrics when traced: a run before its first step lacks the
        # accumulators, and the outputs of the step would have more arrays than its inputs
        core = core.replace(metrics={**empty, **core.metrics})
    tree, dtypes = jax.tree.structure(core), {n: a.dtype for n, a in _flat(core).items()}

    def step(arrays: Mapping[str, Any], *parts: Any) -> tuple[dict, dict]:
        rows = parts if isinstance(batch, tuple) else parts[0]
        leaves = [_open(arrays[name], dtype) for name, dtype in dtypes.items()]
        new_arrays, logs = train_logs(trainer, tree.unflatten(leaves), rows)
        return {name: _plain(array) for name, array in _flat(new_arrays).items()}, logs

    arrays = {name: _plain(jnp.asarray(array)) for name, array in _flat(core).items()}
    specs = jax.tree.map(_batch_spec, parts)
    rows = _structs(specs, constraints)
    specs_by_name = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
    where = f"the step of {core.model._where}"
    exported = program.lower(where, step, (specs_by_name, *rows), {}, platforms)
    new_arrays, logs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    # a step is called with its own outputs, so shapes and dtypes must not change
    for name, spec in specs_by_name.items():
        if new_arrays[name].shape != spec.shape or new_arrays[name].dtype != spec.dtype:
            raise FKerasError(
                f"export, {where}: expected a step that preserves {name!r} as {spec}, received "
                f"{new_arrays[name]}. Take a step with the trainer first, and export the new run."
            )
    about = {
        "kind": "step",
        "model": core.model.name or type(core.model).__name__,
        "call": f"run, logs = program.call(run, {', '.join(('x', 'y', 'sample_weight')[: len(rows)])})",
        "constraints": list(constraints),
        "run": program.describe(list(specs_by_name.values()), list(specs_by_name)),
        "views": {n: d.name for n, d in dtypes.items() if specs_by_name[n].dtype != d},
        "key": core.impl,
        "batch": program.describe(*_named(rows)),
        "logs": program.describe(list(logs.values()), list(logs)),
    }
    program.write(path, exported, about)
    with replacing(f"{as_path(path)}.npz") as file:
        np.savez(file, **jax.device_get(arrays))


def _inputs(model: Layer, shapes: Shapes | None) -> tuple[list[str], Any]:
    """Returns the names of the inputs and the tree of their specs."""
    graph = model.graph if isinstance(model, Network) else None
    passed_specs = None if shapes is None else as_specs(shapes)
    if graph is None:
        if passed_specs is None:
            raise FKerasError(
                f"export, {model._where}: a layer does not store the shapes of its inputs. Pass "
                "them with the batch axis: shapes=(None, 8).",
                layer=model._where,
            )
        return _named(passed_specs)[1], passed_specs
    model_specs = structure.fill(graph.inputs, graph.specs)
    names = [graph.coords[slot].layer for slot in jax.tree.leaves(_slots(graph.inputs))]
    if passed_specs is None:
        return names, model_specs
    matched_specs = structure.match(graph.inputs, passed_specs)
    if matched_specs is None or any(not isinstance(spec, Spec) for spec in matched_specs):
        left_out = ""
        if graph.optional_slots:
            needed = [
                graph.coords[n].layer for n in graph.input_slots if n not in graph.optional_slots
            ]
            left_out = (
                f" For a program without optional inputs, transforms.cut(model, inputs={needed})."
            )
        raise FKerasError(
            f"export, {model._where}: expected shapes in the structure of the inputs, "
            f"{structure.draw(graph.inputs, lambda slot: graph.coords[slot].layer)}, received "
            f"{shapes!r}. Pass a shape with the batch axis for each input.{left_out}",
            layer=model._where,
        )
    # shapes come from the caller, dtypes from the model
    slots = [leaf.index for leaf in structure.leaves(graph.inputs)]
    values = {
        slot: Spec(spec.dims, graph.specs[slot].dtype)
        for slot, spec in zip(slots, matched_specs, strict=True)
    }
    return names, structure.fill(graph.inputs, values)


def _slots(template: Any) -> Any:
    return structure.thaw(template, lambda ref: ref.index)


def _is_spec(value: object) -> bool:
    return isinstance(value, Spec)


def _specs(tree: Any, dtype: str) -> Any:
    return jax.tree.map(lambda s: Spec(s.dims, dtype), tree, is_leaf=_is_spec)


def _structs(tree: Any, constraints: Sequence[str]) -> Any:
    """Converts specs to `jax.ShapeDtypeStruct`s whose unknown sizes share one symbolic scope."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=_is_spec)
    return treedef.unflatten(as_structs(leaves, tuple(constraints)))


def _numbered(tree: Any) -> Any:
    """Replaces each leaf of a tree by its index, to write the structure as JSON."""
    leaves, treedef = jax.tree.flatten(tree, is_leaf=_is_spec)
    return treedef.unflatten(range(len(leaves)))


def _named(tree: Any) -> tuple[list[Any], list[str]]:
    """Returns the leaves of a tree and their paths."""
    pairs = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_spec)[0]
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs]
    return [leaf for _, leaf in pairs], paths


def _outputs(model: Layer, outputs: Any) -> tuple[list[Any], list[str]]:
    leaves, paths = _named(outputs)
    graph = model.graph if isinstance(model, Network) else None
    if graph is not None:
        slots = jax.tree.leaves(_slots(graph.outputs))
        if len(slots) == len(leaves):
            paths = [graph.coords[slot].layer for slot in slots]
    return leaves, paths


def _batch_spec(value: Any) -> Spec:
    if isinstance(value, jax.ShapeDtypeStruct):
        return Spec(tuple(value.shape), value.dtype.name)
    # "b": the number of rows stays unknown in the program
    array = value if is_array(value) else np.asarray(value)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype).name
    return Spec(("b", *array.shape[1:]) if array.ndim else (), dtype)


def _flat(run: TrainState) -> dict[str, Any]:
    """Returns the arrays of a run by path; weights have the names of weight files."""
    return {
        f"weights{name.removeprefix('model')}" if name.startswith("model/") else name: leaf
        for name, leaf in by_path(run).items()
    }


def _plain(array: jax.Array) -> Any:
    """Returns an array of a NumPy dtype: casts bits of other dtypes to unsigned integers."""
    # .npz files cannot store bfloat16 and float8
    if np.dtype(array.dtype).kind in "biufc":
        return array
    return jax.lax.bitcast_convert_type(array, f"uint{8 * array.dtype.itemsize}")


def _open(array: jax.Array, dtype: np.dtype) -> Any:
    """Casts the bits of an array back to its dtype; the inverse of `_plain`."""
    return array if array.dtype == dtype else jax.lax.bitcast_convert_type(array, dtype)
