"""Pins, bans and support: what each unit may use, and what is said when it cannot be."""

from __future__ import annotations

import pytest

from edgeplace.errors import InputError, NoFeasiblePlacementError, UnknownNameError
from edgeplace.graph.build import build_graph
from edgeplace.graph.contract import contract
from edgeplace.graph.graph import UnitGraph
from edgeplace.placement.constraints import Rule, allowed_platforms, build_space, parse_rule
from edgeplace.testing.models import AUTHORED
from edgeplace.testing.toy import toy_unit_graph
from edgeplace.tflite.reader import Model

PLATFORMS = ("cpu", "npu", "gpu")


def everywhere(unit_graph: UnitGraph, *but: tuple[int, str]) -> dict[tuple[int, str], bool]:
    return {(unit.id, name): (unit.id, name) not in but for unit in unit_graph.units for name in PLATFORMS}


def pin(text: str) -> Rule:
    return parse_rule("pin", text)


def ban(text: str) -> Rule:
    return parse_rule("ban", text)


def test_without_rules_support_decides_in_the_order_of_the_profile() -> None:
    units = toy_unit_graph(3)
    support = everywhere(units, (1, "npu"), (2, "cpu"))
    assert allowed_platforms(units, PLATFORMS, support) == (PLATFORMS, ("cpu", "gpu"), ("npu", "gpu"))
    space = build_space(units, PLATFORMS, support)
    assert space.size == 3 * 2 * 2


def test_what_was_not_tried_is_not_supported() -> None:
    with pytest.raises(NoFeasiblePlacementError, match="gpu: not supported"):
        allowed_platforms(toy_unit_graph(1), PLATFORMS, {})


@pytest.mark.parametrize(
    ("text", "pinned"),
    [
        ("2=npu", [2]),
        ("1-2, 4=npu", [1, 2, 4]),
        ("DEPTHWISE*=npu", [1, 5]),
        ("depthwise*=npu", [1, 5]),
        ("t3=npu", [3]),
        ("t[03]=npu", [0, 3]),
        ("*=npu", [0, 1, 2, 3, 4, 5]),
        ("a=b*=npu", None),
    ],
)
def test_rules_find_nodes_by_id_type_and_name(text: str, pinned: list[int] | None) -> None:
    units = toy_unit_graph(6)
    if pinned is None:
        with pytest.raises(InputError, match="about no node"):
            allowed_platforms(units, PLATFORMS, everywhere(units), [pin(text)])
        return
    found = allowed_platforms(units, PLATFORMS, everywhere(units), [pin(text)])
    assert [unit for unit, names in enumerate(found) if names == ("npu",)] == pinned
    banned = allowed_platforms(units, PLATFORMS, everywhere(units), bans=[ban(text)])
    assert [unit for unit, names in enumerate(banned) if names == ("cpu", "gpu")] == pinned


def test_custom_operators_are_found_by_their_code() -> None:
    graph = build_graph(Model.from_bytes(AUTHORED["unknown_custom_op"]()))
    units = contract(graph, "op")
    code = next(node.custom_code for node in graph.nodes if node.custom_code)
    found = allowed_platforms(units, PLATFORMS, everywhere(units), [pin(f"{code[:6]}*=gpu")])
    assert sum(names == ("gpu",) for names in found) == 1


def test_a_rule_about_a_node_is_about_its_unit() -> None:
    graph = build_graph(Model.from_bytes(AUTHORED["resource_variables"]()))
    units = contract(graph, "op")
    found = allowed_platforms(units, PLATFORMS, everywhere(units), [pin("CALL_ONCE=cpu")])
    bonded = next(unit for unit in units.units if len(unit.nodes) > 1)
    assert found[bonded.id] == ("cpu",)


@pytest.mark.parametrize("text", ["npu", "=npu", "3=", "", "  =  "])
def test_a_rule_has_two_sides(text: str) -> None:
    with pytest.raises(InputError, match="NODES=PLATFORM") as caught:
        pin(text)
    assert "--pin 'DEPTHWISE*=npu'" in caught.value.hint


