"""Where an SSH board is and who we are there: the settings, and how an address gives them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edgeplace.errors import InputError

DEFAULT_PORT = 22
KNOWN_HOSTS_VARIABLE = "EDGEPLACE_KNOWN_HOSTS"
"""Environment variable with more known_hosts files, separated like ``PATH``."""


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How to reach a board over SSH.

    Attributes:
        host: Name or address (IPv6 without brackets).
        port: TCP port of sshd.
        user: Name to log in with; empty means the name of who runs us.
        identity_file: Private key to use; ``None`` means those of the ssh-agent and of ``~/.ssh``.
        known_hosts: Files looked at for the host's key before the usual ones.
        connect_timeout_s: For each of: connecting, the banner, authentication.
        work_dir: Absolute folder on the board for what is put there; empty means ``~/.cache/edgeplace``.
    """

    host: str
    port: int = DEFAULT_PORT
    user: str = ""
    identity_file: Path | None = None
    known_hosts: tuple[Path, ...] = ()
    connect_timeout_s: float = 10.0
    work_dir: str = ""

    def __post_init__(self) -> None:
        if not self.host or self.host.startswith("-") or any(c.isspace() for c in self.host):
            raise InputError(f"'{self.host}' is no host name")
        if not 0 < self.port < 65536:
            raise InputError(f"{self.port} is no TCP port")

    @classmethod
    def from_address(
        cls,
        address: str,
        *,
        identity_file: Path | None = None,
        known_hosts: tuple[Path, ...] = (),
        work_dir: str = "",
    ) -> SshSettings:
        """Settings of ``ssh://user@host:port``; user and port may be left out.

        Raises:
            InputError: The address is not of that form, or holds a password.
        """
        hint = "write it like ssh://user@host:port"
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError as error:
            raise InputError(f"'{address}' is no SSH address: {error}", hint=hint) from None
        if parts.password is not None:
            raise InputError(
                "an SSH address cannot hold a password",
                hint="use a key: ssh-copy-id, or ssh-add for an agent",
            )
        if (
            parts.scheme != "ssh"
            or not parts.hostname
            or parts.path.strip("/")
            or parts.query
            or parts.fragment
        ):
            raise InputError(f"'{address}' is no SSH address", hint=hint)
        return cls(
            host=parts.hostname,
            port=DEFAULT_PORT if port is None else port,
            user=unquote(parts.username or ""),
            identity_file=identity_file,
            known_hosts=known_hosts,
            work_dir=work_dir,
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
