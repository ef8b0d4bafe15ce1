"""Reads the traces that capi_traces leaves: they parse, nest and join. usage: check_traces.py PROGRAM"""
import collections
import glob
import json
import os
import subprocess
import sys
import tempfile


def check(condition, what):
    if not condition:
        sys.exit(f"check_traces: {what}")


def read(path):
    """The events; that of a process that was killed ends without the bracket, behind a comma, or within an event, where
    the kernel ends a write of many pages between two of them."""
    with open(path, "rb") as file:
        text = file.read()
    is_whole = text.endswith(b"\n]")
    check(is_whole or b",\n" in text, f"{path} has no whole event")
    return json.loads(text if is_whole else text[:text.rindex(b",\n")] + b"]"), is_whole


def check_events(path, events, is_whole):
    """Each has what the format asks for; spans have both ends, but for the last one of a process that was killed; slices
    of a thread lie within each other."""
    ends = collections.Counter()
    slices = collections.defaultdict(list)
    for event in events:
        check(event["ph"] in "MXbeisfC", f"{path}: {event}")
        if event["ph"] == "M":
            continue
        check(event["ts"] >= 0 and event["pid"] >= 1, f"{path}: {event}")
        if event["ph"] == "X":
            check(event["dur"] >= 0, f"{path}: {event}")
            slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
        if event["ph"] in "be":
            ends[event["cat"], event["id"], event["name"]] += 1 if event["ph"] == "b" else -1
            check(event["ph"] == "b" or ends[event["cat"], event["id"], event["name"]] == 0, f"{path}: {event} comes first")
    if not is_whole and events[-1]["ph"] == "b":
        ends[events[-1]["cat"], events[-1]["id"], events[-1]["name"]] -= 1
    check(not +ends and not -ends, f"{path}: spans with one end: {ends}")
    for thread, found in slices.items():
        around = []
        for begin, end, name in sorted(found, key=lambda one: (one[0], -one[1])):
            while around and around[-1] <= begin + 1e-4:
                around.pop()
            check(not around or end <= around[-1] + 1e-4, f"{path}: slice {name} of thread {thread} ends too late")
            around.append(end)


def check_flows(caller, callee):
    """Each call of `triple` and `defer` leads to its run, each answer back, and not before it began."""
    out = {event["id"]: event for event in caller + callee if event["ph"] == "s"}
    into = {event["id"]: event for event in caller + callee if event["ph"] == "f"}
    runs = [event for event in callee if event["ph"] == "X" and event["cat"] == "run"]
    check(sorted(run["name"] for run in runs) == ["defer"] * 3 + ["triple"] * 3, f"runs are {runs}")
    joined = [(out[id], into[id]) for id in out if id in into]
    across = [(begin, end) for begin, end in joined if begin["pid"] != end["pid"]]  # a worker calls itself for a mesh
    check(sum(end["cat"] == "call" for _, end in across) == 6, f"6 calls are not joined to their runs: {across}")
    answers = sum(end["cat"] == "answer" for _, end in across)  # the last one may end after the trace
    check(answers in (6, 7), f"{answers} answers are joined to their calls: {across}")
    check(set(into) <= set(out), "a flow comes from nowhere")
    check(all(begin["ts"] <= end["ts"] for begin, end in joined), "a flow comes before it begins")
    for begin, end in across:
        check((begin["pid"], end["pid"]) == ((1, 2) if end["cat"] == "call" else (2, 1)), f"{begin} leads to {end}")
    for event in out.values():
        check(any(one["ph"] == "X" and one["tid"] == event["tid"] and one["ts"] <= event["ts"] <= one["ts"] + one["dur"]
                  for one in caller + callee), f"{event} is in no slice")


def check_pair(folder):
    caller, callee = (read(os.path.join(folder, f"w{i}.trace.json"))[0] for i in range(2))
    check_flows(caller, callee)
    spans = collections.Counter((event["cat"], event["name"]) for event in caller if event["ph"] == "b")
    check(spans["host", "epoch \"1\" <b>é"] == 1 and spans["host", "step"] == 3, f"spans of the host: {spans}")
    check(spans["call", "triple"] == 3 and spans["call", "nothing"] == 1, f"calls: {spans}")
    check(sum(count for (kind, _), count in spans.items() if kind == "pass") >= 3, f"passes: {spans}")
    check(sum(count for (kind, _), count in spans.items() if kind == "collective") == 1, f"collectives: {spans}")
    check(any(event["ph"] == "X" and event["cat"] == "pass" for event in caller), "no pass that stays here")
    failed = [event["name"] for event in caller if event["ph"] == "b" and event.get("args", {}).get("failed")]
    check(failed == ["nothing"], f"failed: {failed}")
    served = [event for event in callee if event["ph"] == "b" and event["cat"] == "served"]
    check(all(event["args"]["peer"] == "w0" and event["args"]["bytes"] > 0 for event in served), f"served: {served}")
    for side, what in ((caller, "call"), (callee, "run"), (callee, "served")):
        for name, trace_id in (("defer", "4bf92f3577b34da6a3ce929d0e0e4736"), ("triple", None)):
            found = [event["args"].get("trace_id") for event in side
                     if event["ph"] in "Xb" and event["cat"] == what and event["name"] == name]
            check(found and set(found) == {trace_id}, f"{what} of {name} has the trace ids {found}")
    by_name = {event["name"]: event for event in caller if event["ph"] == "M"}
    check(by_name["process_name"]["args"]["name"] == "w0 (rank 0)", "the name of the worker")
    check(by_name["distag_worker"]["args"]["rank"] == 0 and by_name["distag_worker"]["args"]["host"], "who wrote it")


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=500)
        traces = glob.glob(os.path.join(folder, "*", "*.trace.json"))
        check(len(traces) == 11, f"traces: {traces}")
        for path in traces:
            events, is_whole = read(path)
            check_events(path, events, is_whole)
            name = os.path.basename(os.path.dirname(path))
            check(is_whole == (name != "killed"), f"{path} ends as another")
            dropped = [event["args"]["dropped"] for event in events if event["name"] == "dropped events"]
            check(bool(dropped) == (name == "small") or name == "limited", f"{path} has dropped {dropped}")
            if name == "small":
                spans = sum(event["ph"] == "b" and event["cat"] == "call" for event in events)
                check(dropped == sorted(dropped) and dropped[-1] > 500 - spans, f"{dropped} of the events are dropped")
        check_pair(os.path.join(folder, "pair"))


if __name__ == "__main__":
    main()
