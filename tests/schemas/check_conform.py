"""Whether the schemas only append to what was released: tables, unions and enumerators keep their ids, types and order.
usage: check_conform.py FLATC REPOSITORY"""
import os
import subprocess
import sys
import tempfile


def conforms(flatc, schemas, released, out):
    """Complaints of `flatc --conform` about each schema of `schemas` against its namesake in `released`."""
    complaints = []
    for name in sorted(os.listdir(released)):
        if not name.endswith(".fbs"):
            continue
        path = os.path.join(schemas, name)
        if not os.path.exists(path):
            complaints.append(f"{name} was released and is gone")
            continue
        command = [flatc, "--cpp", "-o", out, "-I", schemas, "--conform", os.path.join(released, name),
                   "--conform-includes", released, path]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            complaints.append(f"{name} against {released}: {(run.stdout + run.stderr).strip()}")
    return complaints


def self_test(flatc, released):
    """The check has to notice a field that changed its type, one that moved, and one that was appended to be fine."""
    edits = {
        "a type changed": ("rank: int;                    // from 0", "rank: long;", False),
        "a field moved": ("  job: string (required);       // 1 to 127 bytes; another job is refused\n", "", False),
        "a field was appended": ("  wanted: ulong;", "  wanted: ulong;\n  later: ulong;", True),
    }
    for what, (old, new, good) in edits.items():
        with tempfile.TemporaryDirectory() as folder:
            for name in os.listdir(released):
                with open(os.path.join(released, name), encoding="utf-8") as file:
                    text = file.read()
                if name == "session.fbs":
                    assert old in text, f"nothing to edit for: {what}"
                    text = text.replace(old, new, 1)
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            complaints = conforms(flatc, folder, released, folder)
            assert (not complaints) == good, f"{what}: {complaints}"


def main():
    flatc, repository = sys.argv[1:]
    schemas = os.path.join(repository, "schemas")
    releases = sorted(os.listdir(os.path.join(schemas, "released")))
    assert releases, "no release to compare with"
    complaints = []
    with tempfile.TemporaryDirectory() as out:
        for release in releases:
            complaints += conforms(flatc, schemas, os.path.join(schemas, "released", release), out)
    self_test(flatc, os.path.join(schemas, "released", "0.1"))
    print("\n".join(complaints))
    print(f"{len(releases)} release(s), {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
