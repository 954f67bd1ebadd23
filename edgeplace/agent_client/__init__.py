"""The host's side of the agent: installs it, speaks the protocol, and maps what goes wrong to the error tree."""

from __future__ import annotations

from edgeplace.agent_client.client import AgentClient
from edgeplace.agent_client.conversation import AgentFailure, AgentLost, AgentRefused, LinkLost, Progress
from edgeplace.agent_client.results import (
    AgentInfo,
    InterleaveResult,
    MeasureResult,
    ProbeResult,
    RunResult,
    ShapesResult,
    TryResult,
)
from edgeplace.agent_client.wire import ArrayBlob, wire_plan

__all__ = [
    "AgentClient",
    "AgentFailure",
    "AgentInfo",
    "AgentLost",
    "AgentRefused",
    "ArrayBlob",
    "InterleaveResult",
    "LinkLost",
    "MeasureResult",
    "ProbeResult",
    "Progress",
    "RunResult",
    "ShapesResult",
    "TryResult",
    "wire_plan",
]
