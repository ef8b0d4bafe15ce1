"""What bash completes for `distag`. usage: check_completion.py DISTAG COMPLETION"""
import os
import subprocess
import sys
import tempfile

WORDS = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _distag; printf "%s\\n" "${COMPREPLY[@]}"'


def complete(*words):
    done = subprocess.run(["bash", "-uc", f'source "$0"; {WORDS}', sys.argv[2], "distag", *words], text=True, check=True,
                          stdout=subprocess.PIPE, timeout=240)
    return set(done.stdout.split())


def main():
    usage = subprocess.run([sys.argv[1], "--help"], text=True, check=True, stdout=subprocess.PIPE, timeout=240).stdout
    cases = ((("",), {"run", "doctor", "version", "keygen", "checkpoint", "report", "ps", "why", "top",
                       "help"}), (("d",), {"doctor"}),
             (("doctor", ""), {"--json"}), (("keygen", ""), {"--worker"}), (("checkpoint", ""), {"show", "check", "merge"}),
             (("run", "-"), {"-n", "--restart", "--grace", "--trace", "--"}), (("run", "--re"), {"--restart"}),
             (("run", "-n", ""), set()), (("run", "-n", "3", "--g"), {"--grace"}), (("report", "-"), {"--text", "-o", "--merged"}), (("ps", "-"), {"--json", "--longer"}),
             (("why", "--longer", ""), set()), (("nothing", ""), set()))
    for words, expected in cases:
        assert complete(*words) == expected, (words, complete(*words))
        for word in expected - {"help"}:
            assert word in usage, f"{word} is not in the usage"
    assert "python3" in complete("run", "-n", "3", "pyth")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("data.csv", "w", encoding="utf-8"):
            assert complete("run", "-n", "3", "python3", "da") == {"data.csv"}
            assert complete("run", "-n", "3", "--", "python3", "da") == {"data.csv"}


if __name__ == "__main__":
    main()
