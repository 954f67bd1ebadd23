"""What must be in place before a platform's libraries are loaded: variables, preloaded libraries, a Vulkan driver.

A process can do this once: drivers read their environment when they are first loaded. Platforms that want different
values of one variable therefore need different workers.
"""

from __future__ import annotations

import ctypes
import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import struct
from typing import Any, Optional

LOG = logging.getLogger(__name__)

RUNTIME_PACKAGES = ("ai-edge-litert", "tflite-runtime", "openvino", "numpy")

_VULKAN_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
_SWIFTSHADER_GLOBS = (
    "/usr/lib/chromium/vk_swiftshader_icd.json",
    "/usr/lib/chromium-browser/vk_swiftshader_icd.json",
    "/usr/lib*/chromium*/vk_swiftshader_icd.json",
    "/opt/google/chrome*/vk_swiftshader_icd.json",
    "/snap/chromium/current/usr/lib/chromium-browser/vk_swiftshader_icd.json",
)
_OPENVINO_PLUGIN = "vendors/intel_openvino/dispatch/libLiteRtDispatch_IntelOpenvino.so"

_applied: set[str] = set()
_loaded: dict[str, ctypes.CDLL] = {}


def runtime_versions() -> dict[str, str]:
    """Versions of the installed runtimes, by package name. Imports none of them."""
    versions: dict[str, str] = {}
    for name in RUNTIME_PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def apply_environment(platform: dict[str, Any]) -> None:
    """Set the platform's variables and load its ``preload`` libraries, once per process and platform.

    A GPU platform that names no Vulkan driver gets the system's when the machine has a GPU, else a software one
    (SwiftShader) when there is one. An NPU platform gets OpenVINO's libraries loaded when the vendor plug-in wants
    them and could not find them itself.
    """
    key = json.dumps(
        [platform.get(name) for name in ("loader", "kind", "env", "preload", "options")], sort_keys=True
    )
    if key in _applied:
        return
    for name, value in (platform.get("env") or {}).items():
        os.environ[str(name)] = str(value)
    for path in platform.get("preload") or ():
        _load_globally(str(path))
    if platform.get("loader") == "compiled_model":
        kind = accelerator_of(platform)
        if kind == "gpu":
            _choose_vulkan_driver()
        elif kind == "npu":
            _load_openvino((platform.get("options") or {}).get("openvino_libs"))
    _applied.add(key)


def accelerator_of(platform: dict[str, Any]) -> str:
    """``gpu``, ``npu`` or ``cpu``: the option ``accelerator``, else the platform's kind."""
    accelerator = (platform.get("options") or {}).get("accelerator") or platform.get("kind") or "cpu"
    return str(accelerator).lower()


def _load_globally(path: str) -> None:
    """dlopen with global symbols, so that libraries loaded later find it by its soname."""
    if path not in _loaded:
        _loaded[path] = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


def library_hashes(platform: dict[str, Any]) -> dict[str, str]:
    """Hashes of the libraries that the platform names, by name; call it when they are loaded.

    A library that was replaced under its name is another platform: what is known of the old one does not hold. One
    named without a folder is looked for among those this process has loaded; what is not found has an empty hash.
    """
    options = platform.get("options") or {}
    names = [platform.get("library"), options.get("delegate"), *(platform.get("preload") or ())]
    if platform.get("loader") == "tflite_c" and not platform.get("library"):
        names.append("libtensorflowlite_c.so")
    return {str(name): _hash_of_library(str(name)) for name in names if name}


def _hash_of_library(name: str) -> str:
    path = name if os.path.isfile(name) else _loaded_from(os.path.basename(name))
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


def _loaded_from(basename: str) -> str:
    """Path of a library of that name that is mapped into this process, or an empty text."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in file if "/" in line}
    except OSError:
        return ""
    return min((path for path in paths if os.path.basename(path) == basename), default="")


def _choose_vulkan_driver() -> None:
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # some drivers warn on every call without it
    if any(os.environ.get(name) for name in _VULKAN_VARIABLES):
        return
    if glob.glob("/dev/dri/renderD*"):
        return  # a GPU is there; the loader finds its driver
    software = software_vulkan_driver()
    if software is None:
        return
    LOG.info("no GPU here; Vulkan by software: %s", software)
    for name in _VULKAN_VARIABLES:
        os.environ[name] = software


def software_vulkan_driver() -> Optional[str]:
    """Path of SwiftShader's driver description, as Chromium installs it, or None."""
    for pattern in _SWIFTSHADER_GLOBS:
        for path in sorted(glob.glob(pattern)):
            return path
    return None


