"""Run a delegate map again on its board: is it as fast and as right as it says?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgeplace.boards import load_board
from edgeplace.boards.profile import BoardProfile, PlatformProfile
from edgeplace.controller.finalists import DEFAULT_PLATFORM, default_platform_spec
from edgeplace.controller.prepare import (
    graph_on,
    inputs_for,
    numerics_on,
    runs_as_given,
    shape_texts,
    workbench_on,
)
from edgeplace.controller.requests import Observer, SilentObserver, VerifyRequest
from edgeplace.delegate_map import (
    AgreementInfo,
    DelegateMap,
    describe_agreement,
    load_map,
    plan_from_map,
    validate_map,
)
from edgeplace.errors import CheckFailedError, InputError
from edgeplace.graph.contract import contract
from edgeplace.measure.agreement import Gate, Limit
from edgeplace.measure.board import LiveBoard, bring_up
from edgeplace.measure.final import Entrant, FinalResult, run_final
from edgeplace.measure.measurement import Failure
from edgeplace.measure.metric import load_metric
from edgeplace.measure.numerics import Numerics
from edgeplace.measure.workbench import Workbench, whole_plan
from edgeplace.placement.plan import Placement, Plan
from edgeplace.placement.segmentation import make_plan
from edgeplace.tflite.reader import Model

PLACEMENT = "this map"


def verify(request: VerifyRequest, observer: Observer | None = None) -> dict[str, Any]:
    """Measure a map's placement again, interleaved with what it was compared with, and check its outputs.

    Returns:
        ``holds``, the ``checks`` one by one (``name``, ``holds``, ``said``, ``found``), and the rows measured.

    Raises:
        CheckFailedError: A platform of the map is not there any more, or the placement does not run.
        ProfileError: The map is not valid, or not for this model.
        LinkError: The board cannot be reached.
    """
    watch = observer or SilentObserver()
    delegate_map = load_map(request.map)
    model = Model.load(model_of_map(request.map, delegate_map, request.model))
    validate_map(delegate_map, model_sha256=model.sha256)
    profile = _profile(request, delegate_map)
    watch.stage(f"bringing up {profile.name}", len(profile.platforms) + 1)
    with bring_up(profile, watch.advance) as board:
        _refuse_missing_platforms(delegate_map, board)
        graph = graph_on(board, model, delegate_map.model.signature, shape_texts(delegate_map))
        plan = plan_from_map(delegate_map, graph)
        workbench = workbench_on(board, model, graph, request.run_deadline_s)
        watch.stage("reference", 3)
        numerics = _numerics(request, delegate_map, board, workbench, watch)
        watch.stage("running the map again", 2)
        watch.advance("outputs", 0)
        outputs = workbench.run(plan, numerics.inputs.samples)
        if isinstance(outputs, Failure):
            raise CheckFailedError(f"the placement does not run: {outputs}", where=str(request.map))
        trusted = len(plan.segments) == 1 and plan.segments[0].platform in board.trusted
        agreement, wrong = numerics.judge(outputs, whole_cpu=trusted)
        watch.advance("times")
        entrants = _entrants(delegate_map, plan, workbench, board, numerics)
        final = run_final(workbench, entrants, numerics.inputs.samples[0], rounds=request.rounds)
        if PLACEMENT not in final.p50_ms:
            raise CheckFailedError(
                f"the placement does not run: {final.failures[PLACEMENT]}", where=str(request.map)
            )
        checks = [
            _check_files(delegate_map, plan, workbench),
            _check_numbers(delegate_map, AgreementInfo.of(agreement), wrong),
            *_check_speed(delegate_map, final, request.tolerance),
            *_check_ran_on(delegate_map, outputs.ran_on),
        ]
        changed = _changes(delegate_map, board)
    return {
        "map_file": str(request.map),
        "holds": all(check["holds"] for check in checks),
        "checks": checks,
        "rows": [
            {
                "name": name,
                "p50_ms": ms,
                "ci95_ms": list(final.ci95_ms[name]),
                "said_ms": _said_ms(delegate_map, name),
            }
            for name, ms in final.p50_ms.items()
        ],
        "board_changes": changed,
    }


def model_of_map(map_path: Path, delegate_map: DelegateMap, given: Path | None) -> Path:
    """The model file: the one given, else beside the map, else in the current folder.

    Raises:
        InputError: It is in none of these places.
    """
    if given is not None:
        return given
    places = [map_path.parent / delegate_map.model.file, Path(delegate_map.model.file)]
    for place in places:
        if place.is_file():
            return place
    raise InputError(
        f"the model {delegate_map.model.file} is neither beside the map nor in this folder",
        where=str(map_path),
        hint=f"--model path/to/{delegate_map.model.file}",
    )


def _profile(request: VerifyRequest, delegate_map: DelegateMap) -> BoardProfile:
    """The map's board, offering exactly the platforms of the map, as they were measured."""
    board = load_board(request.board or delegate_map.board.name, request.boards_dirs, request.overrides)
    platforms = {
        name: PlatformProfile.model_validate(spec.model_dump())
        for name, spec in delegate_map.platforms.items()
    }
    return board.model_copy(update={"platforms": platforms})


