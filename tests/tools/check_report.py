"""distag report: what traces tell, by traces that are whole, cut off, foreign, hostile, of several runs and clocks.

usage: check_report.py DISTAG"""
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile

DISTAG = sys.argv[1]


def report(*arguments):
    return subprocess.run([DISTAG, "report", *arguments], capture_output=True, text=True, timeout=240)


def head(name, rank, host="here"):
    pid = rank + 1
    return [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{name} (rank {rank})"}},
            {"ph": "M", "name": "distag_worker", "pid": pid,
             "args": {"name": name, "rank": rank, "host": host, "clock": "monotonic"}}]


def call(function, peer, pid, number, begin, end, failed=False):
    same = {"cat": "call", "name": function, "id": f"a:{number}", "pid": pid, "tid": 1}
    args = {"peer": peer, "bytes": 10, **({"failed": True} if failed else {})}
    return [{"ph": "b", **same, "ts": begin, "args": args}, {"ph": "e", **same, "ts": end}]


def run(function, pid, begin, end):
    return [{"ph": "X", "cat": "run", "name": function, "pid": pid, "tid": 2, "ts": begin, "dur": end - begin,
             "args": {}}]


def flow(kind, identity, pid, when):
    return [{"ph": kind, "cat": "call", "name": "call", "id": identity, "pid": pid, "tid": 1, "ts": when}]


def write(folder, name, events, is_closed=True, rest=""):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name + ".trace.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(event) for event in events))
        file.write("\n]\n" if is_closed else ",\n" + rest)
    return path


def rows(text):
    """The tables: lists of rows by the words of their heads."""
    return [[line.split() for line in part.splitlines()] for part in text.strip().split("\n\n")]


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.rectangles = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "rect":
            self.rectangles.append(dict(attributes))

    def handle_data(self, data):
        self.cells.append(data.strip())


def shares(folder):
    """w0 calls for 600 of 1000 us and runs 100 us within them; w1 runs 400 us."""
    write(folder, "w0", head("w0", 0) + call("f", "w1", 1, 1, 1000, 1600) + run("g", 1, 1200, 1300) +
          call("f", "w1", 1, 2, 1990, 2000, True))
    write(folder, "w1", head("w1", 1) + run("f", 2, 1000, 1400) + run("f", 2, 1200, 1400) + run("f", 2, 1999, 2000))
    done = report(folder, "--text")
    assert (done.returncode, done.stderr) == (0, ""), done
    workers, calls = rows(done.stdout)
    assert workers[0] == ["worker", "rank", "seconds", "runs", "waits", "other", "events", "dropped", "clock"], workers
    assert workers[1] == ["w0", "0", "0.001", "10.0%", "51.0%", "39.0%", "5", "0", "shared"], workers
    assert workers[2] == ["w1", "1", "0.001", "40.1%", "0.0%", "59.9%", "3", "0", "shared"], workers
    assert calls[1] == ["w0", "f", "w1", "2", "1", "0.610", "0.305", "0.600"], calls


def bad_files(folder):
    write(folder, "cut", head("cut", 0) + call("f", "w1", 1, 1, 10, 30), False, '{"ph":"b","cat":"ca')
    write(folder, "killed", head("killed", 1) + run("f", 2, 0, 10), False)
    write(folder, "foreign", [{"ph": "X", "name": "x", "ts": 1, "dur": 1, "pid": 1, "tid": 1}] * 3)
    write(folder, "doctored", head("doctored", 3) + [{"ph": "X", "ts": "now", "name": []}, [1], 7,
                                                     {"ph": "X", "cat": "run", "ts": 1, "dur": -1e300, "args": 5},
                                                     {"ph": "C", "name": "dropped events", "ts": 2, "args": [1]},
                                                     {"ph": "e", "cat": "call", "id": {}, "ts": 3}] +
          run("f", 4, 5, 6))
    with open(os.path.join(folder, "empty.trace.json"), "w", encoding="utf-8"):
        pass
    with open(os.path.join(folder, "bytes.trace.json"), "wb") as file:
        file.write(os.urandom(5000))
    os.mkdir(os.path.join(folder, "folder.trace.json"))
    page = os.path.join(folder, "page.html")
    done = report(folder, "-o", page)
    assert done.returncode == 0, done
    for words in ("cut.trace.json\" was not closed.*ends within an event", "killed.trace.json\" was not closed",
                  "foreign.trace.json\" is no trace of distag", "empty.trace.json\" is empty", "bytes.trace.json\" is",
                  "folder.trace.json\" is no file", "doctored.trace.json\" 3 of its lines are no events",
                  "no trace of rank 2"):
        assert re.search(words, done.stderr), (words, done.stderr)
    assert [row[0] for row in rows(done.stdout)[0]] == ["worker", "cut", "killed", "doctored"], done.stdout


