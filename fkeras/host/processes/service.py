"""Texts by key that all processes of `jax.distributed.initialize` share."""

from __future__ import annotations

from typing import Any

from jax.errors import JaxRuntimeError

from fkeras.engine.values.private_jax import coordination_client


class ProcessError(RuntimeError):
    """Exception for processes that do not make the same call, or that have ended.

    Attributes:
        process: number of the process that failed, as `jax.process_index()` counts; None if unknown.
        run: the `TrainState` after the last step that is known to be finished, in an error of `fit`.

    Example:
        >>> import fkeras as fk
        >>> issubclass(fk.training.ProcessError, RuntimeError)
        True
    """

    def __init__(self, message: str, process: int | None = None, run: Any = None):
        super().__init__(message)
        self.process, self.run = process, run


class Service:
    """The coordination service of JAX as a dictionary of texts."""

    def __init__(self) -> None:
        self._client = coordination_client()
        if self._client is None:
            raise ProcessError(
                "Trainer: expected jax.distributed.initialize() before a mesh of several processes, "
                "received no connection to the other processes."
            )

    def is_same(self, other: Service) -> bool:
        """Returns whether both use one connection; `jax.distributed.shutdown` ends a connection."""
        return self._client is other._client

    def put(self, key: str, text: str) -> None:
        """Stores a text, and replaces an older text of the key."""
        try:
            self._client.key_value_set(key, text, True)
        except JaxRuntimeError as error:
            raise _gone(error) from error

    def get(self, key: str, seconds: float) -> str | None:
        """Returns the text of a key; None if no process has stored the text after some seconds."""
        try:
            return self._client.blocking_key_value_get(key, max(int(seconds * 1000), 1))
        except JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise _gone(error) from error

    def peek(self, key: str) -> str | None:
        """Returns the text of a key, or None, without waiting."""
        try:
            return self._client.key_value_try_get(key)
        except JaxRuntimeError as error:
            if "NOT_FOUND" in str(error):
                return None
            raise _gone(error) from error

    def entries(self, key: str) -> dict[str, str]:
        """Returns the texts of all keys that begin with the key and a slash, by the rest of the key."""
        try:
            pairs = self._client.key_value_dir_get(key)
        except JaxRuntimeError as error:
            raise _gone(error) from error
        return {name.removeprefix(f"{key}/"): text for name, text in pairs}

    def remove(self, key: str) -> None:
        """Removes a key, and all keys that begin with the key and a slash."""
        try:
            self._client.key_value_delete(key)
        except JaxRuntimeError as error:
            raise _gone(error) from error


def _gone(error: BaseException) -> ProcessError:
    reason = (str(error).splitlines() or [""])[0]
    return ProcessError(
        "The coordination service of JAX does not answer: process 0, which runs the service, has "
        f"probably ended ({reason:.200}). Start all processes again.",
        0,
    )
