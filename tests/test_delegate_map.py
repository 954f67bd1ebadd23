"""Delegate maps: what they say, what they refuse with file and line, how they are explained and compared."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from edgeplace.boards import PlatformSpec
from edgeplace.delegate_map import (
    MAP_FORMAT,
    AgreementInfo,
    BoardInfo,
    DelegateMap,
    MapSegment,
    ModelInfo,
    Rejection,
    Result,
    SearchInfo,
    describe_agreement,
    diff_maps,
    dump_map,
    explain_map,
    load_map,
    parse_map,
    placement_of,
    plan_from_map,
    save_map,
    spanning_nodes,
    validate_map,
)
from edgeplace.errors import OutputError, ProfileError
from edgeplace.graph.graph import Bond, Graph, Unit, UnitGraph
from edgeplace.measure.measurement import Agreement
from edgeplace.placement.segmentation import make_plan
from edgeplace.schema import json_schema
from edgeplace.testing.toy import RESIDUAL, toy_edges, toy_graph, toy_unit_graph

SHA = "ab" * 32
TEXT = f"""\
format: edgeplace/delegate-map@1
model: {{file: toy.tflite, sha256: "{"0" * 64}", nodes: 8}}
board: {{name: local, simulated: false}}
platforms:
  cpu: {{kind: cpu, loader: interpreter, options: {{threads: 2}}}}
  npu: {{kind: npu, loader: compiled_model}}
