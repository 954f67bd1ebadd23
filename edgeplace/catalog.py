"""The one page that lists everything EdgePlace offers by name.

Add a part: write the class, add it here, write its tests (the contract tests pick it up from here).
"""

from __future__ import annotations

from edgeplace.codegen.base import CodegenTarget
from edgeplace.codegen.python import PythonTarget
from edgeplace.optimizers.base import Optimizer
from edgeplace.optimizers.exhaustive import Exhaustive
from edgeplace.optimizers.random_search import RandomSearch
from edgeplace.optimizers.rules import Rules
from edgeplace.optimizers.surrogate import Surrogate
from edgeplace.registry import Registry

OPTIMIZERS: Registry[type[Optimizer]] = Registry("optimizer", [Exhaustive, Surrogate, Rules, RandomSearch])

CODEGEN_TARGETS: Registry[type[CodegenTarget]] = Registry("codegen target", [PythonTarget])
