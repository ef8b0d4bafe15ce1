#!/bin/sh
# Formats and vets the binding for Go and its programs, and builds these. usage: build.sh REPOSITORY PROGRAMS
set -eu
mkdir -p "$2"
unformatted=$(/usr/bin/gofmt -l "$1/bindings/go" "$1/tests/bindings/go")
[ -z "$unformatted" ] || { echo "not as gofmt wants it: $unformatted" >&2; exit 1; }
cd "$1/bindings/go"
/usr/bin/go vet ./...
/usr/bin/go build -o "$2" ./samples/...
said=$(CGO_ENABLED=0 /usr/bin/go build . 2>&1) && { echo "built without cgo" >&2; exit 1; }
case $said in *"distag needs cgo"*) ;; *) echo "without cgo: $said" >&2; exit 1 ;; esac
lines=$(cat $(ls *.go *.c *.h | grep -vE '^((checks|constants|handles|ops)\.go|loaded\.c)$') | grep -cvE '^\s*(//.*|/?\*.*)?$')
echo "$lines lines by hand (blank and comment lines not counted)"
cd "$1/tests/bindings/go"
/usr/bin/go vet ./...
/usr/bin/go build -o "$2" ./conformance ./together ./soak ./speed
/usr/bin/go test -c -vet=off -o "$2/unit" ./unit
