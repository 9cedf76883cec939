"""The layout of weights on a device mesh: rules by axis role, by path pattern, and "fsdp".

A rule by role maps the role of an axis, such as "heads", to a mesh axis. Layers state the roles of the
axes of their weights: see `fkeras.engine.AxisNames`. The rules decide only where numbers are, never
what they are.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import jax
from jax.sharding import AxisType, Mesh, PartitionSpec

from fkeras.engine import FrozenDict, Layer, suggest
from fkeras.engine.tree.axes import ROLES, WHOLE, weight_axis_roles, weight_units
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.training.records.annotations import Trainer

#: rules of a trainer, from `as_rules`
Rules: TypeAlias = str | Mapping[str, Any] | None
#: mesh axes of one axis of an array, in a `PartitionSpec`
Entry: TypeAlias = str | tuple[str, ...] | None


class MeshAxes(Protocol):
    """Names and sizes of the axes of devices that a plan only describes, in place of a `Mesh`."""

    @property
    def axis_names(self) -> tuple[str, ...]: ...

    @property
    def shape(self) -> Mapping[str, int]: ...


#: keys of `sharding` that are no roles of weights
BATCH, FSDP = "batch", "fsdp"
#: the role of heads of keys and values, of which a mesh may have more devices
KEY_HEADS = "kv_heads"
_SHOWN = 4


def as_mesh(value: object) -> Any:
    """Returns the mesh of a `Trainer` with axes of type Auto, or None.

    Raises:
        TypeError: for anything but a mesh.
        ValueError: for a mesh with Manual axes.
    """
    if value is None:
        return None
    if not isinstance(value, jax.sharding.Mesh):
        raise TypeError(
            f"Trainer: expected mesh as a jax.sharding.Mesh, received {type(value).__name__}. For "
            'example jax.make_mesh((8,), ("data",)).'
        )
    if AxisType.Manual in value.axis_types:
        raise ValueError(
            "Trainer: expected a mesh with axes of type Auto or Explicit, received "
            f"{', '.join(map(str, value.axis_types))}. With Manual axes a layer would see a part of "
            "the batch. Create the mesh with jax.make_mesh(sizes, names)."
        )
    # Only Auto axes leave the communication to XLA. Explicit axes, the default of newer versions of
    # `jax.make_mesh`, make layouts a part of types, and contractions in layers can then be ambiguous.
    # Two meshes that differ in the types of their axes place arrays equally.
    if any(kind != AxisType.Auto for kind in value.axis_types):
        types = (AxisType.Auto,) * len(value.axis_names)
        return jax.sharding.Mesh(value.devices, value.axis_names, axis_types=types)
    return value


def is_pattern(key: str) -> bool:
    """Returns whether a key of `sharding` is a pattern of paths; otherwise it is a role."""
    return "/" in key or "*" in key


def as_rules(value: object) -> Any:
    """Returns the checked argument `sharding` of a `Trainer`: None, "fsdp", or a dictionary.

    Raises:
        TypeError: for anything else, and for a value of a rule that names no mesh axes.
        ValueError: for a word other than "fsdp".

    Example:
        >>> as_rules({"heads": "model", "hidden": ["data", "model"]})
        {'heads': 'model', 'hidden': ('data', 'model')}
    """
    if value is None or value == FSDP:
        return value
    if isinstance(value, str):
        raise ValueError(f'Trainer: expected sharding="fsdp" or a dictionary, received {value!r}.')
    if not isinstance(value, Mapping):
        raise TypeError(
            f"Trainer: expected sharding as a dictionary, received {type(value).__name__}. Write "
            '{"heads": "model", "hidden": "model"} with roles of axes, or patterns of weight paths: '
            '{"*/kernel": PartitionSpec(None, "model")}.'
        )
    return FrozenDict({key: _as_rule(key, rule) for key, rule in value.items()})


def _as_rule(key: object, rule: Any) -> Any:
    if not isinstance(key, str):
        raise TypeError(
            f"Trainer: expected roles and patterns of weight paths as keys of sharding, received "
            f"{key!r}."
        )
    valid_tuple = isinstance(rule, tuple | list) and not isinstance(rule, PartitionSpec)
    if is_pattern(key):
        if isinstance(rule, PartitionSpec) or valid_tuple:
            return PartitionSpec(*rule)
        raise TypeError(
            f"Trainer: expected a PartitionSpec for the path pattern {key!r}, received {rule!r}. "
            f'Write PartitionSpec(None, "model"): one entry for each axis of the weight.'
        )
    if rule is None or isinstance(rule, str):
        return rule
    if valid_tuple and all(isinstance(name, str) for name in rule):
        return tuple(rule)
    raise TypeError(
        f"Trainer: expected the name of a mesh axis for the role {key!r}, received {rule!r}. Write "
        f'{{{key!r}: "model"}}. A pattern of weight paths contains "/" or "*".'
    )


def names_of(entry: Entry) -> tuple[str, ...]:
    """Returns the mesh axes of an entry of a `PartitionSpec`: None, a name, or several names."""
    if entry is None or entry is PartitionSpec.UNCONSTRAINED:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def parts_of(mesh: Mesh | MeshAxes, entry: Entry) -> int:
    """Returns the number of parts in which an entry of a `PartitionSpec` splits an axis."""
    return math.prod(mesh.shape[name] for name in names_of(entry))


def mesh_of(trainer: Trainer) -> Mesh:
    """Returns the mesh of a trainer that has one."""
    assert trainer.mesh is not None
    return trainer.mesh


def batch_entry(mesh: Mesh | MeshAxes, sharding: Rules) -> Any:
    """Returns the mesh axes that split the rows of a batch.

    These are the axes of the role "batch", by default "data", "batch", or the first axis.
    """
    if isinstance(sharding, Mapping) and BATCH in sharding:
        return sharding[BATCH]
    return next((name for name in ("data", "batch") if name in mesh.axis_names), mesh.axis_names[0])


def _fsdp_entry(mesh: Mesh | MeshAxes, sharding: Any) -> Any:
    if sharding == FSDP:
        return batch_entry(mesh, sharding)
    return sharding.get(FSDP)


def _patterns(sharding: Rules) -> dict[str, PartitionSpec]:
    if not isinstance(sharding, Mapping):
        return {}
    return {key: rule for key, rule in sharding.items() if is_pattern(key)}


def role_rules(sharding: Rules) -> dict[str, Any]:
    """Returns the mesh axes of each role of weights; "batch" and "fsdp" are no such roles."""
    if not isinstance(sharding, Mapping):
        return {}
    others = (BATCH, FSDP)
    return {key: r for key, r in sharding.items() if not is_pattern(key) and key not in others}


def match(sharding: Rules, path: str) -> PartitionSpec | None:
    """Returns the layout of a weight by the first path pattern that matches, or None."""
    for pattern, spec in _patterns(sharding).items():
        if fnmatch.fnmatchcase(path, pattern):
            return spec
    return None


def role_specs(
    sharding: Rules, model: Layer, mesh: Mesh | MeshAxes | None = None
) -> dict[str, PartitionSpec]:
    """Returns the layout of each weight by path, by patterns and roles, without "fsdp".

    Args:
        model: a model of arrays or shapes.
        mesh: the mesh, which keeps key heads whole that it cannot split evenly; None for the layout
            by the rules alone.
    """
    rules = role_rules(sharding)
    units = {} if mesh is None else weight_units(model)
    specs = {}
    for path, roles in weight_axis_roles(model).items():
        spec = match(sharding, path)
        entries = [None if role is None else rules.get(role) for role in roles]
        if mesh is not None and KEY_HEADS in roles:
            axis = roles.index(KEY_HEADS)
            if units[path][axis] % parts_of(mesh, entries[axis]):
                entries[axis] = None
        specs[path] = PartitionSpec(*_trimmed(entries)) if spec is None else spec
    return specs


def whole_key_heads(mesh: Mesh | MeshAxes | None, sharding: Rules, model: Layer) -> tuple[str, ...]:
    """Returns the paths of weights that every device holds whole, since it cannot share the key heads.

    Args:
        model: a model of arrays or shapes.
    """
    if mesh is None or KEY_HEADS not in role_rules(sharding):
        return ()
    by_rules, specs = role_specs(sharding, model), role_specs(sharding, model, mesh)
    return tuple(path for path, spec in specs.items() if spec != by_rules[path])


def weight_specs(mesh: Mesh | MeshAxes, sharding: Rules, model: Layer) -> dict[str, PartitionSpec]:
    """Returns the layout of each weight of a model by path.

    Args:
        model: a model of arrays or shapes.
    """
    if sharding is None:
        return dict.fromkeys(_shapes(model), PartitionSpec())
    specs, shapes = role_specs(sharding, model, mesh), _shapes(model)
    fsdp = _fsdp_entry(mesh, sharding)
    if fsdp is None:
        return specs
    roles = weight_axis_roles(model)
    return {
        path: spec
        if match(sharding, path) is not None
        else _with_largest_split(spec, shapes[path], roles[path], fsdp, parts_of(mesh, fsdp))
        for path, spec in specs.items()
    }


def _shapes(model: Layer) -> dict[str, tuple[int, ...]]:
    pairs = zip(skeleton_of(model).names, leaves_of(model), strict=True)
    return {path: tuple(leaf.shape) for path, leaf in pairs if leaf is not None}


def _trimmed(entries: Iterable[Any]) -> list[Any]:
    entries = list(entries)
    while entries and entries[-1] is None:
        entries.pop()
    return entries


def _with_largest_split(
    spec: PartitionSpec, shape: tuple, roles: tuple, entry: Entry, parts: int
) -> Any:
    """Returns the layout with the largest axis that is free and divides evenly split too."""
    used_names = {name for used in spec for name in names_of(used)}
    # a weight with one whole axis is not split along others either, such as those of a window
    if used_names & set(names_of(entry)) or WHOLE in roles:
        return spec
    entries = [*spec, *(None,) * (len(shape) - len(spec))]
    free_axes = [a for a, size in enumerate(shape) if entries[a] is None and size % parts == 0]
    if not free_axes:
        return spec
    entries[max(free_axes, key=lambda a: shape[a])] = entry
    return PartitionSpec(*_trimmed(entries))


def check_mesh(mesh: Mesh | MeshAxes | None, sharding: Rules) -> None:
    """Rejects rules without a mesh."""
    if sharding is not None and mesh is None:
        raise ValueError("sharding: missing mesh. Pass mesh=jax.make_mesh(...).")


def check_rules(mesh: Mesh | MeshAxes | None, sharding: Rules, model: Layer) -> None:
    """Rejects rules that the weights of a model cannot follow; needs shapes only.

    Args:
        model: a model of arrays or shapes.

    Raises:
        ValueError: for rules without a mesh, an unknown mesh axis, a pattern that matches no weight,
            a role that no weight has, a mesh axis that splits two axes of one weight, and a size
            that cannot be split evenly.
    """
    check_mesh(mesh, sharding)
    if sharding is None or mesh is None:
        return
    shapes, roles = _shapes(model), weight_axis_roles(model)
    if isinstance(sharding, Mapping):
        _check_keys(mesh, sharding, list(shapes), roles)
    specs = role_specs(sharding, model, mesh)
    for path, spec in specs.items():
        _check_spec(mesh, path, shapes[path], roles[path], spec)
    _check_sizes(mesh, shapes, weight_units(model), specs)
    fsdp = _fsdp_entry(mesh, sharding)
    if fsdp is not None and not any(
        set(names_of(fsdp)) & {n for used in spec for n in names_of(used)}
        for spec in weight_specs(mesh, sharding, model).values()
    ):
        raise ValueError(
            f'sharding: "fsdp" splits no weight: no axis can be split into '
            f"{parts_of(mesh, fsdp)} equal parts. Use a smaller mesh, or leave sharding out."
        )


def _check_keys(mesh: Mesh | MeshAxes, sharding: Mapping, paths: list[str], roles: Mapping) -> None:
    all_roles = {role for axis_roles in roles.values() for role in axis_roles}
    all_roles -= {None, WHOLE}
    for key, rule in sharding.items():
        if is_pattern(key) and not any(fnmatch.fnmatchcase(path, key) for path in paths):
            raise ValueError(
                f"sharding: the rule {key!r} matches no weight."
                f"{suggest(key.strip('*/'), paths)} The weights are: {', '.join(paths[:12])}."
            )
        if not is_pattern(key) and key not in (*all_roles, BATCH, FSDP):
            known = ", ".join(sorted(all_roles)) or "none"
            # a role of other layers is spelled well
            similar = "" if key in ROLES else suggest(key, sorted({*ROLES, BATCH, FSDP}))
            raise ValueError(
                f"sharding: no weight of the model has an axis of the role {key!r}.{similar} The roles "
                f'of its weights are: {known}. "batch" splits the rows, "fsdp" the largest free '
                'axis; a pattern of weight paths contains "/" or "*".'
            )
        for name in (n for entry in (rule if is_pattern(key) else [rule]) for n in names_of(entry)):
            if name not in mesh.axis_names:
                raise ValueError(
                    f"sharding: the rule {key!r} has an unknown mesh axis {name!r}."
                    f"{suggest(name, mesh.axis_names)} The axes of the mesh are: "
                    f"{', '.join(mesh.axis_names)}."
                )


def _check_spec(
    mesh: Mesh | MeshAxes, path: str, shape: tuple, roles: tuple, spec: PartitionSpec
) -> None:
    if len(spec) > len(shape):
        raise ValueError(
            f"sharding: the rule for {path!r} has {len(spec)} entries, but the weight "
            f"has the shape {shape}. Pass at most one entry per axis."
        )
    names = [name for entry in spec for name in names_of(entry)]
    for entry in spec:
        if len(set(names_of(entry))) < len(names_of(entry)):
            raise ValueError(
                f"sharding: the entry {entry!r} for {path!r} has a mesh axis twice. Name each mesh "
                "axis once."
            )
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        split_roles = [
            r for r, e in zip(roles, spec, strict=False) if repeated in names_of(e) and r
        ]
        kind = f" of the roles {', '.join(map(repr, split_roles))}" if split_roles else ""
        raise ValueError(
            f"sharding: the mesh axis {repeated!r} would split two axes{kind} of {path!r} of shape "
            f"{shape}. Give one of them another mesh axis, or name the layout of the weight: "
            f'{{"{path}": PartitionSpec({repeated!r})}}.'
        )


def _check_sizes(
    mesh: Mesh | MeshAxes, shapes: Mapping, units: Mapping, specs: Mapping[str, Any]
) -> None:
    problems = {
        path: f"{path!r} of shape {shapes[path]} cannot be split into {parts_of(mesh, entry)} parts "
        f"along its axis of {size}{'' if whole == size else f' ({whole} units of packed codes)'}"
        for path, spec in specs.items()
        for size, whole, entry in zip(shapes[path], units[path], spec, strict=False)
        if whole % parts_of(mesh, entry)
    }
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        rules = ", ".join(f'"{path}": PartitionSpec()' for path in list(problems)[:_SHOWN])
        raise ValueError(
            f"sharding: {'; '.join(list(problems.values())[:_SHOWN])}{more}. Choose another size or "
            f"mesh, or keep such weights whole on every device by path patterns: {{{rules}}}."
        )
