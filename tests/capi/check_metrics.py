"""Reads the metrics that capi_metrics leaves, as strictly as the text format of Prometheus is written down, and compares
them to the fields of distag_stats. usage: check_metrics.py PROGRAM HEADER"""
import math
import os
import re
import subprocess
import sys
import tempfile

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})\{{worker="((?:[^"\\\n]|\\\\|\\"|\\n)*)"\}} (0|[1-9][0-9]*)')
LABEL = r'"((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
LABELS = rf'worker={LABEL}(?:,function={LABEL})?'
BUCKET = re.compile(rf'({NAME})\{{{LABELS},le="([^"]+)"\}} (0|[1-9][0-9]*)')
PART = re.compile(rf'({NAME})\{{{LABELS}\}} ([0-9][0-9.e+-]*)')
BOUNDS = [factor * 10 ** power for power in range(-5, 2) for factor in (1, 2.5, 5)] + [100]
HISTOGRAMS = [f"distag_{what}_seconds" for what in ("call", "queue", "served", "pass", "collective")]
NOW = re.compile(r"\bnow\b")


def check(condition, what):
    if not condition:
        sys.exit(f"check_metrics: {what}")


def read_fields(header):
    """The fields behind struct_size and reserved, in their order, and which of them are numbers of the moment."""
    with open(header, encoding="utf-8") as file:
        body = re.search(r"typedef struct distag_stats \{(.*?)\} distag_stats;", file.read(), re.S)[1]
    fields = {}
    for names, comment in re.findall(r"uint64_t ([^;]+);\s*(/\*.*?\*/)?", body, re.S):
        for name in names.split(","):
            fields[name.strip()] = bool(NOW.search(comment))
    check(len(fields) > 20, "the header has no fields of distag_stats")
    return fields


def parse(text):
    """Each family has HELP and TYPE, in this order, then its samples, and comes once. Gives of counters and gauges
    (type, worker, value), and the histograms by their names."""
    check(text.endswith("\n"), "the last line does not end")
    families, histograms, lines = {}, {}, text[:-1].split("\n")
    while lines:
        described = re.fullmatch(rf"# HELP ({NAME}) (\S.*\S)", lines.pop(0))
        check(described and "\\" not in described[2], "no HELP begins a family")
        typed = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", lines.pop(0))
        check(typed and typed[1] == described[1], f"{described[1]} has no TYPE")
        name = typed[1]
        check(name not in families and name not in histograms, f"{name} is there twice")
        samples = []
        while lines and not lines[0].startswith("#"):
            samples.append(lines.pop(0))
        if typed[2] == "histogram":
            histograms[name] = read_histograms(name, samples)
            continue
        sample = SAMPLE.fullmatch(samples[0]) if len(samples) == 1 else None
        check(sample and sample[1] == name, f"{samples} is no sample of {name}")
        check(int(sample[3]) < 1 << 64, f"{sample[3]} is too large")
        families[name] = (typed[2], sample[2], int(sample[3]))
    return families, histograms


def read_histograms(name, samples):
    """By (worker, function): count, sum and the buckets, whose bounds and counts grow, up to all. None comes twice."""
    found = {}
    check(len(samples) % (len(BOUNDS) + 3) == 0, f"{name} has {len(samples)} samples")
    while samples:
        buckets, labels = [], None
        for bound in [*BOUNDS, math.inf]:
            line = BUCKET.fullmatch(samples.pop(0))
            check(line and line[1] == f"{name}_bucket" and math.isclose(float(line[4]), bound), f"no bucket of {name} up to {bound}")
            labels = labels or line.group(2, 3)
            check(line.group(2, 3) == labels, f"buckets of {name} are mixed")
            buckets.append(int(line[5]))
        check(buckets == sorted(buckets), f"{name} of {labels} goes down: {buckets}")
        total, count = (PART.fullmatch(samples.pop(0)) for _ in range(2))
        check(total and count and total[1] == f"{name}_sum" and count[1] == f"{name}_count", f"{name} has no sum and count")
        check(total.group(2, 3) == labels == count.group(2, 3), f"sum and count of {name} are of others")
        check(int(count[4]) == buckets[-1], f"{name}: {count[4]} is not {buckets[-1]}")
        seconds = float(total[4])
        least = sum(many * low for many, low in zip(differences(buckets), [0, *BOUNDS]))
        check(least <= seconds * (1 + 1e-9) and (seconds == 0 or buckets[-1] > 0), f"{name}: a sum of {seconds}")
        check(labels not in found, f"{name} of {labels} is there twice")
        found[labels] = (buckets[-1], seconds)
    return found


