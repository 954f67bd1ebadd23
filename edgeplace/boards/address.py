"""Where a board that is reached over ssh is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from edgeplace.errors import InputError


@dataclass(frozen=True, slots=True)
class Address:
    """Where an ssh board is. ``user`` may be empty, ``port`` may be unknown."""

    user: str
    host: str
    port: int | None


def parse_address(text: str) -> Address:
    """Take ``ssh://[user@]host[:port]`` apart.

    Raises:
        InputError: It is no such address, or carries a password.
    """
    hint = "write ssh://user@host:port"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"'{text}' is not an address: {error}", hint=hint) from None
    if (
        parts.scheme != "ssh"
        or not parts.hostname
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
    ):
        raise InputError(f"'{text}' is not an address", hint=hint)
    if parts.password is not None:
        raise InputError("an address carries no password", hint="use a key or the ssh agent")
    if port == 0:
        raise InputError(f"'{text}' is not an address: there is no port 0", hint=hint)
    # A host that begins with a dash would be read as an option by an ssh client.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*|[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?", parts.hostname):
        raise InputError(f"'{parts.hostname}' is not a host name", hint=hint)
    return Address(parts.username or "", parts.hostname, port)
