"""Resource limits for untrusted files, checked before memory is allocated."""

from __future__ import annotations

import dataclasses

from fkeras.host.containers.errors import FileError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Resource limits for the contents of one file; the defaults accept every model in normal use.

    Sizes that a file claims are also compared with the size of the file, whatever the limits are.

    Args:
        members: number of entries in the archive.
        config_bytes: length of a JSON text (a `config.json`, or the attribute of an HDF5 file).
        member_bytes: unpacked size of one entry of the archive, and of all entries together.
        array_bytes: size of one array.
        attribute_bytes: size of one attribute of an HDF5 file.
        ratio: factor by which decompression may expand data.
        depth: levels of nesting in JSON and in HDF5 groups.
        objects: number of groups and arrays in an HDF5 file.
        made_bytes: size of arrays that the file does not contain but the loader allocates: the
            accumulators of metrics and the state of stateful layers.
        call_bytes: size of the largest array that one call of a layer computes, for one sample where
            the batch size is open.

    Example:
        >>> import fkeras as fk
        >>> fk.Limits(array_bytes=1 << 20).array_bytes
        1048576
    """

    members: int = 100_000
    config_bytes: int = 64 << 20
    member_bytes: int = 1 << 40
    array_bytes: int = 1 << 38
    attribute_bytes: int = 64 << 20
    ratio: int = 250
    depth: int = 100
    objects: int = 1_000_000
    made_bytes: int = 1 << 30
    call_bytes: int = 1 << 36

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            # bool is a subclass of int: Limits(depth=True) is a mistake
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"Limits: expected {field.name} as an integer of at least 1, received "
                    f"{value!r}. Leave it out for the default, {field.default}."
                )


def check_limit(limits: Limits, name: str, count: int, noun: str, **place: str | None) -> None:
    """Rejects a count beyond one of the limits.

    Args:
        name: the field of `Limits`.
        noun: the unit, for example "bytes of JSON".
        place: `file`, `member` and `layer`, for the message.
    """
    allowed = getattr(limits, name)
    if count > allowed:
        raise FileError(
            f"expected at most {allowed} {noun}, received {count}. If you trust the file, pass "
            f"limits=fk.Limits({name}=...).",
            **place,
        )
