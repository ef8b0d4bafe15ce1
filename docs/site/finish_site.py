"""Takes out links that Doxygen makes of addresses like file:///folder, which lead nowhere. usage: finish_site.py FOLDER"""
import glob
import os
import re
import sys


def main():
    for path in glob.glob(os.path.join(sys.argv[1], "*.html")):
        with open(path, encoding="utf-8") as file:
            page = file.read()
        finished = re.sub(r'<a href="file:[^"]*">([^<]*)</a>', r"\1", page)
        if finished != page:
            with open(path, "w", encoding="utf-8") as file:
                file.write(finished)


if __name__ == "__main__":
    main()
