"""The schema as data knows everything the installed runtime's generated classes know, in the same places."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from edgeplace.errors import ModelError
from edgeplace.testing.models import AUTHORED
from edgeplace.tflite import schema_table
from edgeplace.tflite.decoder import decode
from edgeplace.tflite.encoder import Encoder
from edgeplace.tflite.schema import fb
from edgeplace.tflite.schema_types import TABLE_TYPES, UNION_MEMBERS, Field, Table, new_table
from edgeplace.tflite.segment_file import ConstantRef, splice

HINT = "run tools/make_schema_table.py and look at what is new"


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    path = Path(__file__).parent.parent / "tools" / "make_schema_table.py"
    spec = importlib.util.spec_from_file_location("make_schema_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _words(text: str) -> dict[str, set[str]]:
    rows: dict[str, set[str]] = {}
    first = ""
    for line in text.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            first = words.pop(0)
        rows.setdefault(first, set()).update(words)
    return rows


def test_tables_of_the_installed_schema_are_known(maker: ModuleType) -> None:
    known = _words(schema_table.TABLES)
    for table, fields in maker.tables().items():
        assert set(fields) <= known[table], f"{table}: {HINT}"


def test_unions_and_enums_of_the_installed_schema_are_known(maker: ModuleType) -> None:
    known = _words(schema_table.UNIONS) | _words(schema_table.ENUMS)
    for name, members in maker.unions().items():
        assert {f"{number}:{member}" for number, member in members.items()} <= known[name], HINT
    for name in ("BuiltinOperator", "TensorType"):
        assert {f"{n}:{m}" for n, m in maker.numbers(name).items()} <= known[name], HINT


def test_every_reference_leads_to_a_known_table() -> None:
    for table in TABLE_TYPES.values():
        for field in table.fields.values():
            if field.kind in ("table", "tables"):
                assert field.target in TABLE_TYPES
            elif field.kind == "union":
                assert set(UNION_MEMBERS[field.target].values()) <= set(TABLE_TYPES)
                type_field = table.fields[f"{field.name}_type"]
                assert type_field.slot == field.slot - 1


@pytest.mark.parametrize("name", ["BuiltinOptions", "BuiltinOptions2"])
def test_every_options_table_goes_through_writer_and_generated_reader(name: str) -> None:
    """Each field of each options table, written by our encoder, read by the generated classes and by our decoder."""
    union = {"BuiltinOptions": "builtin_options", "BuiltinOptions2": "builtin_options2"}[name]
    for number, member in UNION_MEMBERS[name].items():
        options = new_table(member, **{f.name: _sample(f) for f in TABLE_TYPES[member].fields.values()})
        operator = new_table("Operator", opcode_index=3, **{f"{union}_type": number, union: options})
        content = _file(
            new_table("Model", version=3, subgraphs=[new_table("SubGraph", operators=[operator])])
        )
        generated = fb.ModelT.InitFromPackedBuf(content).subgraphs[0].operators[0]
        assert generated.opcodeIndex == 3
        theirs = generated.builtinOptions if name == "BuiltinOptions" else generated.builtinOptions2
        assert type(theirs).__name__ == f"{member}T"
        ours = decode(memoryview(content), "Model", "m")["subgraphs"][0]["operators"][0][union]
        for field in options.type.fields.values():
            camel = field.name.title().replace("_", "")
            attribute = next(a for a in vars(theirs) if a.lower() == camel.lower())
            assert (
                _plain(getattr(theirs, attribute)) == _plain(options[field.name]) == _plain(ours[field.name])
            )


def _sample(field: Field) -> Any:
    if field.kind == "scalar":
        return {"?": True, "f": 1.5}.get(field.code, field.slot + 1)
    if field.kind == "string":
        return f"text {field.slot}"
    if field.kind == "tables" or field.kind == "table":
        raise AssertionError("no options table holds tables so far")
    return b"\x01\x02\x03" if field.code == "B" else [1, 0, 1]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes) and value.startswith(b"text"):
        return value.decode()
    if isinstance(value, (np.ndarray, memoryview, bytes, list)):
        return [int(item) for item in value]
    return value


def _file(root: Table) -> bytes:
    encoder = Encoder(root)
    refs = tuple(ConstantRef(str(offset), offset, len(view)) for offset, view in encoder.constants)
    data = {str(offset): view for offset, view in encoder.constants}
    content = b"".join(splice(memoryview(bytes(encoder.skeleton)), refs, data))
    assert len(content) == encoder.size_bytes
    return content


@pytest.mark.parametrize("name", AUTHORED)
def test_encoding_what_was_decoded_keeps_every_field(name: str) -> None:
    content = AUTHORED[name]()
    first = decode(memoryview(content), "Model", name)
    second = decode(memoryview(_file(first)), "Model", name)
    _assert_equal(first, second)


def _assert_equal(a: Any, b: Any) -> None:
    if isinstance(a, Table):
        present = [{n for n, v in t.values.items() if v is not None} for t in (a, b)]
        assert present[0] == present[1]
        for field in present[0]:
            _assert_equal(a.values[field], b.values[field])
    elif isinstance(a, list):
        for left, right in zip(a, b, strict=True):
            _assert_equal(left, right)
    elif isinstance(a, (np.ndarray, memoryview)):
        assert bytes(a) == bytes(b)
    else:
        assert a == b


def test_what_is_shared_is_written_once() -> None:
    quantization = new_table("QuantizationParameters", scale=np.array([0.5], np.float32))
    tensors = [new_table("Tensor", name="same", quantization=quantization) for _ in range(100)]
    root = new_table("Model", version=3, subgraphs=[new_table("SubGraph", tensors=tensors)])
    content = _file(root)
    assert content.count(b"same\0") == 1
    assert content.count(struct.pack("<f", 0.5)) == 1
    again = decode(memoryview(content), "Model", "m")["subgraphs"][0]["tensors"]
    assert all(tensor["quantization"] is again[0]["quantization"] for tensor in again)


def test_unknown_field_name_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        new_table("Tensor")["shapes"]


def test_names_that_are_not_utf8_are_shown_escaped() -> None:
    content = bytearray(_file(new_table("Model", version=3, description="caf_")))
    content[content.index(b"caf_") + 3] = 0xE9
    assert decode(memoryview(bytes(content)), "Model", "m")["description"] == "caf\\xe9"


def test_a_string_longer_than_the_file_is_refused() -> None:
    content = bytearray(_file(new_table("Model", version=3, description="word")))
    place = content.index(b"word") - 4
    struct.pack_into("<I", content, place, 1000)
    with pytest.raises(ModelError, match=r"Model\.description says it has 1000 elements"):
        decode(memoryview(bytes(content)), "Model", "m")
