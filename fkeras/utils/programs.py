"""JAX's persistent compilation cache."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache


def cache_programs(folder: str | os.PathLike[str] | None = None) -> pathlib.Path:
    """Stores each compiled program in a folder: the second start of a program compiles nothing.

    Sets JAX's persistent compilation cache for this process. JAX alone stores only programs that
    compile for a second or more. JAX's environment variables `JAX_COMPILATION_CACHE_DIR` and
    `JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS` take precedence over the arguments. Each version of
    JAX, kind of device and set of compiler flags has its own files. The folder may be deleted at any
    time. The files are executed: use no folder that untrusted users can write to.

    Args:
        folder: the folder; None for `fkeras/programs` in the user's cache folder
            (`$XDG_CACHE_HOME` or `~/.cache`).

    Returns:
        The folder that JAX uses.

    Raises:
        TypeError: if `folder` is not a path.

    Example:
        >>> import tempfile
        >>> before = jax.config.jax_compilation_cache_dir
        >>> folder = cache_programs(tempfile.mkdtemp())
        >>> len(list(folder.iterdir()))
        0
        >>> jax.config.update("jax_compilation_cache_dir", before)
    """
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        folder = pathlib.Path(home, "fkeras", "programs")
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(
            f"cache_programs: folder: expected a path, received {folder!r} ({type(folder).__name__}). "
            "Pass None for a folder in the user's cache folder."
        )
    settings = {
        "jax_compilation_cache_dir": str(pathlib.Path(folder).expanduser()),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    for name, value in settings.items():
        if not os.environ.get(name.upper()):
            jax.config.update(name, value)
    # JAX decides at the first compilation whether it has a cache
    compilation_cache.reset_cache()
    config: Any = jax.config  # JAX declares its flags at run time
    return pathlib.Path(config.jax_compilation_cache_dir)
