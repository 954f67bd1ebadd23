"""Ways to a board: child processes of this machine, and SSH. Nothing here knows what is run over them."""

from __future__ import annotations

from edgeplace.boards.profile import SshSettings
from edgeplace.errors import InputError
from edgeplace.transport.base import (
    CommandTimeoutError,
    CompletedRun,
    HostKeyError,
    Stream,
    Transport,
)
from edgeplace.transport.local import LocalTransport
from edgeplace.transport.ssh_target import SshTarget

__all__ = [
    "CommandTimeoutError",
    "CompletedRun",
    "HostKeyError",
    "LocalTransport",
    "SshTarget",
    "Stream",
    "Transport",
    "transport_for",
]


def transport_for(address: str, ssh: SshSettings | None = None) -> Transport:
    """The transport for ``local`` or ``ssh://[user@]host[:port]``; nothing is connected yet.

    Args:
        address: Where the board is.
        ssh: The profile's settings: key, known hosts, and what the address leaves out.

    Raises:
        InputError: The address is neither.
    """
    if address == LocalTransport.name:
        return LocalTransport()
    if address.startswith("ssh://"):
        # paramiko takes 0.3 s to import, which a local board need not pay.
        from edgeplace.transport.ssh import SshTransport

        return SshTransport(SshTarget.of(address, ssh or SshSettings()))
    raise InputError(f"'{address}' is no board's address", hint="write local or ssh://user@host:port")
