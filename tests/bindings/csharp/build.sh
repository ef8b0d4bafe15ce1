#!/bin/sh
# Builds the assembly for C# and its programs with Debian's Mono; warnings are errors, and each public name is documented.
# usage: build.sh REPOSITORY PROGRAMS
set -eu
sources=$1/bindings/csharp tests=$1/tests/bindings/csharp programs=$2
mkdir -p "$programs"
/usr/bin/mcs -unsafe -warn:4 -warnaserror -target:library -out:"$programs/Distag.dll" -doc:"$programs/Distag.xml" "$sources"/*.cs

compile() { # NAME SOURCES...
  name=$1
  shift
  /usr/bin/mcs -warn:4 -warnaserror -out:"$programs/$name.exe" -r:"$programs/Distag.dll" -r:System.dll -r:System.Core.dll "$@"
}

cd "$tests"
compile conformance Json.cs Support.cs Program.cs Local.cs Workers.cs Life.cs
compile unit Json.cs Support.cs Unit.cs UnitLives.cs "$sources/layout/Layouts.cs"
compile together Together.cs
compile speed Speed.cs
compile soak Soak.cs
compile digits "$sources/samples/Digits.cs"
compile service "$sources/samples/Service.cs"
cc -shared -fPIC -o "$programs/libolder.so" ../older.c
cc -shared -fPIC -DMAJOR -o "$programs/libmajor.so" ../older.c
lines=$(cat $(ls "$sources"/*.cs | grep -vE '/(Native|Handles|Enums|Ops)\.cs$') | grep -cvE '^\s*(//.*)?$')
echo "$lines lines by hand (blank and comment lines not counted)"
