"""Builds the wheel of dps: the package, libdps and the schedules (PEP 517); for `pip install -e` one that leads to this
checkout (PEP 660). Needs what _NEEDED says, and no other package; `make wheel` and `pip install ./python` call it.

DPS_LIBRARY is the path of a libdps.so to take instead of building one."""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent


def _version():
    return re.search(r'PROJECT_VERSION "(.*)"', (TOP / "base/version.h").read_text())[1]


# What `make` needs for libdps, and Debian's packages with it.
_NEEDED = {"make": "make", "gcc": "gcc libc6-dev", "bison": "bison", "flex": "flex", "zlib.h": "zlib1g-dev"}


def _missing():
    compiler = os.environ.get("CC") or "gcc"
    missing = [name for name in ("make", "bison", "flex") if not shutil.which(name)]
    if not shutil.which(compiler.split()[0]):
        return missing + ["gcc"]
    found = subprocess.run([*compiler.split(), "-E", "-include", "zlib.h", "-x", "c", os.devnull], capture_output=True)
    return missing + ["zlib.h"] * (found.returncode != 0)


def _say(text):
    """Prints to the terminal, because pip shows what a backend prints only after an error and with -v; to standard
    error if there is no terminal."""
    try:
        with open("/dev/tty", "w") as terminal:
            terminal.write(f"\r{text.ljust(70)}\n")
    except OSError:
        print(text, file=sys.stderr, flush=True)


def _make(*options):
    return subprocess.Popen(["make", *options, "build/libdps.so"], cwd=TOP, text=True, stdout=subprocess.PIPE)


def _library():
    given = os.environ.get("DPS_LIBRARY")
    if given:
        return pathlib.Path(given)
    if missing := _missing():
        raise SystemExit(f"dps: libdps cannot be built without {', '.join(missing)}: install the packages (Debian: "
                         f"{' '.join(map(_NEEDED.get, missing))}), or set DPS_LIBRARY to a built libdps.so")

    def of_objects(lines):
        return (line for line in lines if " -c -o " in line)

    with _make("-n") as plan:
        total = sum(1 for _ in of_objects(plan.stdout))
    with _make(f"-j{len(os.sched_getaffinity(0))}") as build:
        for done, _ in enumerate(of_objects(build.stdout)):
            if done * 10 // total > (done - 1) * 10 // total:
                _say(f"dps: compiles libdps, {done} of {total} files done")
    if build.returncode:
        raise SystemExit("dps: libdps could not be built; the compiler's messages are above")
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
    return ("Metadata-Version: 2.4\nName: dps\n"
            f"Version: {_version()}\n"
            "Summary: Pipeline-parallel training schedules, compiled, proven, predicted and drawn\n"
            "Requires-Python: >=3.9\nLicense-Expression: MIT\nLicense-File: LICENSE\n")


def _package(library):
    """Yields (name in the wheel, content) for each file of the package, libdps and the schedules."""
    for path in sorted((HERE / "dps").rglob("*.py")):
        yield str(path.relative_to(HERE)), path.read_bytes()
    for path in sorted((TOP / "schedules").glob("*.dps")):
        yield f"dps/schedules/{path.name}", path.read_bytes()
    yield "dps/libdps.so", library


def _record(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def _wheel(folder, files, tag):
    """Writes the wheel with the files, (name, content) of each, and with what describes it. Returns its name."""
    name, info, records = f"dps-{_version()}-{tag}.whl", f"dps-{_version()}.dist-info", ""
    about = [(f"{info}/METADATA", _metadata().encode()), (f"{info}/licenses/LICENSE", (TOP / "LICENSE").read_bytes()),
             (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: dps\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())]
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as archive:
        def put(name, content):
            entry = zipfile.ZipInfo(name)  # ZipInfo(name) has a fixed date, so the same sources give the same wheel
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        for path, content in [*files, *about]:
            put(path, content)
            records += _record(path, content)
        put(f"{info}/RECORD", (records + f"{info}/RECORD,,\n").encode())
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = _library().read_bytes()
    return _wheel(wheel_directory, _package(library), _tag(library))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _library()
    return _wheel(wheel_directory, [("dps.pth", f"{HERE}\n".encode())], "py3-none-any")


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
