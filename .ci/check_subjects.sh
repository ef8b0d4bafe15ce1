#!/bin/sh
# Commits since this file came have a subject "area: what it does" of at most 72 characters. usage: .ci/check_subjects.sh
set -eu

cd "$(dirname "$0")/.."
first=$(git log --diff-filter=A --format=%H -- .ci/check_subjects.sh | tail -n 1)
if [ -z "$first" ]; then
  echo "no history: subjects are not checked"
  exit 0
fi

check() { # Reads subjects; prints those that are wrong, and fails if there are any.
  awk 'length($0) > 72 { print "longer than 72 characters: " $0; bad = 1; next }
       /^Merge branch / { next }
       !/^[a-z][a-z0-9_.\/, -]*: [^ ]/ { print "not \"area: what it does\": " $0; bad = 1 }
       END { exit bad }'
}

# The check finds what it is for.
if echo "a subject without an area" | check >/dev/null || printf 'area: %080d\n' 0 | check >/dev/null ||
  ! echo "area: do one thing" | check >/dev/null; then
  echo ".ci/check_subjects.sh does not find planted subjects"
  exit 1
fi
git log --format=%s "$first..HEAD" | check
