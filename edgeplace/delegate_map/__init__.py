"""Delegate maps: the answer of a search as a file that people read, edit, compare and verify."""

from edgeplace.delegate_map.check import placement_of, plan_from_map, validate_map
from edgeplace.delegate_map.compare import BEYOND_LIMIT, beyond_limit, describe_agreement, diff_maps
from edgeplace.delegate_map.explain import explain_map
from edgeplace.delegate_map.files import (
    dump_map,
    load_map,
    parse_map,
    save_map,
    spanning_nodes,
    with_segment_files,
)
from edgeplace.delegate_map.model import (
    MAP_FORMAT,
    AgreementInfo,
    BoardInfo,
    DelegateMap,
    MapSegment,
    ModelInfo,
    Objective,
    Rejection,
    Result,
    SearchInfo,
)

__all__ = [
    "BEYOND_LIMIT",
    "MAP_FORMAT",
    "AgreementInfo",
    "BoardInfo",
    "DelegateMap",
    "MapSegment",
    "ModelInfo",
    "Objective",
    "Rejection",
    "Result",
    "SearchInfo",
    "beyond_limit",
    "describe_agreement",
    "diff_maps",
    "dump_map",
    "explain_map",
    "load_map",
    "parse_map",
    "placement_of",
    "plan_from_map",
    "save_map",
    "spanning_nodes",
    "validate_map",
    "with_segment_files",
]