segments:
- {{id: 0, platform: cpu, nodes: [0-2]}}
- {{id: 1, platform: npu, nodes: [3-5]}}
- {{id: 2, platform: cpu, nodes: [6, 7]}}
"""


def graph(**changes: Any) -> Graph:
    made = toy_graph(8, toy_edges(8, RESIDUAL))
    return Graph(**{**{name: getattr(made, name) for name in made.__dataclass_fields__}, **changes})


def problems(text: str, of: Graph | None = None) -> list[str]:
    """Everything wrong with a map over the toy graph."""
    with pytest.raises(ProfileError) as caught:
        plan_from_map(parse_map(text, "m.yaml"), of or graph())
    return str(caught.value).splitlines()


def full_map() -> DelegateMap:
    """A map with every field filled."""
    return DelegateMap(
        format=MAP_FORMAT,
        model=ModelInfo(
            file="face_landmark.tflite",
            sha256=SHA,
            nodes=97,
            signature="serving_default",
            shapes={"input_1": (1, 192, 192, 3)},
            granularity="block",
            carried=(50,),
        ),
        board=BoardInfo(name="rpi5", simulated=False, fingerprint={"machine": "aarch64", "cpu_count": 4}),
        platforms={
            "npu": PlatformSpec(kind="npu", loader="compiled_model", options={"graph_backend": "CPU"}),
            "cpu": PlatformSpec(kind="cpu", loader="interpreter", options={"threads": 4}),
            "gpu": PlatformSpec(kind="gpu", loader="compiled_model"),
        },
        segments=(
            MapSegment(
                id=0,
                platform="npu",
                nodes=tuple(range(42)),
                sha256=SHA,
                inputs=("input_1",),
                outputs=("a", "b"),
                p50_ms=0.41,
                ran_on="npu (intel_openvino, CPU)",
            ),
            MapSegment(id=1, platform="cpu", nodes=tuple(range(42, 97)), p50_ms=0.4),
        ),
        result=Result(
            p50_ms=0.83123456,
            ci95_ms=(0.82, 0.85),
            speedup_over_best_single=1.12,
            decision="faster by more than 1 %: ratio 0.893",
            numeric=AgreementInfo(snr_db=61.2, cosine=0.99999, max_abs=0.00123),
            floor=AgreementInfo(snr_db=90.0, cosine=1.0),
            limit=AgreementInfo(snr_db=30.0, cosine=0.99),
            reference="reference kernels",
            inputs="8 seeded samples",
        ),
        baselines={"npu": 0.93, "cpu": 1.15, "gpu": "unsupported: CUSTOM is not supported"},
        search=SearchInfo(
            method="surrogate",
            threshold=256,
            placements=1836311903,
            measured=74,
            failed=3,
            budget=74,
            finished_by="budget",
        ),
        rejected=(
            Rejection(
                nodes=(42, 43),
                platform="npu",
                failure="wrong_output",
                message="SNR 12.0 dB is under 30 dB",
                numeric=AgreementInfo(snr_db=12.04, cosine=0.91, max_abs=3.2),
            ),
            Rejection(nodes=(96,), platform="npu", failure="unsupported", message="op CUSTOM"),
        ),
        platforms_left_out={"gpu": "no Vulkan driver"},
    )


def test_a_map_survives_its_file(tmp_path: Path) -> None:
    text = dump_map(full_map())
    path = tmp_path / "m.yaml"
    path.write_text(text)
    again = load_map(path)
    assert again == full_map()
    assert dump_map(again) == text
    assert again.segments[1].nodes[-1] == 96
    assert again.result is not None
    assert again.result.p50_ms == 0.831235
    assert (
        again.where("segments", 1)
        == f"{path}:{text.splitlines().index(next(s for s in text.splitlines() if '- {id: 1' in s)) + 1}"
    )


def test_the_number_of_placements_is_exact_however_large(tmp_path: Path) -> None:
    found = full_map()
    assert found.search is not None
    placements = 5**388  # every operator of a 388-operator model on five platforms
    large = found.model_copy(update={"search": found.search.model_copy(update={"placements": placements})})
    (tmp_path / "m.yaml").write_text(dump_map(large))
    again = load_map(tmp_path / "m.yaml")
    assert again.search is not None
    assert again.search.placements == placements


def test_a_map_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("old")
    save_map(full_map(), path)
    assert load_map(path) == full_map()
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.yaml"]
    with pytest.raises(OutputError):
        save_map(full_map(), path / "m.yaml")


def test_the_file_reads_as_the_design_shows_it() -> None:
    lines = dump_map(full_map()).splitlines()
    assert "format: edgeplace/delegate-map@1" in lines
    assert "  - {id: 1, platform: cpu, nodes: [42-96], p50_ms: 0.4}" in lines
    assert "  cpu: {kind: cpu, loader: interpreter, options: {threads: 4}}" in lines
    plain = yaml.safe_load("\n".join(lines))
    assert plain["baselines"] == {"npu": 0.93, "cpu": 1.15, "gpu": "unsupported: CUSTOM is not supported"}
    jsonschema.validate(plain, json_schema(DelegateMap))


def test_the_example_in_the_reference_is_a_valid_map() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "delegate-map.md").read_text()
    text = re.sub(r"([0-9a-f]{8})\.\.\.", r"\1" * 8, page.split("```yaml\n")[1].split("```")[0])
    example = parse_map(text, "delegate-map.md")
    validate_map(example)
    assert len(explain_map(example)) > 8


def test_what_a_map_says_of_outputs_is_finite_and_of_equal_ones_that_they_are_equal() -> None:
    equal = AgreementInfo.of(Agreement(max_abs=0.0, cosine=1.0, snr_db=math.inf, psnr_db=math.nan, steps=0.0))
    assert equal == AgreementInfo(max_abs=0.0, cosine=1.0, steps=0.0)
    assert describe_agreement(equal) == "equal"
    result = Result(p50_ms=1.0, ci95_ms=(1.0, 1.0), numeric=equal)
    text = dump_map(full_map().model_copy(update={"result": result}))
    assert "inf" not in text.partition("result:")[2].partition("baselines:")[0]
    assert parse_map(text, "m.yaml").result == result


def test_classes_of_which_some_differ_are_not_told_as_equal() -> None:
    classes = AgreementInfo.of(Agreement(0.0, 1.0, math.inf, math.inf, equal_share=0.995))
    assert describe_agreement(classes) == "99.5% equal elements"
    assert (
        describe_agreement(AgreementInfo.of(Agreement(0.0, 1.0, math.inf, math.inf, equal_share=1.0)))
        == "equal"
    )
    assert describe_agreement(AgreementInfo()) == "not compared"


def test_a_plan_from_a_map_is_the_plan_of_its_placement() -> None:
    delegate_map = parse_map(TEXT, "m.yaml")
    unit_graph = toy_unit_graph(8, RESIDUAL)
    placement = placement_of(delegate_map, unit_graph)
    assert placement is not None
    assert placement.platforms == ("cpu",) * 3 + ("npu",) * 3 + ("cpu",) * 2
    plan = plan_from_map(delegate_map, graph())
    assert plan == make_plan(unit_graph, placement)
    assert [segment.nodes for segment in plan.segments] == [(0, 1, 2), (3, 4, 5), (6, 7)]
    assert plan.transfers == 4


def test_segments_stay_as_a_person_divided_them() -> None:
    text = TEXT.replace(
        "- {id: 0, platform: cpu, nodes: [0-2]}",
        "- {id: 0, platform: cpu, nodes: [0]}\n- {id: 1, platform: cpu, nodes: [1, 2]}",
    )
    text = text.replace("id: 2", "id: 3").replace("{id: 1, platform: npu", "{id: 2, platform: npu")
    plan = plan_from_map(parse_map(text, "m.yaml"), graph())
    assert [(s.platform, s.nodes) for s in plan.segments][:2] == [("cpu", (0,)), ("cpu", (1, 2))]


def test_a_map_that_divides_a_unit_has_no_placement_over_those_units() -> None:
    toy = toy_unit_graph(8, RESIDUAL)
    units = (Unit(0, tuple(range(4)), "a"), Unit(1, tuple(range(4, 8)), "b"))
    coarse = UnitGraph(toy.graph, "block", units, frozenset(), ((1,), ()), ((), (0,)))
    assert placement_of(parse_map(TEXT, "m.yaml"), coarse) is None
    assert placement_of(parse_map(TEXT.replace("[6, 7]", "[6]"), "m.yaml"), toy) is None


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[0-2]", "[0-3, 5]", ["m.yaml:9: nodes 3, 5 are placed twice: in segment 0 and in segment 1"]),
        ("[0-2]", "[0-2, 1]", ["m.yaml:8: node 1 is placed twice: in segment 0"]),
        (
            "[6, 7]",
            "[7, 9]",
            [
                "m.yaml:7: node 6 is placed nowhere",
                "m.yaml:10: node 9 is not in the model, whose last node is 7",
            ],
        ),
        (
            "[6, 7]",
            "[]",
            ["m.yaml:7: nodes 6-7 are placed nowhere", "m.yaml:10: segment 2 has no node to run"],
        ),
        (
            "{id: 2, platform: cpu",
            "{id: 4, platform: ncpu",
            [
                "m.yaml:10: the id is 4, and this is segment 2 in execution order (they count from 0)",
                "m.yaml:10: no platform named 'ncpu' in this map; did you mean 'npu'?",
            ],
        ),
        (
            '"' + "0" * 64,
            '"' + "1" * 64,
            [f"m.yaml:2: the map is for another model: it says sha256 {'1' * 64}, the model at hand has {'0' * 64}"],
        ),
        ("nodes: 8}", "nodes: 8, signature: main}", ["m.yaml:2: the map is for signature 'main', not for ''"]),
    ],
)  # fmt: skip
def test_mistakes_name_file_and_line(old: str, new: str, expected: list[str]) -> None:
    assert problems(TEXT.replace(old, new)) == expected


def test_segments_that_need_each_other_are_refused() -> None:
    text = TEXT.replace("[0-2]", "[0, 3]").replace("[3-5]", "[1, 2, 4, 5]")
    assert problems(text) == [
        "m.yaml:8: segments 0 and 1 need each other: no order works; move nodes until none does"
    ]


def test_segments_in_the_wrong_order_are_refused() -> None:
    text = TEXT.replace("cpu, nodes: [0-2]", "cpu, nodes: [3-5]").replace(
        "npu, nodes: [3-5]", "npu, nodes: [0-2]"
    )
    assert problems(text) == [
        "m.yaml:8: segment 0 stands before segment 1, whose result it needs (node 3 reads what node 0 makes)"
    ]


def test_a_circle_of_three_is_named_without_what_only_reads_from_it() -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7)]
    text = TEXT.replace("[0-2]", "[0, 3]").replace("[3-5]", "[1, 4]").replace("[6, 7]", "[2, 5]")
    text += "- {id: 3, platform: npu, nodes: [6, 7]}\n"
    assert problems(text, toy_graph(8, edges)) == [
        "m.yaml:8: segments 0, 1 and 2 need each other: no order works; move nodes until none does"
    ]


def test_bonded_nodes_stay_in_one_segment() -> None:
    bonded = graph(bonds=(Bond((2, 3), "state: VAR_HANDLE 'count'"),))
    assert problems(TEXT, bonded) == [
        "m.yaml:8: nodes 2-3 must stay in one segment, not in 0 and 1: state: VAR_HANDLE 'count'"
    ]


def test_carried_nodes_may_stand_anywhere_or_nowhere() -> None:
    carrying = graph(constant_nodes=frozenset({1}), inputs=(0,))
    for nodes in ("[0-2]", "[0, 2]"):
        plan = plan_from_map(
            parse_map(TEXT.replace("[0-2]", nodes).replace("nodes: 8", "nodes: 8, carried: [1]"), "m"),
            carrying,
        )
        assert plan.segments[0].nodes == (0, 2)


def test_a_map_is_checked_without_its_model_too() -> None:
    validate_map(parse_map(TEXT, "m.yaml"))
    validate_map(full_map().model_copy(update={"segments": full_map().segments[:1]}), nodes=range(42))
    with pytest.raises(ProfileError, match="nodes 42-49, 51-96 are placed nowhere"):
        validate_map(full_map().model_copy(update={"segments": full_map().segments[:1]}))
    with pytest.raises(ProfileError, match=f"it says sha256 {SHA}, the model at hand has x"):
        validate_map(full_map(), model_sha256="x")


def test_schema_mistakes_name_file_and_line() -> None:
    with pytest.raises(ProfileError) as caught:
        parse_map(TEXT.replace("platform: npu, nodes", "platfrom: npu, nodes"), "m.yaml")
    assert str(caught.value).splitlines() == [
        "m.yaml:9: segments[1].platform is missing",
        "m.yaml:9: 'platfrom' is not a key of segments[1]; did you mean 'platform'?",
    ]


def test_spanning_nodes_fill_gaps_with_carried_ones_only() -> None:
    assert spanning_nodes([5, 1, 3], {2, 4}) == (1, 2, 3, 4, 5)
    assert spanning_nodes([1, 3, 5], {4}) == (1, 3, 4, 5)
    assert spanning_nodes([], {1}) == ()


def test_explain_says_when_outputs_are_beyond_the_limit() -> None:
    result = full_map().result
    assert result is not None
    far = result.model_copy(update={"numeric": AgreementInfo(snr_db=-0.9, cosine=0.0)})
    assert any(
        "beyond the limit" in line for line in explain_map(full_map().model_copy(update={"result": far}))
    )
    assert not any("beyond the limit" in line for line in explain_map(full_map()))


def test_explain_names_the_grounds() -> None:
    assert explain_map(full_map()) == [
        "face_landmark.tflite on rpi5: 2 segments, 0.831235 ms, 1.12x as fast as the best single platform",
        "search: 1836311903 placements possible, not below the threshold 256; method surrogate,"
        " 74 measured, 3 failed, ended by: budget",
        "decision: faster by more than 1 %: ratio 0.893",
        "outputs: SNR 61.2 dB, cosine 0.99999, max abs 0.00123 against reference kernels on 8 seeded samples",
        "limit: SNR 30.0 dB, cosine 0.99 (correct kernels among themselves: SNR 90.0 dB, cosine 1)",
        "compared with npu: 0.93 ms",
        "compared with cpu: 1.15 ms",
        "compared with gpu: unsupported: CUSTOM is not supported",
        "segment 0: nodes 0-41 on npu, 0.41 ms (ran on npu (intel_openvino, CPU))",
        "  cpu could run it too; the total time decided",
        "segment 1: nodes 42-49, 51-96 on cpu, 0.4 ms",
        "  not on npu: nodes 42-43 wrong_output: SNR 12.0 dB is under 30 dB",
        "  not on npu: node 96 unsupported: op CUSTOM",
        "disagreed: nodes 42-43 on npu, excluded there: SNR 12.0 dB, cosine 0.91, max abs 3.2",
        "left out: gpu: no Vulkan driver",
    ]


def test_explain_names_refusals_of_platforms_that_the_map_does_not_use() -> None:
    whole = full_map()
    refused = Rejection(nodes=(5,), platform="tpu", failure="crashed", message="signal 11")
    lines = explain_map(whole.model_copy(update={"rejected": (*whole.rejected, refused)}))
    assert lines[lines.index("  not on tpu: node 5 crashed: signal 11") - 2].startswith("segment 0: ")


def test_explain_a_map_by_hand() -> None:
    lines = explain_map(parse_map(TEXT, "m.yaml"))
    assert lines[0] == "toy.tflite on local: 3 segments, not measured"
    assert lines[1] == "segment 0: nodes 0-2 on cpu"


def test_explain_says_when_figures_are_simulated() -> None:
    board = BoardInfo(name="toy", simulated=True)
    assert explain_map(full_map().model_copy(update={"board": board}))[0].endswith(", SIMULATED")


def test_diff_of_equal_maps_is_empty() -> None:
    assert diff_maps(full_map(), full_map()) == []


def test_diff_names_what_moved_and_what_changed() -> None:
    first = full_map()
    result = first.result
    assert result is not None
    second = first.model_copy(
        update={
            "segments": (
                first.segments[0].model_copy(update={"nodes": tuple(range(40))}),
                first.segments[1].model_copy(update={"nodes": tuple(range(40, 97))}),
            ),
            "platforms": {
                "npu": first.platforms["npu"],
                "cpu": first.platforms["cpu"].model_copy(update={"options": {"threads": 1}}),
                "tpu": PlatformSpec(kind="edgetpu", loader="interpreter", library="libedgetpu.so.1"),
            },
            "result": result.model_copy(
                update={"p50_ms": 0.4, "ci95_ms": (0.39, 0.41), "numeric": AgreementInfo(snr_db=58.0)}
            ),
            "baselines": {"npu": 0.93, "cpu": 1.2, "gpu": "unsupported: CUSTOM is not supported"},
        }
    )
    assert diff_maps(first, second) == [
        "nodes 40-41: npu -> cpu",
        "platform gpu: only in the first",
        "platform tpu: only in the second",
        "platform cpu: options threads: 4 -> 1",
        "p50: 0.831235 ms -> 0.4 ms (2.08x as fast)",
        "numeric: snr_db: 61.2 -> 58",
        "numeric: cosine: 0.99999 -> absent",
        "numeric: max_abs: 0.00123 -> absent",
        "baseline cpu: 1.15 -> 1.2",
    ]


def test_diff_says_when_intervals_overlap_and_when_only_the_division_differs() -> None:
    first = full_map()
    assert first.result is not None
    slower = first.model_copy(update={"result": first.result.model_copy(update={"p50_ms": 0.84})})
    assert diff_maps(first, slower) == [
        "p50: 0.831235 ms -> 0.84 ms (1.01x the time, but the intervals overlap)"
    ]
    divided = parse_map(TEXT.replace("[6, 7]}", "[6]}\n- {id: 3, platform: cpu, nodes: [7]}"), "m.yaml")
    assert diff_maps(parse_map(TEXT, "m.yaml"), divided) == [
        "the same nodes on the same platforms, divided into other segments",
        "segments: 3 -> 4",
    ]
