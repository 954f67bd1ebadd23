"""Getting into a board over SSH: socket, host key, user key, and what went wrong in words a person can act on."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from edgeplace.errors import LinkError
from edgeplace.transport.base import HostKeyError
from edgeplace.transport.ssh_target import KNOWN_HOSTS_VARIABLE, SshTarget
from edgeplace.user_folders import NoHomeFolderError, expand_home, home_folder

LOG = logging.getLogger(__name__)

KEEPALIVE_S = 5
"""Seconds of silence after which something is sent, so that a dead line is noticed while nothing else happens."""
USER_TIMEOUT_MS = 15_000
"""How long the kernel lets sent data go unacknowledged before it gives the connection up."""
CHANNEL_TIMEOUT_S = 15.0
"""For opening a channel and starting a command on it; paramiko's own is an hour."""


class _UnknownHostKeyError(Exception):
    def __init__(self, key: paramiko.PKey) -> None:
        super().__init__("unknown host key")
        self.key = key


class _Refuse(paramiko.MissingHostKeyPolicy):
    """Like paramiko's RejectPolicy, and hands on the key so that its fingerprint can be shown."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownHostKeyError(key)


def open_client(target: SshTarget) -> paramiko.SSHClient:
    """A connection that is logged in.

    Host keys are looked up in the target's own file, those of ``EDGEPLACE_KNOWN_HOSTS``, ``~/.ssh/known_hosts`` and
    ``/etc/ssh/ssh_known_hosts``; for one kind of key, the first that names the host counts.

    Raises:
        HostKeyError: The host's key is unknown, or is not the one that is known.
        LinkError: Anything else that keeps us out.
    """
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(_Refuse())
    _load_known_hosts(client, target)
    identity = _load_identity(target)
    tcp = _open_socket(target)
    try:
        client.connect(
            target.host,
            port=target.port,
            username=target.user or getpass.getuser(),
            pkey=identity,
            # A key that was named is the one that is meant, and sshd counts every other one as a failed attempt;
            # but one that is locked may have been given to the agent.
            allow_agent=identity is None,
            look_for_keys=target.identity_file is None,
            timeout=target.connect_timeout_s,
            banner_timeout=target.connect_timeout_s,
            auth_timeout=target.connect_timeout_s,
            channel_timeout=CHANNEL_TIMEOUT_S,
            sock=tcp,
        )
    except BaseException as error:
        client.close()
        tcp.close()
        if isinstance(error, Exception):
            raise _explain(error, target) from error
        raise
    link = client.get_transport()
    assert link is not None  # connect() returned
    link.set_keepalive(KEEPALIVE_S)
    return client


def _load_known_hosts(client: paramiko.SSHClient, target: SshTarget) -> None:
    named = [] if target.known_hosts is None else [target.known_hosts]
    if variable := os.environ.get(KNOWN_HOSTS_VARIABLE, ""):
        named += [expand_home(part) for part in variable.split(os.pathsep) if part]
    usual = [Path("/etc/ssh/ssh_known_hosts")]
    with contextlib.suppress(NoHomeFolderError):
        usual.insert(0, home_folder() / ".ssh" / "known_hosts")
    for path in [*named, *(path for path in usual if path.is_file())]:
        try:
            client.load_system_host_keys(str(path))
        except OSError as error:
            raise LinkError(f"cannot read the known hosts: {error.strerror}", where=str(path)) from error
        except Exception as error:
            if path in named:
                raise LinkError(f"not a known_hosts file: {error}", where=str(path)) from error
            LOG.warning("%s: not read: %s", path, error)


def _load_identity(target: SshTarget) -> paramiko.PKey | None:
    """The private key that was named; ``None`` when none was, or it is locked by a passphrase."""
    path = target.identity_file
    if path is None:
        return None
    try:
        return paramiko.PKey.from_path(path)
    except TypeError:  # how the cryptography package says that it wants a passphrase
        LOG.info("%s is locked; it is used if the ssh-agent has it", path)
        return None
    except OSError as error:
        raise LinkError(
            f"cannot read the private key: {error.strerror}",
            where=str(path),
            hint="ssh-keygen -t ed25519 makes one",
        ) from error
    except (ValueError, paramiko.SSHException, UnknownKeyType) as error:
        raise LinkError(
            "this is no private key that can be used",
            where=str(path),
            hint="name the private key, not the .pub file; ssh-keygen -t ed25519 makes one",
        ) from error


def _open_socket(target: SshTarget) -> socket.socket:
    try:
        tcp = socket.create_connection((target.host, target.port), target.connect_timeout_s)
    except socket.gaierror as error:
        raise LinkError(
            f"no address for host '{target.host}': {error.strerror}",
            where=target.describe(),
            hint="check the name, or give the board's IP address",
        ) from error
    except ConnectionRefusedError as error:
        raise LinkError(
            "connection refused: nothing listens on that port",
            where=target.describe(),
            hint="check that sshd runs on the board (sudo systemctl enable --now ssh) and the port is right",
        ) from error
    except TimeoutError as error:
        raise LinkError(
            f"no answer within {target.connect_timeout_s:g} s",
            where=target.describe(),
            hint="check that the board is on, on the network, and not behind a firewall",
        ) from error
    except OSError as error:
        raise LinkError(
            f"cannot connect: {error.strerror or error}",
            where=target.describe(),
            hint="check the network between here and the board",
        ) from error
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
    return tcp


def _explain(error: Exception, target: SshTarget) -> LinkError:
    """What paramiko raised while connecting, in words a person can act on."""
    if isinstance(error, LinkError):
        return error
    if isinstance(error, _UnknownHostKeyError):
        return _host_key_error(error.key, None, target)
    if isinstance(error, paramiko.BadHostKeyException):
        return _host_key_error(error.key, error.expected_key, target)
    where, identity = target.describe(), target.identity_file
    locked = isinstance(error, paramiko.PasswordRequiredException)
    refused = isinstance(error, paramiko.AuthenticationException) or "authentication methods" in str(error)
    if locked or (refused and identity is not None and _load_identity(target) is None):
        name = "KEY" if identity is None else str(identity)
        return LinkError(
            "the private key is locked by a passphrase, and no ssh-agent has it",
            where=where,
            hint=f"ssh-add {name}",
        )
    if refused and "timeout" in str(error).lower():
        return LinkError(
            f"the login did not end within {target.connect_timeout_s:g} s",
            where=where,
            hint="the board is very busy; try again",
        )
    if refused:
        key = "" if identity is None else f"-i {identity}.pub "
        return LinkError(
            f"the board does not let user '{target.user or getpass.getuser()}' in with the keys we have",
            where=where,
            hint=f"ssh-copy-id {key}-p {target.port} {target.login}",
        )
    if isinstance(error, (paramiko.SSHException, EOFError, OSError)):
        return LinkError(
            f"what answers there did not speak SSH to the end: {error or type(error).__name__}",
            where=where,
            hint=f"try: ssh -v -p {target.port} {target.login} true",
        )
    return LinkError(f"cannot connect: {error}", where=where)


def _host_key_error(key: paramiko.PKey, expected: paramiko.PKey | None, target: SshTarget) -> HostKeyError:
    name = target.known_hosts_name
    line = f"{name} {key.get_name()} {key.get_base64()}"
    shown = f"{key.get_name()} {key.fingerprint}"
    check = "on the board: ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub"
    if expected is None:
        message = f"unknown host key {shown}"
        hint = f"compare the fingerprint ({check}), then add this line to ~/.ssh/known_hosts: {line}"
    else:
        message = f"the host key changed: the board shows {shown}, known is {expected.fingerprint}"
        hint = (
            "somebody may be in between. If the board was installed anew, compare the fingerprint "
            f"({check}), then: ssh-keygen -R '{name}' and add this line to ~/.ssh/known_hosts: {line}"
        )
    return HostKeyError(
        message,
        fingerprint=key.fingerprint,
        known_hosts_line=line,
        changed=expected is not None,
        hint=hint,
        where=target.describe(),
    )
