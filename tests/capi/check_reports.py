"""Reads the reports that capi_reports leaves, and checks what they say. usage: check_reports.py PROGRAM"""
import json
import os
import subprocess
import sys
import tempfile


def check(condition, what):
    if not condition:
        sys.exit(f"check_reports: {what}")


def equal(seen, expected):
    check(seen == expected, f"{seen!r} is not {expected!r}")


def check_caller(report):
    equal(report["worker"]["name"], "w0")
    equal(report["worker"]["rank"], 0)
    equal(report["worker"]["state"], "started")
    equal(report["worker"]["protocol"], 2)
    equal([(m["name"], m["rank"], m["state"]) for m in report["members"]], [("w0", 0, "alive"), ("w1", 1, "alive")])
    equal(report["members"][0]["incarnation"], report["worker"]["incarnation"])
    check(report["members"][1]["connected"], "the stream to w1 is not open")
    (call,) = report["calls"]
    equal((call["made_here"], call["function"], call["label"]), (True, "deferring", "the slow one"))
    equal((call["peer"], call["rank"], call["state"]), ("w1", 1, "sent"))
    check(0 <= call["age_ms"] < 120000, "age of the call")
    check(0 < call["time_left_ms"] <= 120000, "time of the call")
    (context,) = report["contexts"]
    equal(call["context"], context["global_id"])
    equal(context["made_here"], True)
    equal(context["creator"], 'worker "w0" (rank 0)')
    equal((context["send_count"], context["recv_count"], context["gradient_count"]), (2, 2, 1))
    equal((context["known_ranks"], context["passes"], context["pass_count"]), ([1], [], 0))
    equal(report["rrefs"], [])
    check(any('"w0" (rank 0) in a group of 2' in event["text"] for event in report["events"]), "the start is no event")


def check_callee(report):
    (call,) = report["calls"]
    equal((call["made_here"], call["function"], call["label"]), (False, "deferring", "the slow one"))
    equal((call["peer"], call["rank"], call["state"]), ("w0", 0, "deferred"))
    check(0 < call["time_left_ms"] <= 120000, "time of the call")
    (context,) = report["contexts"]
    equal((context["made_here"], context["send_count"], context["known_ranks"]), (False, 2, [0]))
    equal(context["creator"], 'worker "w0" (rank 0)')


def check_context(report):
    calls = [(send["call"], send["is_answer"], send["peer"], send["fired"]) for send in report["sends"]]
    peer = 'worker "w1" (rank 1)'
    equal(calls, [('call "triple" ("used layer") on "w1"', False, peer, True),
                  ('call "triple" ("unused layer") on "w1"', False, peer, False)])
    equal(report["never_fired"], ['the arguments of call "triple" ("unused layer") on "w1"'])
    equal([node["node"] for node in report["nodes"]], list(range(len(report["nodes"]))))
    equal([node["kind"] for node in report["nodes"]], ["send", "send", "leaf"])
    equal(report["edges"], [{"from": 0, "to": 2, "slot": 0}, {"from": 1, "to": 2, "slot": 0}])


LANE_COUNTS = ("open", "refused", "sleeps", "wakes_sent", "wakes_received", "loans", "loans_out", "bytes_out")


def check_lanes(reports):
    """The lender has lent 4 MiB in pieces of 1 MiB; sleeps and wakes are as the machine has it."""
    lender, borrower = reports["lender"], reports["borrower"]
    for report in (lender, borrower):
        lane = report["lane"]
        equal(sorted(lane), sorted(("on",) + LANE_COUNTS))
        equal(lane["on"], True)
        check(all(type(lane[name]) is int and lane[name] >= 0 for name in LANE_COUNTS), f"{lane} has other counts")
        check(lane["open"] >= 1, "no lane is open")
        equal(lane["refused"], 0)
        check(lane["wakes_received"] <= 64, "wakes for a handful of messages")
    equal([lender["lane"][name] for name in ("loans", "loans_out", "bytes_out")], [4, 4, 4 << 20])
    equal([borrower["lane"][name] for name in ("loans", "loans_out", "bytes_out")], [0, 0, 0])
    equal([member["lane"] for member in lender["members"] if member["name"] == "w1"], ["lane"])
    lane = reports["caller"]["lane"]
    equal((lane["on"], lane["open"]), (False, 0))  # inproc://
    equal(sorted(lane), sorted(("on", "why") + LANE_COUNTS))


def main():
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True, timeout=240)
        reports = {}
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                reports[name.removesuffix(".json")] = json.load(file)
    equal(sorted(reports), ["borrower", "callee", "caller", "context", "lender", "local_context", "not_started",
                            "shut_down"])
    equal(reports["not_started"]["worker"]["state"], "not started")
    equal(reports["not_started"]["calls"], [])
    check_caller(reports["caller"])
    check_callee(reports["callee"])
    check_context(reports["context"])
    check_lanes(reports)
    equal(reports["local_context"]["gradient_count"], 0)
    equal(reports["shut_down"]["worker"]["state"], "shut down")
    equal(reports["shut_down"]["members"][0]["state"], "left")


if __name__ == "__main__":
    main()
