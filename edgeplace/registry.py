"""Named lists: everything EdgePlace offers by name is on one, and a wrong name gets the nearest right one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from edgeplace.errors import UnknownNameError


class Named(Protocol):
    """Anything with a ``name`` (a class with a class attribute, or an object)."""

    name: str


T = TypeVar("T", bound=Named)

MOST_NAMES = 12
"""A hint lists this many names at most."""


def nearest_name_hint(name: str, known: Iterable[str]) -> str:
    """The hint for an unknown name: the closest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    if not names:
        return "there is none"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return f"known: {', '.join(names[:MOST_NAMES])}{more}"


class Registry(Generic[T]):
    """An explicit, ordered list of named parts of one kind.

    Raises:
        ValueError: Two parts carry the same name (a mistake in the code, found at import by the tests).
    """

    def __init__(self, kind: str, parts: Iterable[T]) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}
        for part in parts:
            if part.name in self._parts:
                raise ValueError(f"two {kind}s are named '{part.name}'")
            self._parts[part.name] = part

    def get(self, name: str) -> T:
        """The part called ``name``.

        Raises:
            UnknownNameError: No part has that name.
        """
        try:
            return self._parts[name]
        except KeyError:
            raise UnknownNameError(
                f"no {self.kind} named '{name}'", hint=nearest_name_hint(name, self._parts)
            ) from None

    def names(self) -> tuple[str, ...]:
        """All names, in the order of the list."""
        return tuple(self._parts)

    def __iter__(self) -> Iterator[T]:
        return iter(self._parts.values())

    def __len__(self) -> int:
        return len(self._parts)