def _load_openvino(folder: Optional[str]) -> None:
    """Load OpenVINO and its thread library so that the vendor plug-in's own search is not needed.

    The plug-in looks for them beside its own package only; OpenVINO elsewhere (another site folder, a vendor
    archive) is found like this. Nothing is raised: what is missing shows when a file is compiled, with
    :func:`openvino_gap` as the reason.
    """
    folder = folder or openvino_folder()
    if folder is None:
        return
    wanted = [name for name in openvino_sonames() if name.startswith("libopenvino.")]
    for pattern in ["libtbb.so.12", *wanted]:
        path = os.path.join(folder, pattern)
        if os.path.exists(path):
            try:
                _load_globally(path)
            except OSError as error:
                LOG.warning("%s could not be loaded: %s", path, error)


def openvino_folder() -> Optional[str]:
    """The folder with OpenVINO's libraries in the installed package, or None."""
    spec = importlib.util.find_spec("openvino")
    if spec is None or not spec.origin:
        return None
    folder = os.path.join(os.path.dirname(spec.origin), "libs")
    return folder if os.path.isdir(folder) else None


def openvino_sonames() -> list[str]:
    """The OpenVINO libraries that LiteRT's plug-in was linked with, e.g. ``libopenvino.so.2631``."""
    spec = importlib.util.find_spec("ai_edge_litert")
    if spec is None or not spec.origin:
        return []
    path = os.path.join(os.path.dirname(spec.origin), _OPENVINO_PLUGIN)
    try:
        return [name for name in needed_libraries(path) if name.startswith("libopenvino")]
    except (OSError, ValueError):
        return []


def openvino_gap(folder: Optional[str] = None) -> str:
    """Why LiteRT's OpenVINO plug-in cannot work here, or an empty text when its libraries are there."""
    wanted = openvino_sonames()
    if not wanted:
        return "this ai-edge-litert has no NPU plug-in for this machine"
    folder = folder or openvino_folder()
    main = next((name for name in wanted if name.startswith("libopenvino.so")), wanted[0])
    if folder is None:
        return f"OpenVINO is not installed; the plug-in wants {main} (EdgePlace's extra [npu-intel] has it)"
    if not os.path.exists(os.path.join(folder, main)):
        there = sorted(os.path.basename(p) for p in glob.glob(os.path.join(folder, "libopenvino.so.*")))
        found = ", ".join(there) or "none"
        return f"the plug-in wants {main}, OpenVINO here has {found} (EdgePlace's extra [npu-intel] pins the pair)"
    return ""


def needed_libraries(path: str) -> list[str]:
    """The sonames an ELF library is linked with (its ``DT_NEEDED`` entries), read from the file.

    Only 64-bit little-endian files, which is what the runtimes' packages hold.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no such ELF file.
    """
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    (headers,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    segments = [struct.unpack_from("<IIQQQQ", data, headers + i * size) for i in range(count)]
    loads = [(vaddr, offset, length) for kind, _, offset, vaddr, _, length in segments if kind == 1]
    dynamic = next(((offset, length) for kind, _, offset, _, _, length in segments if kind == 2), None)
    if dynamic is None:
        return []
    entries = [struct.unpack_from("<qQ", data, dynamic[0] + 16 * i) for i in range(dynamic[1] // 16)]
    strings_address = next((value for tag, value in entries if tag == 5), None)
    if strings_address is None:
        return []
    strings = next(
        offset + strings_address - vaddr
        for vaddr, offset, length in loads
        if vaddr <= strings_address < vaddr + length
    )
    names = []
    for tag, value in entries:
        if tag == 0:
            break
        if tag == 1:
            start = strings + value
            names.append(data[start : data.index(b"\0", start)].decode())
    return names
