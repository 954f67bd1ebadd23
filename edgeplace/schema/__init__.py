"""YAML text <-> frozen models: the only door for files that people write, and the only importer of yaml and pydantic.

Past this package nobody handles a raw mapping. Every error names file and line, an unknown key gets the nearest right
one, and all problems of a file are told together.
"""

from edgeplace.schema.document import Document, Problem, read_document, read_text
from edgeplace.schema.model import (
    MAX_NODE_ID,
    Field,
    FrozenModel,
    NodeRanges,
    Scalar,
    ShortFloat,
    TimeMs,
    dump_model,
    field_validator,
    json_schema,
    load_model,
    merge_values,
    model_validator,
    node_ranges,
    parse_model,
    raise_problems,
    validate_document,
    validate_value,
)
from edgeplace.schema.writer import dump_value

__all__ = [
    "MAX_NODE_ID",
    "Document",
    "Field",
    "FrozenModel",
    "NodeRanges",
    "Problem",
    "Scalar",
    "ShortFloat",
    "TimeMs",
    "dump_model",
    "dump_value",
    "field_validator",
    "json_schema",
    "load_model",
    "merge_values",
    "model_validator",
    "node_ranges",
    "parse_model",
    "raise_problems",
    "read_document",
    "read_text",
    "validate_document",
    "validate_value",
]
