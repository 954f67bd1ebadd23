"""Plain facts as tables for a terminal. The same facts, unchanged, are what ``--json`` prints.

Every function takes a JSON-able dict (or list) that a run of ``controller`` gives, and gives renderables in the order
they are to be printed. Names come from models and boards: they are shown as they are, never read as markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from edgeplace.delegate_map import BEYOND_LIMIT
from edgeplace.printable import printable
from edgeplace.report.words import (
    NOTHING,
    agreement_text,
    bytes_text,
    count_text,
    counted,
    interval_text,
    is_beyond_limit,
    ms_text,
    ratio_text,
    shape_text,
    short_text,
)
from edgeplace.schema import node_ranges

Facts = Mapping[str, Any]


def optimize_tables(outcome: Facts) -> list[RenderableType]:
    """The end of a search: every single platform, the runtime's default, the fastest found; the chosen placement.

    Args:
        outcome: ``map_file``, ``map`` (a delegate map as plain data) and ``rows``, each with ``name``, ``kind``,
            ``chosen``, ``p50_ms``, ``ci95_ms``, ``speedup``, ``agreement``, ``segments``, ``transfers``,
            ``failure`` and ``wrong``.
    """
    delegate_map, rows = outcome["map"], outcome["rows"]
    table = _table(
        "", "!placement", ">ms", ">95 % interval", ">speed-up", "outputs", ">segments", ">transfers"
    )
    for row in rows:
        outputs = "wrong" if row.get("wrong") else agreement_text(row.get("agreement"))
        cells = [
            ">" if row["chosen"] else "",
            row["name"],
            ms_text(row["p50_ms"]),
            interval_text(row["ci95_ms"] if row["p50_ms"] is not None else None),
            ratio_text(row["speedup"]),
            outputs if row["p50_ms"] is not None else NOTHING,
            _number(row["segments"]),
            _number(row["transfers"]),
        ]
        _add(table, cells, style="bold" if row["chosen"] else "")
    notes = [
        f"{row['name']}: {row.get('failure') or row['wrong']}"
        for row in rows
        if row.get("failure") or row.get("wrong")
    ]
    limit = (delegate_map.get("result") or {}).get("limit")
    notes += [
        f"{row['name']}: outputs {BEYOND_LIMIT}"
        for row in rows
        if row["p50_ms"] is not None and not row.get("wrong") and is_beyond_limit(row.get("agreement"), limit)
    ]
    left_out = delegate_map.get("platforms_left_out", {})
    notes += [f"{name}: not there: {reason}" for name, reason in left_out.items()]
    return [
        _line(_map_headline(delegate_map), "bold"),
        table,
        *_lines(notes),
        _line(""),
        _segments_table(delegate_map["segments"]),
        *_decision(delegate_map),
        _line(f"map: {outcome['map_file']}"),
    ]


def map_tables(facts: Facts) -> list[RenderableType]:
    """A delegate map: what it is of, its segments, what it was compared with, what was left out.

    Args:
        facts: ``map_file`` and ``map`` (a delegate map as plain data).
    """
    delegate_map = facts["map"]
    parts: list[RenderableType] = [
        _line(_map_headline(delegate_map), "bold"),
        _segments_table(delegate_map["segments"]),
        *_decision(delegate_map),
    ]
    baselines = delegate_map.get("baselines", {})
    if baselines:
        table = _table("compared with", ">ms", "why not")
        for name, value in baselines.items():
            measured = not isinstance(value, str)
            _add(table, [name, ms_text(value) if measured else NOTHING, "" if measured else value])
        parts += [_line(""), table]
    left_out = delegate_map.get("platforms_left_out", {})
    return parts + _lines([f"left out: {name}: {reason}" for name, reason in left_out.items()])


def verify_tables(outcome: Facts) -> list[RenderableType]:
    """Does a map hold? Each check, and the times now beside those in the map.

    Args:
        outcome: ``map_file``, ``holds``, ``checks`` (``name``, ``holds``, ``said``, ``found``), ``rows`` (``name``,
            ``p50_ms``, ``ci95_ms``, ``said_ms``) and ``board_changes``.
    """
    checks = _table("", "check", "the map says", "found")
    for check in outcome["checks"]:
        mark = "ok" if check["holds"] else "NO"
        _add(
            checks,
            [mark, check["name"], check["said"], check["found"]],
            style="" if check["holds"] else "bold red",
        )
    times = _table("placement", ">ms now", ">95 % interval", ">ms in the map")
    for row in outcome["rows"]:
        said = row["said_ms"]
        _add(
            times,
            [
                row["name"],
                ms_text(row["p50_ms"]),
                interval_text(row["ci95_ms"]),
                said if isinstance(said, str) else ms_text(said),
            ],
        )
    changes = [f"the board has changed: {change}" for change in outcome["board_changes"]]
    verdict = "holds" if outcome["holds"] else "DOES NOT HOLD"
    return [checks, times, *_lines(changes), _line(f"{outcome['map_file']}: {verdict}", "bold")]


def platform_tables(facts: Facts) -> list[RenderableType]:
    """The platforms of a board: there or not, and why not.

    Args:
        facts: ``board``, ``address``, ``fingerprint`` and ``platforms`` (``name``, ``kind``, ``available``, ``reason``,
            ``verified``, ``details``).
    """
    table = _table("platform", "kind", "there", "what it is, or why not")
    for platform in facts["platforms"]:
        details = platform.get("details") or {}
        what = platform["reason"] or str(details.get("ran_on") or "")
        if not platform.get("verified", True):
            what += f"{'; ' if what else ''}never run on the real hardware"
        _add(table, [platform["name"], platform["kind"], "yes" if platform["available"] else "no", what])
    known = ", ".join(f"{key} {value}" for key, value in facts["fingerprint"].items())
    return [_line(f"{facts['board']} ({facts['address']}): {known}"), table]


def boards_tables(boards: Sequence[Facts]) -> list[RenderableType]:
    """The board profiles that can be named.

    Args:
        boards: ``name``, ``title``, ``address``, ``platforms`` (names), ``file`` and ``problem`` of each.
    """
    table = _table("board", "title", "address", "platforms")
    for board in boards:
        if not board["problem"]:
            address = board["address"] or "to be extended"
            _add(table, [board["name"], board["title"], address, ", ".join(board["platforms"])])
    return [table, *_lines([f"{board['name']}: {board['problem']}" for board in boards if board["problem"]])]


def inspect_tables(facts: Facts) -> list[RenderableType]:
    """A model: operators, units, cost, and what may not be separated and why.

    Args:
        facts: What ``graph.inspect.inspect_model`` gives. Single tensors are in ``--json`` only.
    """
    return [
        *_model_lines(facts),
        _line(""),
        _operators_table(facts),
        _line(""),
        *_bond_lines(facts),
        *(part for name, units in facts["units"].items() for part in _unit_parts(name, units)),
    ]


def _model_lines(facts: Facts) -> list[RenderableType]:
    model, entry, totals = facts["model"], facts["entry"], facts["totals"]
    signature = f"signature {entry['signature']}" if entry["signature"] else f"subgraph {entry['subgraph']}"
    lines = [
        f"{model['name']}: {bytes_text(model['size_bytes'])}, {signature} of {model['subgraphs']}, "
        f"{counted(totals['operators'], 'operator')}, {count_text(totals['macs'])} MACs, "
        f"{bytes_text(totals['constant_bytes'])} of constants, {bytes_text(totals['activation_bytes'])} of activations",
        f"sha256 {model['sha256']}",
    ]
    for side in ("inputs", "outputs"):
        lines += [
            f"{side[:-1]} {port['name']}: {port['type']} {shape_text(port['shape_signature'])}"
            for port in entry[side]
        ]
    if model["signatures"]:
        lines.append(f"signatures (--signature): {', '.join(model['signatures'])}")
    return _lines(lines)


def _operators_table(facts: Facts) -> Table:
    table = _table(">op", "type", "makes", ">MACs", ">weights", ">activations", "note")
    copied = set(facts["copied"])
    for operator in facts["operators"]:
        kind = f"{operator['type']} {operator['custom_code']}".strip()
        _add(
            table,
            [
                str(operator["id"]),
                kind,
                short_text(operator["name"]),
                count_text(operator["macs"]) if operator["macs"] else NOTHING,
                bytes_text(operator["weight_bytes"]) if operator["weight_bytes"] else NOTHING,
                bytes_text(operator["activation_bytes"]),
                "goes with its readers" if operator["id"] in copied else "",
            ],
        )
    return table


def _bond_lines(facts: Facts) -> list[RenderableType]:
    lines = [
        f"operators {group['text']} stay together: {'; '.join(group['reasons'])}"
        for group in facts["inseparable"]
    ]
    return _lines(lines or ["nothing has to stay together"])


def _unit_parts(granularity: str, units: Sequence[Facts]) -> list[RenderableType]:
    table = _table(">unit", "ops", "name", ">MACs", ">weights", ">in", ">out", "after")
    for unit in units:
        _add(
            table,
            [
                str(unit["id"]),
                _ids(unit["nodes"]),
                short_text(unit["name"]),
                count_text(unit["macs"]) if unit["macs"] else NOTHING,
                bytes_text(unit["weight_bytes"]),
                bytes_text(unit["input_bytes"]),
                bytes_text(unit["output_bytes"]),
                _ids(unit["predecessors"]),
            ],
        )
    return [_line(""), _line(f"{counted(len(units), 'unit')} (granularity {granularity})", "bold"), table]


def _map_headline(delegate_map: Facts) -> str:
    board = delegate_map["board"]
    headline = f"{delegate_map['model']['file']} on {board['name']}"
    if board["simulated"]:
        headline += " (SIMULATED)"
    result = delegate_map.get("result")
    if result is None:
        return f"{headline}: not measured"
    noisy = ", noisy" if result.get("noisy") else ""
    gain = result.get("speedup_over_best_single")
    faster = f", {gain:.2f}x as fast as the best single platform" if gain is not None and gain != 1 else ""
    return f"{headline}: {ms_text(result['p50_ms'])} ms{faster}{noisy}"


def _segments_table(segments: Sequence[Facts]) -> Table:
    table = _table(">segment", "platform", "nodes", ">ms", "ran on")
    for segment in segments:
        nodes = segment["nodes"]
        _add(
            table,
            [
                str(segment["id"]),
                segment["platform"],
                ", ".join(str(part) for part in nodes),
                ms_text(segment.get("p50_ms")),
                segment.get("ran_on", ""),
            ],
        )
    return table


def _decision(delegate_map: Facts) -> list[RenderableType]:
    result, search = delegate_map.get("result"), delegate_map.get("search")
    lines = []
    if result is not None:
        lines.append(f"decision: {result['decision']}")
        against = (
            f" (against {result['reference']}, on {result['inputs']})" if result.get("reference") else ""
        )
        lines.append(f"outputs: {agreement_text(result.get('numeric'))}{against}")
    if search is not None:
        lines.append(
            f"search: {search['method']}, {search['measured']} of {search['placements']} placements measured, "
            f"{search['failed']} failed; threshold {search['threshold']}"
        )
    return _lines(lines)


def _table(*columns: str) -> Table:
    """A plain table; a column whose title begins with ``>`` is right-aligned (numbers), with ``!`` never broken."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in columns:
        table.add_column(
            Text(title.lstrip(">!")),
            justify="right" if title.startswith(">") else "left",
            no_wrap=title.startswith((">", "!")),
            overflow="fold",
        )
    return table


def _add(table: Table, cells: Sequence[str], style: str = "") -> None:
    table.add_row(*(Text(printable(cell)) for cell in cells), style=style)


def _line(text: str, style: str = "") -> Text:
    return Text(printable(text), style=style)


def _lines(texts: Sequence[str]) -> list[RenderableType]:
    return [_line(text) for text in texts]


def _number(value: int | None) -> str:
    return NOTHING if value is None else str(value)


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(str(part) for part in node_ranges(sorted(ids))) or NOTHING
