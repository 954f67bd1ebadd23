"""A board that answers: its agent started, its platforms tried, what is missing named."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeplace.agent_client import AgentClient, AgentFailure, AgentInfo
from edgeplace.boards import BoardProfile, PlatformProfile, platform_spec
from edgeplace.errors import NoFeasiblePlacementError, OutputError
from edgeplace.tflite.probe_model import probe_model
from edgeplace.transport import transport_for
from edgeplace.user_folders import xdg_folder

PROBE_DEADLINE_S = 120.0
MEASURED_DETAILS = ("memory_bytes",)
"""Details of a platform that differ from one start of the agent to the next."""


@dataclass(frozen=True)
class LivePlatform:
    """A platform that was tried on the board and works.

    Attributes:
        spec: What it is, as sent to the agent.
        details: What the agent found: versions, device, library.
    """

    name: str
    profile: PlatformProfile
    spec: Mapping[str, Any]
    details: Mapping[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this platform from another: its description, and the runtimes, devices and library files behind it.

        The same in every search as long as nothing on the board changed.
        """
        lasting = {key: value for key, value in self.details.items() if key not in MEASURED_DETAILS}
        return {"spec": dict(self.spec), "details": lasting}


@dataclass(frozen=True)
class LiveBoard:
    """A board whose agent answers.

    Attributes:
        platforms: Those that are there, in the profile's order.
        left_out: Platform name -> why it is not used.
    """

    profile: BoardProfile
    agent: AgentClient
    info: AgentInfo
    platforms: Mapping[str, LivePlatform]
    left_out: Mapping[str, str]

    @property
    def cpu_runtime(self) -> str:
        """The TFLite runtime that the CPU platforms use; empty for whichever there is."""
        for platform in self.platforms.values():
            if platform.profile.kind == "cpu" and platform.profile.loader == "interpreter":
                return platform.profile.runtime
        return ""

    @property
    def runtime_versions(self) -> str:
        """Every package that has a hand in what kernels compute, with its version."""
        return " ".join(f"{name} {version}" for name, version in sorted(self.info.runtimes.items()))

    @property
    def trusted(self) -> frozenset[str]:
        """Platforms of the CPU's own kernels: right by definition unless they give NaN or Inf."""
        return frozenset(
            name
            for name, platform in self.platforms.items()
            if platform.profile.kind == "cpu"
            and not (platform.profile.library and platform.profile.loader == "interpreter")
        )

    def fingerprint(self) -> dict[str, Any]:
        """What tells this board from another, for the map and the store."""
        versions = {f"runtime_{name}": version for name, version in sorted(self.info.runtimes.items())}
        facts = {
            key: value for key, value in self.info.fingerprint.items() if isinstance(value, (str, int, float))
        }
        return {**facts, "python": self.info.python, **versions}


@contextmanager
def bring_up(profile: BoardProfile, report: Callable[[str], None] = lambda text: None) -> Iterator[LiveBoard]:
    """Start the agent on a board and try each of its platforms; the agent ends with the block.

    Raises:
        LinkError: The board cannot be reached.
        AgentError: The agent does not start, or is another version.
        NoFeasiblePlacementError: None of the platforms is there.
    """
    report(f"starting the agent on {profile.name}")
    with (
        transport_for(profile.address, profile.ssh) as transport,
        AgentClient(
            transport,
            python=profile.agent.python,
            root=profile.agent.root,
            log_path=agent_log_path(profile.name),
        ) as agent,
    ):
        info = agent.hello()
        platforms, left_out = _try_platforms(profile, agent, info, report)
        if not platforms:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            raise NoFeasiblePlacementError(
                f"none of the platforms of {profile.name} is there: {reasons}",
                hint=f"edgeplace boards probe {profile.name}",
            )
        yield LiveBoard(profile, agent, info, platforms, left_out)


def agent_log_path(board: str) -> Path:
    """Where the agent's stderr (and every vendor library's chatter) is kept on the host."""
    folder = xdg_folder("XDG_STATE_HOME", ".local/state") / "edgeplace"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"the folder of the agent's log cannot be made: {error.strerror or error}",
            where=str(folder),
            hint="set XDG_STATE_HOME to a folder you may write",
        ) from error
    return folder / f"agent-{board}.log"


def _try_platforms(
    profile: BoardProfile, agent: AgentClient, info: AgentInfo, report: Callable[[str], None]
) -> tuple[dict[str, LivePlatform], dict[str, str]]:
    model = probe_model()
    sha256 = hashlib.sha256(model).hexdigest()
    agent.ensure_blobs({sha256: model})
    platforms: dict[str, LivePlatform] = {}
    left_out: dict[str, str] = {}
    for name, entry in profile.platforms.items():
        report(f"trying platform {name}")
        spec = platform_spec(name, entry, info.cpu_count or 1)
        try:
            found = agent.probe(spec, sha256, deadline_s=PROBE_DEADLINE_S)
        except AgentFailure as failure:
            left_out[name] = f"{failure.kind}: {failure.message}"
            continue
        if found.available:
            platforms[name] = LivePlatform(name, entry, spec, found.details)
        else:
            left_out[name] = found.reason
    return platforms, left_out