def hostile_names(folder):
    evil = "<script>alert(1)</script>\x1b[31m"
    write(folder, "w0", head(evil, 0) + call(evil, evil, 1, 1, 0, 10) + run(evil, 1, 2, 4))
    page = os.path.join(folder, "page.html")
    done = report(folder, "-o", page)
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr, done
    with open(page, encoding="utf-8") as file:
        text = file.read()
    seen = Page(text)
    assert "script" not in seen.tags and "\x1b" not in text, text
    assert seen.cells.count("<script>alert(1)</script>?[31m") == 5, seen.cells
    assert "default-src 'none'" in text and "http://" not in text and "https://" not in text, text
    assert {one["class"] for one in seen.rectangles} == {"runs", "waits"}, seen.rectangles


def two_runs(folder):
    for name in ("w0", "w0.2"):
        write(folder, name, head("w0", 0) + call("f", "w1", 1, 1, 0, 10))
    done = report(folder)
    assert "rank 0 has 2 traces" in done.stderr, done
    merged = os.path.join(folder, "all.json")
    assert report(folder, "--merged", merged).returncode == 0
    with open(merged, encoding="utf-8") as file:
        events = json.load(file)
    assert len({(event["pid"], event["id"]) for event in events if event["ph"] == "b"}) == 2, events


def clocks(folder):
    """The clock of the other machine is an hour ahead; messages take 100 us there and 300 us back at least."""
    hour = 3600e6
    write(folder, "w0", head("w0", 0) + run("f", 1, 1000, 9000) + flow("s", "1", 1, 1000) + flow("s", "2", 1, 3000) +
          flow("f", "3", 1, 4300))
    write(folder, "w1", head("w1", 1, "there") + run("f", 2, hour + 1000, hour + 5000) +
          flow("f", "1", 2, hour + 1100) + flow("f", "2", 2, hour + 3900) + flow("s", "3", 2, hour + 4000))
    write(folder, "w2", head("w2", 2, "elsewhere") + run("f", 3, 1, 2))
    merged = os.path.join(folder, "all.json")
    done = report(folder, "--merged", merged)
    assert done.returncode == 0 and "clock of \"w2\" could not be compared" in done.stderr, done
    assert [row[8:] for row in rows(done.stdout)[0][1:]] == [["shared"], ["within", "200", "us"], ["unknown"]], done
    with open(merged, encoding="utf-8") as file:
        events = json.load(file)
    (begin,) = (event["ts"] for event in events if event["ph"] == "X" and event["pid"] == 2)
    assert abs(begin - 1000) <= 200, begin
    told = next(event["args"] for event in events if event["name"] == "distag_worker" and event["pid"] == 2)
    assert told["clock_error_us"] == 200 and abs(told["clock_offset_us"] + hour) <= 200, told


def wrong_use(folder):
    os.mkdir(folder)
    nothing = report(folder)
    assert nothing.returncode == 1 and "DISTAG_TRACE" in nothing.stderr, nothing
    write(folder, "w0", head("w0", 0) + run("f", 1, 0, 1))
    for no_folder in (os.path.join(folder, "missing"), os.path.join(folder, os.listdir(folder)[0])):
        done = report(no_folder)
        assert (done.returncode, done.stderr) == (1, f'distag: "{no_folder}" is no folder\n'), done
    for unwritable in (("--merged", "/nowhere/file"), ("-o", "/nowhere/file")):
        done = report(folder, *unwritable)
        assert done.returncode == 1 and "/nowhere/file" in done.stderr, done
    for wrong in ((), (folder, "-o"), (folder, "--merged"), (folder, folder), (folder, "--html")):
        assert report(*wrong).returncode == 2, wrong


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (shares, bad_files, hostile_names, two_runs, clocks, wrong_use):
            test(os.path.join(folder, test.__name__))


if __name__ == "__main__":
    main()