def test_a_range_goes_forwards() -> None:
    with pytest.raises(InputError, match="range 7-3 goes backwards"):
        pin("7-3=npu")


def test_an_unknown_platform_gets_the_nearest_name() -> None:
    units = toy_unit_graph(2)
    with pytest.raises(UnknownNameError, match="no platform 'nup'") as caught:
        allowed_platforms(units, PLATFORMS, everywhere(units), [pin("0=nup")])
    assert caught.value.hint == "did you mean 'npu'?"


@pytest.mark.parametrize(
    ("text", "hint"), [("99=npu", "operators are 0 to 3"), ("DEPTWISE_CONV_2D=npu", "'DEPTHWISE_CONV_2D'")]
)
def test_a_rule_about_nothing_is_refused(text: str, hint: str) -> None:
    units = toy_unit_graph(4)
    with pytest.raises(InputError, match="about no node") as caught:
        allowed_platforms(units, PLATFORMS, everywhere(units), [pin(text)])
    assert hint in caught.value.hint


def test_a_rule_about_copied_constants_says_so() -> None:
    units = contract(build_graph(Model.from_bytes(AUTHORED["fp16_weights"]())), "op")
    with pytest.raises(InputError, match="about no node") as caught:
        allowed_platforms(units, PLATFORMS, everywhere(units), [pin("DEQUANTIZE=npu")])
    assert "go along with whoever reads them" in caught.value.hint


def test_contradictory_pins_are_both_named() -> None:
    units = toy_unit_graph(4)
    with pytest.raises(InputError) as caught:
        allowed_platforms(units, PLATFORMS, everywhere(units), [pin("0-2=npu"), pin("CONV_2D=cpu")])
    message = caught.value.message
    assert "--pin '0-2=npu'" in message
    assert "--pin 'CONV_2D=cpu'" in message
    assert "unit 0" in message


def test_a_pin_and_a_ban_may_contradict() -> None:
    units = toy_unit_graph(4)
    with pytest.raises(InputError, match=r"--pin '1=npu' contradicts --ban 'DEPTH\*=npu'.*unit 1"):
        allowed_platforms(units, PLATFORMS, everywhere(units), [pin("1=npu")], [ban("DEPTH*=npu")])
    # A ban of another platform is no contradiction, and the same pin twice is one pin.
    found = allowed_platforms(
        units, PLATFORMS, everywhere(units), [pin("1=npu"), pin("1-1=npu")], [ban("1=cpu")]
    )
    assert found[1] == ("npu",)


def test_bans_may_not_take_everything() -> None:
    units = toy_unit_graph(2)
    support = everywhere(units, (1, "gpu"))
    with pytest.raises(InputError, match="leave no platform for unit 1") as caught:
        allowed_platforms(units, PLATFORMS, support, bans=[ban("1=cpu"), ban("1=npu")])
    assert "cpu, npu" in caught.value.hint


def test_a_pin_to_a_platform_that_does_not_run_it_says_why() -> None:
    units = toy_unit_graph(3)
    with pytest.raises(InputError, match=r"npu does not run unit 2 .*: npu: no ADD here") as caught:
        allowed_platforms(
            units,
            PLATFORMS,
            everywhere(units, (2, "npu")),
            [pin("2=npu")],
            reasons={(2, "npu"): "no ADD here"},
        )
    assert caught.value.hint == "it runs on cpu, gpu"


def test_a_unit_that_nothing_runs_is_named_with_every_reason() -> None:
    units = toy_unit_graph(2)
    support = everywhere(units, *[(1, name) for name in PLATFORMS])
    reasons = {(1, "cpu"): "crashed(11)", (1, "npu"): "unsupported"}
    with pytest.raises(NoFeasiblePlacementError) as caught:
        build_space(units, PLATFORMS, support, reasons=reasons)
    message = caught.value.message
    assert "unit 1 't1' (nodes 1: DEPTHWISE_CONV_2D)" in message
    assert "cpu: crashed(11); npu: unsupported; gpu: not supported" in message
    assert caught.value.hint