def differences(numbers):
    return [after - before for before, after in zip([0, *numbers], numbers)]


def check_histograms(state, worker, histograms):
    check(list(histograms) == HISTOGRAMS, f"{state} has {list(histograms)}")
    for name, found in histograms.items():
        check(all(label == worker for label, _ in found), f"{state}: {name} is of another than {worker!r}")
        of_functions = [function for _, function in found]
        check(name in HISTOGRAMS[:3] or of_functions == [None], f"{state}: {name} is by function: {of_functions}")
        check(len(of_functions) <= 65, f"{state}: {name} has {len(of_functions)} names")
    check(histograms[HISTOGRAMS[0]].keys() == histograms[HISTOGRAMS[1]].keys() == histograms[HISTOGRAMS[2]].keys(),
          f"{state}: other functions are queued than are served")


def main():
    fields = read_fields(sys.argv[2])
    wanted = {f"distag_{name}" + ("" if is_now else "_total"): "gauge" if is_now else "counter"
              for name, is_now in fields.items()}
    seen, times = {}, {}
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.argv[1], directory], check=True, timeout=240)
        for path in os.listdir(directory):
            with open(os.path.join(directory, path), encoding="utf-8", newline="") as file:
                state = path.removesuffix(".prom")
                seen[state], times[state] = parse(file.read())
    check(sorted(seen) == ["not_started", "served", "shut_down", "started", "unnamed"], f"saw {sorted(seen)}")
    for state, families in seen.items():
        check({name: kind for name, (kind, _, _) in families.items()} == wanted, f"{state}: {families} is not {wanted}")
        check(list(families) == list(wanted), f"{state}: another order than that of the header")
        worker = {"unnamed": "", "served": "w1"}.get(state, "w0")
        check(all(label == worker for _, label, _ in families.values()), f"{state}: the label is not {worker!r}")
        check_histograms(state, worker, times[state])
    check(all(value == 0 for _, _, value in seen["not_started"].values()), "a worker that is not started has counted")
    check(not times["not_started"]["distag_call_seconds"], "a worker that is not started has called")
    check(times["not_started"]["distag_pass_seconds"] == {("w0", None): (0, 0)}, "a worker that is not started has run")
    check(seen["shut_down"]["distag_bytes_sent_total"][2] > 0, "bytes_sent after the shutdown")
    for name, (kind, _, value) in seen["started"].items():
        check(kind == "gauge" or seen["shut_down"][name][2] >= value, f"{name} went down")
    made, served = times["started"]["distag_call_seconds"], times["served"]["distag_served_seconds"]
    for function, count in (("answer", 3), ('odd \\"\\\\\\n', 1)):
        check(made["w0", function][0] == served["w1", function][0] == count, f"{function}: {made}, {served}")
        check(served["w1", function][1] <= made["w0", function][1], f"{function} was served for longer than it was called")
    many = times["shut_down"]["distag_call_seconds"]
    check(len(many) == 65 and list(many)[-1] == ("w0", "other"), f"{len(many)} functions, {list(many)[-1]} the last one")
    check(sum(count for count, _ in many.values()) >= seen["started"]["distag_calls_made_total"][2] + 70, "calls are missing")


if __name__ == "__main__":
    main()
