"""The man pages have all of the header, are the same each time, and please mandoc. usage: check_man.py HEADER FOLDER PAGE"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "header"))
import header_text  # noqa: E402


def read_pages(folder):
    pages = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            pages[name] = file.read()
    return pages


def check_complete(text, pages):
    """Each function is on one page, in its synopsis, its names and its description; all else is somewhere."""
    nouns = {name: page for name, page in pages.items() if name.endswith(".3") and not page.startswith(".so ")}
    for function in header_text.functions(text):
        found = [name for name, page in nouns.items()
                 if re.search(rf'^\.F[no] "{function.name}"', page, re.M) and f"\n.It Fn {function.name}\n" in page
                 and re.search(rf"^\.Nm {function.name}( ,)?$", page, re.M)]
        if len(found) != 1:
            yield f"{function.name} is on {len(found)} pages"
        elif f"{function.name}.3" != found[0] and pages.get(f"{function.name}.3") != f".so man3/{found[0]}\n":
            yield f"man {function.name} does not find {found[0]}"
        elif len(re.findall(rf'^\.Fo "{function.name}"\n((?:\.Fa .*\n)*)', nouns[found[0]], re.M)) != bool(function.parameters):
            yield f"{function.name} is not on {found[0]} with its parameters"
    everything = "\n".join(nouns.values())
    for name, members in header_text.struct_members(text).items():
        wanted = [f"\n.It Vt {name}\n"] + [each.name for each in members if name != "distag_api"]
        yield from (f"{name}: {each!r} is missing" for each in wanted if each not in everything)
    for name, enumerators in header_text.enums(text).items():
        yield from (f"{each.name} is missing" for each in enumerators if f'"{each.name} = {each.value}"' not in everything)
    for callback in header_text.callbacks(text):
        if f"\n.It Vt {callback.name}\n" not in everything:
            yield f"{callback.name} is missing"


def check_lint(folder, page):
    with tempfile.TemporaryDirectory() as work:  # in one folder, so that references are found
        for name, text in read_pages(folder).items():
            if not text.startswith(".so "):
                shutil.copy(os.path.join(folder, name), work)
        shutil.copy(page, work)
        done = subprocess.run(["mandoc", "-Tlint", *sorted(os.listdir(work))], cwd=work, capture_output=True, text=True,
                              timeout=240, check=False)
    yield from (done.stdout + done.stderr).splitlines()


def check_repeatable(header, folder):
    with tempfile.TemporaryDirectory() as work:
        date = re.search(r"^\.Dd (.*)$", read_pages(folder)["distag.7"], re.M).group(1)
        subprocess.run([sys.executable, "-B", os.path.join(ROOT, "docs", "site", "make_man.py"), header, date, work],
                       check=True, timeout=240, env={**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C"})
        if read_pages(work) != read_pages(folder):
            yield "the pages are others the next time"


def main():
    header, folder, page = sys.argv[1:]
    with open(header, encoding="utf-8") as file:
        text = file.read()
    pages = read_pages(folder)
    complaints = [*check_complete(text, pages), *check_lint(folder, page), *check_repeatable(header, folder)]
    print("\n".join(complaints))
    print(f"{len(pages) + 1} pages, {len(complaints)} complaints")
    return 1 if complaints or len(pages) < 14 else 0


if __name__ == "__main__":
    sys.exit(main())
