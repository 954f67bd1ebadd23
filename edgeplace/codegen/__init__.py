"""Deployment code from a delegate map: pure functions from the map to file texts."""

from edgeplace.codegen.base import CodegenTarget, Content, Deployment, write_files
from edgeplace.codegen.python import PythonTarget

__all__ = ["CodegenTarget", "Content", "Deployment", "PythonTarget", "write_files"]
