"""Base class of the local servers that run for the duration of a `with` block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class ManagedServer(ABC):
    """A server that `with` starts at the beginning of the block and stops at its end."""

    @abstractmethod
    def start(self) -> Self:
        """Start the server and wait until it answers."""

    @abstractmethod
    def stop(self) -> None:
        """Shut the server down."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
