"""Metrics of the user's own: loading, calling, and every way they can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeplace.errors import InputError
from edgeplace.measure.metric import load_metric

OUTPUTS = [{"scores": np.array([0.1, 0.9])}, {"scores": np.array([0.8, 0.2])}]

SOURCE = """
import numpy as np

def top1(outputs, labels):
    return sum(int(out["scores"].argmax()) == label for out, label in zip(outputs, labels)) / len(labels)

def unlabelled(outputs, labels):
    return -1 if labels is None else 0

class Scores:
    @staticmethod
    def best(outputs, labels):
        return np.float32(outputs[0]["scores"].max())

def in_an_array(outputs, labels):
    return np.array(0.5)

def broken(outputs, labels):
    return helper(outputs)

def helper(outputs):
    return outputs[0]["logits"]

def leaves(outputs, labels):
    raise SystemExit(3)

def nothing(outputs, labels): pass
def text(outputs, labels): return "0.9"
def flag(outputs, labels): return True
def nan(outputs, labels): return float("nan")
def vector(outputs, labels): return np.ones(2)

constant = 0.5
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of the user's in the current folder, new for each test."""
    name = "metric_of_a_user"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield name
    sys.modules.pop(name, None)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), start=1) if text in line)


def test_metric_is_called_with_outputs_by_name_and_labels(module: str) -> None:
    metric = load_metric(f"{module}:top1")
    assert metric.name == f"{module}:top1"
    assert metric(OUTPUTS, [1, 1]) == 0.5


@pytest.mark.parametrize(
    ("function", "value"), [("unlabelled", -1.0), ("Scores.best", np.float32(0.9)), ("in_an_array", 0.5)]
)
def test_any_real_number_is_a_metric(module: str, function: str, value: float) -> None:
    found = load_metric(f"{module}:{function}")(OUTPUTS)
    assert type(found) is float
    assert found == pytest.approx(value)


def test_metric_by_path(module: str, tmp_path: Path) -> None:
    assert load_metric(f"{tmp_path / module}.py:top1")(OUTPUTS, [1, 0]) == 1


def test_import_path_is_left_as_it_was(module: str) -> None:
    before = list(sys.path)
    load_metric(f"{module}:top1")
    assert sys.path == before


@pytest.mark.parametrize("spec", ["", "top1", ":top1", "module:", ":"])
def test_spec_without_module_or_function(spec: str) -> None:
    with pytest.raises(InputError, match="names no metric") as caught:
        load_metric(spec)
    assert "module:function" in caught.value.hint


def test_module_that_is_not_there() -> None:
    with pytest.raises(InputError, match="there is no module 'no_such_metric'") as caught:
        load_metric("no_such_metric:top1")
    assert "path/to/file.py:function" in caught.value.hint
    with pytest.raises(InputError, match="no such file"):
        load_metric("no/such.py:top1")


def test_function_that_is_not_there(module: str) -> None:
    with pytest.raises(InputError, match="no function named 'top_1'") as caught:
        load_metric(f"{module}:top_1")
    assert caught.value.hint == "did you mean 'top1'?"
    assert caught.value.where.endswith(f"{module}.py")


def test_thing_that_is_no_function(module: str) -> None:
    with pytest.raises(InputError, match="'constant' is a float, not a function"):
        load_metric(f"{module}:constant")


@pytest.mark.parametrize(
    ("source", "message", "line"),
    [
        ("x = 1\nimport not_installed_anywhere\n", "No module named 'not_installed_anywhere'", 2),
        ("x = 1\n\n1 / 0\n", "ZeroDivisionError: division by zero", 3),
        ("x = 1\ndef f(:\n", "SyntaxError", 2),
        ("raise SystemExit('bye')\n", "SystemExit: bye", 1),
    ],
)
@pytest.mark.parametrize("by_path", [False, True])
def test_module_that_fails_to_import_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str, line: int, by_path: bool
) -> None:
    path = tmp_path / "failing_metric.py"
    path.write_text(source)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        load_metric(f"{path}:f" if by_path else "failing_metric:f")
    assert message in str(caught.value)
    assert caught.value.where == f"{path}:{line}"


def test_exception_in_the_users_code_says_where(module: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"failed: KeyError: 'logits'") as caught:
        load_metric(f"{module}:broken")(OUTPUTS)
    assert caught.value.where == f"{tmp_path / module}.py:{line_of('logits')}"
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(InputError, match="SystemExit: 3"):
        load_metric(f"{module}:leaves")(OUTPUTS)


@pytest.mark.parametrize("function", ["nothing", "text", "flag", "nan", "vector"])
def test_what_is_no_finite_number_is_refused(module: str, function: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a finite number") as caught:
        load_metric(f"{module}:{function}")(OUTPUTS)
    assert caught.value.where == f"{tmp_path / module}.py:{line_of(f'def {function}')}"


def test_a_metric_that_wants_labels_is_told_that_there_are_none(module: str) -> None:
    with pytest.raises(InputError) as caught:
        load_metric(f"{module}:top1")(OUTPUTS, None)
    assert "labels is None" in caught.value.hint
    assert "labels.csv" in caught.value.hint


def test_only_functions_are_proposed(module: str) -> None:
    with pytest.raises(InputError) as caught:
        load_metric(f"{module}:nq")
    assert "did you mean" not in caught.value.hint
