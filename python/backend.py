"""Builds the wheel of dps: the package, libdps and the schedules (PEP 517). Needs make and a C compiler, and no other
package; `make wheel` and `pip install ./python` call it.

DPS_LIBRARY is the path of a libdps.so to take instead of building one."""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent


def get_requires_for_build_wheel(config_settings=None):
    return []


def _version():
    return re.search(r'PROJECT_VERSION "(.*)"', (TOP / "runtime/base/version.h").read_text())[1]


def _library():
    given = os.environ.get("DPS_LIBRARY")
    if given:
        return pathlib.Path(given)
    subprocess.run(["make", "-s", "-j2", "build/libdps.so"], cwd=TOP, check=True, stdout=sys.stderr)
    return TOP / "build/libdps.so"


# The libraries that libdps may need and that PEP 600 guarantees on every system of a manylinux tag.
_EVERYWHERE = {b"libc.so.6", b"libm.so.6", b"libpthread.so.0", b"libdl.so.2", b"libgcc_s.so.1", b"libz.so.1"}
_LEAST_GLIBC = 28  # libdps needs zlib 1.2.9; all systems with glibc 2.28 have it


def _tag(library):
    """The tag of the wheel, from the names of libraries and symbol versions (GLIBC_2.N) in the bytes of libdps.
    manylinux_2_N: the wheel runs wherever glibc is 2.N or newer. If libdps needs a library that is not in _EVERYWHERE,
    the tag names this kind of machine (such as linux_x86_64)."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    needed = set(re.findall(rb"(?<=\0)lib[\w+.-]+\.so\.[\d.]+(?=\0)", library)) - _own_names()
    versions = [int(version) for version in re.findall(rb"(?<=\0)GLIBC_2\.(\d+)(?:\.\d+)*(?=\0)", library)]
    if versions and needed <= _EVERYWHERE:
        platform = platform.replace("linux", f"manylinux_2_{max(_LEAST_GLIBC, *versions)}")
    return "py3-none-" + platform


def _own_names():
    return {f"libdps.so.{_version().split('.')[0]}".encode()}


def _metadata():
    return ("Metadata-Version: 2.1\nName: dps\n"
            f"Version: {_version()}\n"
            "Summary: Pipeline-parallel training schedules, compiled, proven, predicted and drawn\n"
            "Requires-Python: >=3.9\n")


def _files(library, tag):
    """Yields (name in the wheel, content) for each file of the wheel except RECORD."""
    for path in sorted((HERE / "dps").rglob("*.py")):
        yield str(path.relative_to(HERE)), path.read_bytes()
    for path in sorted((TOP / "schedules").glob("*.dps")):
        yield f"dps/schedules/{path.name}", path.read_bytes()
    yield "dps/libdps.so", library
    info = f"dps-{_version()}.dist-info"
    yield f"{info}/METADATA", _metadata().encode()
    yield f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: dps\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()


def _record(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = _library().read_bytes()
    tag = _tag(library)
    wheel = f"dps-{_version()}-{tag}.whl"
    records = ""
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        def put(name, content):
            entry = zipfile.ZipInfo(name)  # ZipInfo(name) has a fixed date, so the same sources give the same wheel
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        for name, content in _files(library, tag):
            put(name, content)
            records += _record(name, content)
        name = f"dps-{_version()}.dist-info/RECORD"
        put(name, (records + f"{name},,\n").encode())
    return wheel


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
