"""`distag doctor` and `distag version`. usage: check_doctor.py DISTAG VERSION"""
import json
import os
import re
import subprocess
import sys
import tempfile

DISTAG, VERSION = sys.argv[1:]
NAMES = ["versions", "BLAS", "descriptors", "same-machine lane", "private folder", "env://", "training"]
LAUNCHERS = ["own", "torchrun", "pmix", "slurm", "kubernetes"]
GROUP = ("RANK", "WORLD_SIZE", "RENDEZVOUS", "MASTER_ADDR", "MASTER_PORT")


def run(*arguments, prefix=(), **environment):
    clean = {name: value for name, value in os.environ.items() if name.removeprefix("DISTAG_") not in GROUP}
    done = subprocess.run([*prefix, DISTAG, *arguments], env={**clean, **environment}, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.stderr == "", done
    return done.returncode, done.stdout


def checks(**options):
    code, text = run("doctor", "--json", **options)
    seen = json.loads(text)
    assert [check["name"] for check in seen["checks"]] == NAMES, text
    assert seen["ok"] == (code == 0) == all(check["ok"] for check in seen["checks"]), text
    assert all(check["ok"] != ("remedy" in check) for check in seen["checks"]), text
    return code, {check["name"]: check for check in seen["checks"]}


def check_all_is_well():
    code, seen = checks()
    assert code == 0, seen
    assert (seen["versions"]["library"], seen["versions"]["abi"]) == (VERSION, 0), seen
    assert os.path.exists(seen["BLAS"]["path"]) and seen["BLAS"]["threads"] >= 1, seen
    assert seen["same-machine lane"]["works"] is True, seen
    assert seen["env://"]["set"] == {}, seen
    training = seen["training"]
    assert 0 < training["loss_after"] < training["loss_before"] == 1 and training["step_us"] > 0, training


def check_a_lane_that_is_off():
    code, seen = checks(DISTAG_LANE="0")
    assert code == 0 and seen["same-machine lane"]["works"] is False, seen
    assert "DISTAG_LANE" in seen["same-machine lane"]["why"], seen


def check_the_page():
    code, text = run("doctor")
    lines = text.splitlines()
    assert code == 0 and lines[-1] == "all is well" and len(lines) == len(NAMES) + 2 + len(LAUNCHERS), text
    assert [line.split()[0] for line in lines[-1 - len(LAUNCHERS):-1]] == LAUNCHERS, text
    for name, line in zip(NAMES, lines):
        assert line.startswith(f"ok   {name} "), line


def check_threads_of_blas():
    assert checks(OPENBLAS_NUM_THREADS="1")[1]["BLAS"]["threads"] == 1


def check_what_env_would_read():
    own = {"DISTAG_RANK": "1", "RANK": "0", "WORLD_SIZE": "2", "DISTAG_RENDEZVOUS": "file:///somewhere"}
    code, seen = checks(**own)
    assert code == 0, seen
    assert seen["env://"]["set"] == own, seen
    assert seen["env://"]["text"].startswith("rank 1 of 2, by torchrun: "), seen
    code, seen = checks(RANK="5", WORLD_SIZE="2")
    assert code == 1 and 'RANK="5" is no number in 0 .. 1' in seen["env://"]["text"] and seen["env://"]["remedy"], seen
    code, text = run("doctor", RANK="5", WORLD_SIZE="2")
    assert code == 1 and text.endswith("something is to be mended\n"), text
    assert re.search(r'^BAD  env:// .*RANK="5".*\n +to do: ', text, re.M), text


def check_a_launcher_seen_by_half():
    code, seen = checks(RANK="5")
    assert code == 1 and "WORLD_SIZE (RANK is set)" in seen["env://"]["text"], seen


def check_the_document_of_launchers():
    rows = json.loads(run("doctor", "--json")[1])["launchers"]
    assert [row["name"] for row in rows] == LAUNCHERS, rows
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/launchers.md"), encoding="utf-8") as file:
        table = [line for line in file.read().splitlines() if line.startswith("| ")]
    code = lambda names: ", ".join(f"`{name}`" for name in names)
    wanted = [f"| `{row['name']}` | {row['started_by']} | {code(row['seen_by'].split(', '))} | {code(row['more'])} | "
              f"{row['meeting']} |".replace("  ", " ") for row in rows]
    assert table[1:1 + len(wanted)] == wanted, "docs/launchers.md should have:\n" + "\n".join(wanted)


def check_few_descriptors():
    code, seen = checks(prefix=("sh", "-c", 'ulimit -n 100; exec "$0" "$@"'))
    assert code == 1 and "ulimit -n" in seen["descriptors"]["remedy"] and seen["descriptors"]["limit"] == 100, seen
    # Too few for a connection. With fewer still UBSan, which looks at objects through a pipe, takes them for none.
    code, seen = checks(prefix=("sh", "-c", 'ulimit -n 22; exec "$0" "$@"'))
    assert code == 1 and not seen["training"]["ok"] and "ulimit -n" in seen["training"]["text"], seen


def check_the_private_folder():
    with tempfile.TemporaryDirectory() as own:
        _, seen = checks(XDG_RUNTIME_DIR=own)
        assert seen["private folder"]["base"] == own, seen
        assert os.listdir(own) == [], "something is left"


def check_version():
    code, text = run("version")
    assert code == 0 and re.fullmatch(rf"distag {re.escape(VERSION)}, ABI 0, protocol [1-9]\d*\n", text), text
    code, as_json = run("version", "--json")
    seen = json.loads(as_json)
    assert code == 0 and seen["library"] == VERSION and f"protocol {seen['protocol']}\n" in text, as_json


if __name__ == "__main__":
    for name in [name for name in dict(globals()) if name.startswith("check_")]:
        globals()[name]()
        print(f"ok {name}")
