"""The error for a missing optional package, which names the command that installs the package."""

from __future__ import annotations

# packages whose distribution name differs from their import name
_DISTRIBUTIONS = (("orbax", "orbax-checkpoint"), ("PIL", "pillow"), ("sklearn", "scikit-learn"))


def missing_package(where: str, module: str, error: ImportError) -> ImportError:
    """Returns the exception for an optional package that cannot be imported.

    Args:
        where: the function or class that needs the package.
        module: the module that was imported, such as "orbax.checkpoint".

    Returns:
        An ImportError with the command that installs the package.

    Example:
        >>> print(missing_package("load_model", "h5py", ImportError("No module named 'h5py'")))
        load_model: needs the package h5py, which cannot be imported (No module named 'h5py'). Install it: `pip install h5py`.
    """
    name = module.partition(".")[0]
    distribution = next(
        (package for top_module, package in _DISTRIBUTIONS if top_module == name), name
    )
    return ImportError(
        f"{where}: needs the package {distribution}, which cannot be imported ({error}). Install "
        f"it: `pip install {distribution}`.",
        name=module,
    )