def _refuse_missing_platforms(delegate_map: DelegateMap, board: LiveBoard) -> None:
    needed = dict.fromkeys(segment.platform for segment in delegate_map.segments)
    missing = [f"{name}: {board.left_out[name]}" for name in needed if name in board.left_out]
    if missing:
        raise CheckFailedError(
            f"a platform of this map is not there: {'; '.join(missing)}",
            where=delegate_map.board.name,
            hint="bring it back, or run edgeplace optimize again for the board as it is now",
        )


def _numerics(
    request: VerifyRequest,
    delegate_map: DelegateMap,
    board: LiveBoard,
    workbench: Workbench,
    watch: Observer,
) -> Numerics:
    """The reference made anew; the limit is the map's own when it has one."""
    inputs = inputs_for(workbench.graph, request.inputs)
    metric = load_metric(request.metric) if request.metric else None
    numerics = numerics_on(board, workbench, inputs, Limit(), metric, report=watch.advance)
    said = delegate_map.result.limit if delegate_map.result is not None else None
    if said is None:
        return numerics
    if said.metric is not None and request.metric is None:
        raise InputError(
            "the limit of this map is a task metric",
            where=str(request.map),
            hint="give the same one: --metric module:function, and the same --inputs",
        )
    return replace(numerics, gate=Gate(Limit.from_dict(said.model_dump())))


def _entrants(
    delegate_map: DelegateMap,
    plan: Plan,
    workbench: Workbench,
    board: LiveBoard,
    numerics: Numerics,
) -> list[Entrant]:
    """The map's plan, the single platforms it was compared with, and the runtime's default as a yardstick."""
    used = {segment.platform for segment in plan.segments}
    said_ms = delegate_map.result.p50_ms if delegate_map.result is not None else 0.0
    entrants = [Entrant(PLACEMENT, plan, said_ms, is_single=len(used) == 1)]
    graph = workbench.graph
    pieces = contract(graph, "op")
    for name in board.platforms:
        baseline_ms = delegate_map.baselines.get(name)
        if isinstance(baseline_ms, float) and used != {name}:
            alone = make_plan(pieces, Placement((name,) * len(pieces.units)))
            entrants.append(Entrant(name, alone, baseline_ms, is_single=True))
    workbench.add_platform(DEFAULT_PLATFORM, default_platform_spec(board))
    original = runs_as_given(graph, workbench.model)
    default = whole_plan(graph, DEFAULT_PLATFORM)
    baseline_ms = delegate_map.baselines.get(DEFAULT_PLATFORM)
    if not isinstance(workbench.run(default, numerics.inputs.samples[:1], original=original), Failure):
        known_ms = baseline_ms if isinstance(baseline_ms, float) else said_ms
        entrants.append(Entrant(DEFAULT_PLATFORM, default, known_ms, original=original, competes=False))
    return entrants


