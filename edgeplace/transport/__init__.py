"""Ways to a board: child processes of this machine, and SSH. Nothing here knows what is run over them."""

from __future__ import annotations

from pathlib import Path

from edgeplace.errors import InputError
from edgeplace.transport.base import (
    CommandTimeoutError,
    CompletedRun,
    HostKeyError,
    Stream,
    Transport,
)
from edgeplace.transport.local import LocalTransport
from edgeplace.transport.ssh_settings import SshSettings

__all__ = [
    "CommandTimeoutError",
    "CompletedRun",
    "HostKeyError",
    "LocalTransport",
    "SshSettings",
    "Stream",
    "Transport",
    "transport_for",
]


def transport_for(
    address: str,
    *,
    identity_file: Path | None = None,
    known_hosts: tuple[Path, ...] = (),
    work_dir: str = "",
) -> Transport:
    """The transport for ``local`` or ``ssh://user@host:port``; nothing is connected yet.

    Args:
        address: Where the board is.
        identity_file: Private key for SSH; ``None`` means ssh-agent and the usual keys.
        known_hosts: Files looked at for the host's key before the usual ones.
        work_dir: Folder on the board for what is put there; empty means ``~/.cache/edgeplace``.

    Raises:
        InputError: The address is neither.
    """
    if address == LocalTransport.name:
        return LocalTransport(work_dir=Path(work_dir) if work_dir else None)
    if address.startswith("ssh://"):
        # paramiko takes 0.3 s to import, which a local board need not pay.
        from edgeplace.transport.ssh import SshTransport

        return SshTransport(
            SshSettings.from_address(
                address, identity_file=identity_file, known_hosts=known_hosts, work_dir=work_dir
            )
        )
    raise InputError(f"'{address}' is no board's address", hint="write local or ssh://user@host:port")
