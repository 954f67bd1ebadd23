"""The contract of a codegen target: from a delegate map to file texts, without touching disk, clock or network.

To add one: subclass :class:`CodegenTarget` in a file of its own, add it to ``catalog.CODEGEN_TARGETS``, and add its
golden files under ``tests/golden``.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from edgeplace.atomic import folder_atomic
from edgeplace.delegate_map import DelegateMap
from edgeplace.graph.graph import Graph
from edgeplace.placement.plan import Plan
from edgeplace.tflite.segment_file import SegmentFile

if TYPE_CHECKING:
    import jinja2

Content = str | bytes | SegmentFile
"""What a file holds: text, bytes, or a segment whose constants are still views of the model."""


@dataclass(frozen=True)
class Deployment:
    """Everything a target needs. ``plan`` is the map's (``plan_from_map``), ``files`` are its segments' files.

    Attributes:
        constants: Data of the tensors that the plan takes from the model itself (sources of kind ``constant``).
    """

    delegate_map: DelegateMap
    plan: Plan
    graph: Graph
    files: Sequence[SegmentFile]
    constants: Mapping[int, npt.NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sources = [*self.plan.outputs, *(source for s in self.plan.segments for source in s.sources)]
        missing = {s.index for s in sources if s.kind == "constant"} - self.constants.keys()
        if missing:
            raise ValueError(f"no data of the constant tensors {sorted(missing)}")


class CodegenTarget(abc.ABC):
    """Makes deployment code. A pure function: the same deployment always gives the same files."""

    name: ClassVar[str]

    @abc.abstractmethod
    def generate(self, deployment: Deployment) -> dict[str, Content]:
        """The files by path (``/`` between folders), relative to the folder they go to.

        Raises:
            InputError: The map uses something that this target cannot express.
        """


def write_files(files: Mapping[str, Content], folder: Path) -> None:
    """Write generated files; ``folder`` appears whole or stays as it was.

    Raises:
        OutputError: It could not be written.
    """
    with folder_atomic(folder) as scratch:
        for name, content in files.items():
            path = scratch / PurePosixPath(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.writelines(_pieces(content))


def _pieces(content: Content) -> Iterable[bytes | memoryview]:
    if isinstance(content, SegmentFile):
        return content.pieces()
    return [content.encode() if isinstance(content, str) else content]


def templates() -> jinja2.Environment:
    """The templates of all targets. A name that a template misspells is an error, never an empty text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("edgeplace.codegen", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # these are programs; foreign text goes through `literal` or `plain`
    )
    environment.filters["literal"] = python_literal
    environment.filters["plain"] = plain_text
    return environment


def python_literal(value: object) -> str:
    """A Python expression of a plain value in ASCII, quoted as formatters do; safe for any text."""
    if isinstance(value, str):
        body = value.encode("unicode_escape").decode("ascii")
        if '"' in body and "'" not in body:
            return f"'{body}'"
        return '"' + body.replace('"', '\\"') + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{python_literal(k)}: {python_literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(python_literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (bool, int, float, np.integer)):
        return repr(value)
    raise TypeError(f"{type(value).__name__} has no literal")


def plain_text(value: object) -> str:
    """Foreign text inside a comment or docstring: one line that cannot end it."""
    text = str(value).replace("\\", "/").replace('"', "'")
    return "".join(character if character.isprintable() else " " for character in text)
