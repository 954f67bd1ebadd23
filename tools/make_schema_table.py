#!/usr/bin/env python3
"""Write ``edgeplace/tflite/schema_table.py`` from the generated schema classes of the installed ai-edge-litert.

Run it when a new ai-edge-litert brings new schema fields (``tests/test_tflite_schema_table.py`` says so), and look at
the difference before committing:

    python tools/make_schema_table.py > edgeplace/tflite/schema_table.py
"""

from __future__ import annotations

import inspect
import re
import sys

from ai_edge_litert import schema_py_generated as generated

HEADER = '''"""The TFLite schema as data, written by ``tools/make_schema_table.py``; do not edit.

A line of ``TABLES`` is a table and its fields: ``slot:name:type=default``. A type is a scalar, ``string``, a table,
``[...]`` of those, or ``?U`` for a value of union ``U`` whose member number is in the slot before. A line of
``UNIONS`` is a union and its members, ``ENUMS`` holds the numbers of operators and tensor types.
"""

from __future__ import annotations
'''


def tables() -> dict[str, list[str]]:
    """Every table reachable from ``Model`` and its fields as text."""
    found: dict[str, list[str]] = {}
    waiting = ["Model"]
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            found[name] = _fields(name)
            for field in found[name]:
                kind = field.split(":")[2].partition("=")[0].strip("[]")
                if kind.startswith("?"):
                    waiting += unions()[kind[1:]].values()
                elif kind[0].isupper():
                    waiting.append(kind)
    return found


def unions() -> dict[str, dict[int, str]]:
    """Every union: member number -> table."""
    found = {}
    for name in sorted(re.findall(r"^def (\w+)Creator\(", inspect.getsource(generated), re.MULTILINE)):
        members = numbers(name)
        found[name] = {number: member for number, member in members.items() if member != "NONE"}
    return found


def numbers(enumeration: str) -> dict[int, str]:
    """Number -> name of a generated enumeration."""
    items = vars(getattr(generated, enumeration)).items()
    return {value: name for name, value in items if not name.startswith("_")}


def _fields(table: str) -> list[str]:
    creators = dict(
        re.findall(
            r"self\.(\w+) = (\w+)Creator\(", inspect.getsource(getattr(generated, f"{table}T")._UnPack)
        )
    )
    methods = vars(getattr(generated, table))
    fields = {}
    for name, method in methods.items():
        source = inspect.getsource(method) if inspect.isfunction(method) else ""
        slot = re.search(r"_tab\.Offset\((\d+)\)", source)
        if slot is None or re.sub(r"(AsNumpy|Length|IsNone)$", "", name) in methods.keys() - {name}:
            continue
        snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
        kind = _kind(source, creators.get(name[0].lower() + name[1:], ""))
        fields[(int(slot[1]) - 4) // 2] = f"{snake}:{kind}"
    return [f"{slot}:{text}" for slot, text in sorted(fields.items())]


def _kind(source: str, union: str) -> str:
    vector = "_tab.Vector(" in source
    scalar = re.search(r"number_types\.(\w+)Flags, ", source)
    table = re.search(r"obj = (\w+)\(\)", source)
    if union:
        return f"?{union}"
    if "_tab.String(" in source:
        kind = "string"
    elif table is not None:
        kind = table[1]
    elif scalar is not None:
        kind = scalar[1].lower()
        default = re.findall(r"return (\S+)$", source.strip(), re.MULTILINE)[-1]
        if not vector and default not in {"0", "0.0", "False"}:
            kind += f"={default}"
    else:
        raise SystemExit(f"cannot tell the type of a field from:\n{source}")
    return f"[{kind}]" if vector else kind


def _wrapped(words: list[str], width: int = 108) -> list[str]:
    """Words in lines; a line that goes on is indented."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append(" ")
        lines[-1] += f" {word}"
    return lines


def main() -> int:
    """Print the module."""
    print(HEADER)
    for title, rows in (
        ("TABLES", tables()),
        ("UNIONS", {u: [f"{n}:{m}" for n, m in sorted(ms.items())] for u, ms in unions().items()}),
        (
            "ENUMS",
            {
                e: [f"{n}:{m}" for n, m in sorted(numbers(e).items())]
                for e in ("BuiltinOperator", "TensorType")
            },
        ),
    ):
        print(f'{title} = """')
        for name, fields in rows.items():
            print("\n".join(_wrapped([name, *fields])))
        print('"""')
    return 0


if __name__ == "__main__":
    sys.exit(main())
