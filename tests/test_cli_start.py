"""What starting the command line loads: help and mistyped options must not wait for numerics or a database."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeplace.cli.optimize_command import optimize
from edgeplace.cli.verify_command import verify
from edgeplace.controller.requests import OptimizeRequest, VerifyRequest
from edgeplace.measure.agreement import DEFAULT_COSINE, DEFAULT_SNR_DB
from edgeplace.measure.workbench import Deadlines
from edgeplace.optimizers.gate import DEFAULT_THRESHOLD

PRINT_PACKAGES = "import json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def packages_after(statement: str) -> set[str]:
    """Top-level packages that are loaded once the statement has run in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}; {PRINT_PACKAGES}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("statement", "not_yet"),
    [
        ("import edgeplace.cli", {"numpy", "pydantic", "sqlalchemy", "yaml"}),
        ("import edgeplace.controller", {"sklearn", "paramiko", "jinja2"}),
    ],
    ids=["help", "a verb"],
)
def test_packages_are_loaded_when_they_are_needed_and_not_before(statement: str, not_yet: set[str]) -> None:
    runtimes = {"ai_edge_litert", "tflite_runtime", "openvino"}  # these belong to the agent's worker alone
    assert not packages_after(statement) & (not_yet | runtimes)


@pytest.mark.parametrize(
    ("verb", "request_type", "other_names"),
    [
        (optimize, OptimizeRequest, {"cosine": "min_cosine", "snr": "min_snr_db", "sample_budget": "sample_budget_s",
                                     "run_deadline": "run_deadline_s"}),
        (verify, VerifyRequest, {}),
    ],
    ids=["optimize", "verify"],
)  # fmt: skip
def test_a_verb_has_the_defaults_of_its_request(
    verb: Callable[..., object], request_type: type, other_names: dict[str, str]
) -> None:
    # They are written twice, since the command line does not import the request to show its help.
    defaults = {field.name: field.default for field in dataclasses.fields(request_type)}
    own = {
        other_names.get(name, name): parameter.default
        for name, parameter in inspect.signature(verb).parameters.items()
    }
    shared = (own.keys() & defaults.keys()) - {"model", "map"}
    assert shared >= set(other_names.values()) | {"rounds", "metric", "inputs"}
    assert {name: own[name] for name in shared} == {name: defaults[name] for name in shared}


def test_a_request_has_the_defaults_of_the_parts_it_is_handed_to() -> None:
    request = OptimizeRequest(model=Path("model.tflite"))
    assert request.threshold == DEFAULT_THRESHOLD
    assert (request.min_cosine, request.min_snr_db) == (DEFAULT_COSINE, DEFAULT_SNR_DB)
    assert request.run_deadline_s == Deadlines().run_s