def _check_files(delegate_map: DelegateMap, plan: Plan, workbench: Workbench) -> dict[str, Any]:
    """Cutting the model again gives the very files that were measured."""
    differing = [
        segment.id
        for segment, said in zip(plan.segments, delegate_map.segments, strict=True)
        if said.sha256 and workbench.file_of(segment).sha256 != said.sha256
    ]
    found = f"segments {differing} differ" if differing else "the same files"
    return {"name": "segment files", "holds": not differing, "said": "hashes in the map", "found": found}


def _check_numbers(delegate_map: DelegateMap, found: AgreementInfo, wrong: str) -> dict[str, Any]:
    """The outputs are as right as the limit in the map asks for."""
    said = delegate_map.result.numeric if delegate_map.result is not None else AgreementInfo()
    return {
        "name": "outputs",
        "holds": not wrong,
        "said": describe_agreement(said),
        "found": wrong or describe_agreement(found),
    }


def _check_speed(delegate_map: DelegateMap, final: FinalResult, tolerance: float) -> list[dict[str, Any]]:
    """Not slower than the best single platform, and not slower than the map says.

    How fast the board is today is in the yardsticks that ran in the same rounds: their median change since the map was
    written is taken out, so that a warmer board or a busier host does not fail a map that still holds.
    """
    now_ms = final.p50_ms[PLACEMENT]
    singles = {name: ms for name, ms in final.p50_ms.items() if name not in (PLACEMENT, DEFAULT_PLATFORM)}
    checks = []
    if singles:
        best = min(singles, key=lambda name: singles[name])
        slower = final.ci95_ms[PLACEMENT][0] > final.ci95_ms[best][1] * (1 + tolerance)
        checks.append(
            {
                "name": "not slower than the best single platform",
                "holds": not slower,
                "said": f"not by more than {tolerance:.0%}",
                "found": f"{now_ms:.4g} ms, {best} {singles[best]:.4g} ms",
            }
        )
    if delegate_map.result is None:
        return checks
    changes = [
        ms / said
        for name, ms in final.p50_ms.items()
        if name != PLACEMENT and isinstance(said := _said_ms(delegate_map, name), float) and said > 0
    ]
    drift = statistics.median(changes) if changes else 1.0
    allowed_ms = delegate_map.result.p50_ms * drift * (1 + tolerance)
    checks.append(
        {
            "name": "as fast as the map says",
            "holds": final.ci95_ms[PLACEMENT][0] <= allowed_ms,
            "said": f"{delegate_map.result.p50_ms:.4g} ms",
            "found": f"{now_ms:.4g} ms (the board is {drift:.2f}x the time of then; allowed {allowed_ms:.4g} ms)",
        }
    )
    return checks


def _check_ran_on(delegate_map: DelegateMap, ran_on: Sequence[str]) -> list[dict[str, Any]]:
    """What really ran each segment, where the map says what did."""
    differing = [
        f"segment {said.id}: {said.ran_on} then, {now} now"
        for said, now in zip(delegate_map.segments, ran_on, strict=False)
        if said.ran_on and now != said.ran_on
    ]
    if not any(segment.ran_on for segment in delegate_map.segments):
        return []
    found = "; ".join(differing) or "the same"
    return [
        {"name": "what ran each segment", "holds": not differing, "said": "as in the map", "found": found}
    ]


def _changes(delegate_map: DelegateMap, board: LiveBoard) -> list[str]:
    """What is different about the board since the map was written."""
    now = board.fingerprint()
    then = delegate_map.board.fingerprint
    return [
        f"{key}: {then.get(key, 'unknown')} then, {now.get(key, 'unknown')} now"
        for key in sorted({*now, *then})
        if now.get(key) != then.get(key)
    ]


def _said_ms(delegate_map: DelegateMap, name: str) -> float | str | None:
    if name == PLACEMENT:
        return delegate_map.result.p50_ms if delegate_map.result is not None else None
    return delegate_map.baselines.get(name)
