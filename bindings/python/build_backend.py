"""Builds the package for pip (PEP 517 and 660) with Python alone. Archives are the same whenever they are built."""
import base64
import hashlib
import io
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(HERE, "distag")
DATA = "distag/samples/digits.csv"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can say


def read(path):
    with open(path, "rb") as file:
        return file.read()


def version():
    return re.search(rb'^VERSION = "(.*)"', read(os.path.join(PACKAGE, "_raw.py")), re.M).group(1).decode()


def metadata():
    return (f"Metadata-Version: 2.1\nName: distag\nVersion: {version()}\n"
            "Summary: Distributed autograd: workers call each other, and one backward pass runs through all processes\n"
            "License: MIT\nRequires-Python: >=3.11\nProvides-Extra: numpy\n"
            "Requires-Dist: numpy ; extra == 'numpy'\n").encode()


def package_files():
    """Path and content of each file of the package, and the data of its samples."""
    found = {}
    for folder, folders, names in os.walk(PACKAGE):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".csv")) or name == "py.typed":
                path = os.path.join(folder, name)
                found[os.path.relpath(path, HERE)] = read(path)
    in_repository = os.path.join(HERE, "..", "..", "samples", "data", "digits.csv")
    if DATA not in found and os.path.exists(in_repository):
        found[DATA] = read(in_repository)
    return found


def digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write_wheel(folder, files):
    name = f"distag-{version()}-py3-none-any.whl"
    about = f"distag-{version()}.dist-info"
    files = dict(files)
    files[f"{about}/METADATA"] = metadata()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: distag\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{about}/RECORD"] = (record + f"{about}/RECORD,,\n").encode()
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, package_files())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, {"distag.pth": HERE.encode() + b"\n"})


def build_sdist(sdist_directory, config_settings=None):
    name = f"distag-{version()}"
    files = dict(package_files())
    for each in ("pyproject.toml", "build_backend.py", "README.md"):
        files[each] = read(os.path.join(HERE, each))
    files["PKG-INFO"] = metadata()
    with tarfile.open(os.path.join(sdist_directory, f"{name}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return f"{name}.tar.gz"
