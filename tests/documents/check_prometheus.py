"""The alerts and the dashboard ask for metrics that there are: each is a field of distag_stats, or the buckets of a
histogram that the header names, and the dashboard shows all of them. Where promtool is installed it runs the tests of
the alerts. usage: check_prometheus.py REPOSITORY"""
import json
import os
import re
import shutil
import subprocess
import sys


def read(root, *path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return file.read()


def metrics(header):
    body = re.search(r"typedef struct distag_stats \{(.*?)\} distag_stats;", header, re.S)[1]
    names = set()
    for fields, comment in re.findall(r"uint64_t ([^;]+);\s*(/\*.*?\*/)?", body, re.S):
        ending = "" if re.search(r"\bnow\b", comment) else "_total"
        names.update(f"distag_{field.strip()}{ending}" for field in fields.split(","))
    return names | {f"{name}_bucket" for name in re.findall(r"\bdistag_\w+_seconds\b", header)}


def main():
    root = sys.argv[1]
    known = metrics(read(root, "include", "distag.h"))
    alerts = read(root, "packaging", "prometheus", "alerts.yml")
    dashboard = json.loads(read(root, "packaging", "prometheus", "dashboard.json"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    shown = set(re.findall(r"distag_\w+", " ".join(queries)))
    asked = set(re.findall(r"distag_\w+", " ".join(re.findall(r"expr:(.*?)(?:for|labels):", alerts, re.S))))
    complaints = [f"no metric is called {name}" for name in sorted((shown | asked) - known)]
    complaints += [f"the dashboard does not show {name}" for name in sorted(known - shown)]
    if len(re.findall(r"- alert: ", alerts)) != 3 or not asked:
        complaints.append("there are other alerts than the three")
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    if len(set(places)) != len(places):
        complaints.append("two panels lie in one place")
    promtool = shutil.which("promtool")
    folder = os.path.join(root, "packaging", "prometheus")
    if promtool and subprocess.run([promtool, "test", "rules", "alerts_test.yml"], cwd=folder, check=False).returncode:
        complaints.append("promtool: see above")
    print(*complaints, f"{len(known)} metrics, {len(complaints)} complaints", sep="\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
