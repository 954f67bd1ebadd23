"""Where an SSH board is and who we are there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgeplace.boards.address import parse_address
from edgeplace.boards.profile import SshSettings
from edgeplace.user_folders import expand_home

DEFAULT_PORT = 22
KNOWN_HOSTS_VARIABLE = "EDGEPLACE_KNOWN_HOSTS"
"""Environment variable with more known_hosts files, separated like ``PATH``."""


@dataclass(frozen=True, slots=True)
class SshTarget:
    """How to reach a board over SSH.

    Attributes:
        host: Name or address (IPv6 without brackets).
        port: TCP port of sshd.
        user: Name to log in with; empty means the name of who runs us.
        identity_file: Private key to use; ``None`` means those of the ssh-agent and of ``~/.ssh``.
        known_hosts: File looked at for the host's key before the usual ones.
        connect_timeout_s: For each of: connecting, the banner, authentication.
    """

    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    identity_file: Path | None = None
    known_hosts: Path | None = None
    connect_timeout_s: float = 10.0

    @classmethod
    def of(cls, address: str, settings: SshSettings) -> SshTarget:
        """The board at ``ssh://[user@]host[:port]``; what the address leaves out comes from the profile.

        Raises:
            InputError: The address is not of that form, or holds a password.
        """
        where = parse_address(address)
        return cls(
            host=where.host,
            port=settings.port if where.port is None else where.port,
            user=where.user or settings.user,
            identity_file=expand_home(settings.identity_file) if settings.identity_file else None,
            known_hosts=expand_home(settings.known_hosts) if settings.known_hosts else None,
        )

    @property
    def login(self) -> str:
        """``user@host``, as ssh takes it."""
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def known_hosts_name(self) -> str:
        """The host's name in a known_hosts file."""
        return self.host if self.port == DEFAULT_PORT else f"[{self.host}]:{self.port}"

    def describe(self) -> str:
        """``user@host:port``, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port}" if self.user else f"{host}:{self.port}"
