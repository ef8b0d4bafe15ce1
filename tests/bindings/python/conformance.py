"""Runs the cases of bindings/conformance/cases.json through the Python binding.
usage: conformance.py REPOSITORY [WORDS...]
With WORDS, only the cases whose names have one of them."""
import gc
import json
import os
import sys
import traceback

import cases_life
import cases_local
import cases_workers

FUNCTIONS = {**cases_local.CASES, **cases_workers.CASES, **cases_life.CASES}


def run(number, case, repository):
    """Runs one case and prints its line; whether it is ok."""
    name = case["name"]
    try:
        FUNCTIONS[name](dict(case, repository=repository))
        verdict = "ok"
    except Exception:
        verdict = "not ok"
        traceback.print_exc()
    print(f"{verdict} {number} - {name}", flush=True)
    gc.collect()
    return verdict == "ok"


def main():
    repository, words = sys.argv[1], sys.argv[2:]
    with open(os.path.join(repository, "bindings", "conformance", "cases.json"), encoding="utf-8") as file:
        cases = json.load(file)["cases"]
    if words:
        cases = [case for case in cases if any(word in case["name"] for word in words)]
    passed = [run(number, case, repository) for number, case in enumerate(cases, 1)]
    print(f"1..{len(cases)}")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
