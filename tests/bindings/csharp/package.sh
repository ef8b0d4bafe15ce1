#!/bin/sh
# What the packages of the assembly hold is enough for the README's example and a sample, out of a cache of assemblies:
# debian/tests/csharp, as it is run on an installed package. usage: package.sh REPOSITORY WORK_FOLDER
set -eu
rm -rf "$2"
native=$1/bindings/csharp/Native.cs
constant() { sed -n "s/.*const .* $1 = \"\{0,1\}\([^\";]*\)\"\{0,1\};.*/\1/p" "$native"; }
version=$(constant VERSION) abi=$(constant DISTAG_ABI_MAJOR)
folder=$2/usr/lib/cli/Distag-$abi
mkdir -p "$folder" "$2/work" "$2/again" "$2/pkgconfig"
assemble="/usr/bin/python3 -B $1/packaging/csharp_assembly.py"
$assemble "$1" "$folder/Distag.dll"
$assemble "$1" "$2/again/Distag.dll"
cmp "$folder/Distag.dll" "$2/again/Distag.dll"

# Its strong name is that of the key, and no longer where a byte has changed.
security=$(ls /usr/lib/mono/gac/Mono.Security/4*/Mono.Security.dll)
/usr/bin/mcs -warn:4 -warnaserror -out:"$2/strong_name.exe" -r:"$security" "$1/tests/bindings/csharp/StrongName.cs"
/usr/bin/mono "$2/strong_name.exe" "$folder/Distag.dll" "$1/bindings/csharp/distag.snk"
printf x | dd of="$2/again/Distag.dll" bs=1 seek=60000 conv=notrunc 2>"$2/dd"
if /usr/bin/mono "$2/strong_name.exe" "$2/again/Distag.dll" "$1/bindings/csharp/distag.snk"; then
  echo "a changed assembly has the strong name"; exit 1
fi

grep -qx "Version: $version" "$1/bindings/csharp/distag-cil.pc"
grep -qx "/usr/lib/cli/Distag-$abi/Distag.dll" "$1/debian/libdistag-cil.installcligac"
cp "$1/bindings/csharp/Distag.dll.config" "$folder"
sed "s|^prefix=.*|prefix=$2/usr|" "$1/bindings/csharp/distag-cil.pc" >"$2/pkgconfig/distag-cil.pc"
/usr/bin/gacutil -i "$folder/Distag.dll" -root "$2/usr/lib" >"$2/installed"
cd "$1"
MONO_GAC_PREFIX=$2/usr PKG_CONFIG_PATH=$2/pkgconfig SAMPLES=$1/bindings/csharp/samples AUTOPKGTEST_TMP=$2/work \
  sh debian/tests/csharp

# A program that was compiled with this assembly runs with that of a later release, in its place.
mkdir -p "$2/later/bindings"
cp -r "$1/bindings/csharp" "$2/later/bindings"
/usr/bin/python3 -B - "$1/bindings" "$2/later/bindings/csharp" <<'END'
import json, sys
sys.path.insert(0, sys.argv[1])
import emit_csharp
with open(f"{sys.argv[1]}/api.json", encoding="utf-8") as file:
    api = json.load(file)
major, minor, _ = api["version"].split(".")
api["version"] = f"{major}.{int(minor) + 1}.0"
with open(f"{sys.argv[2]}/Native.cs", "w", encoding="utf-8") as file:
    file.write(emit_csharp.files(api)["Native.cs"])
END
rm -r "$2/usr/lib/mono/gac/Distag"
$assemble "$2/later" "$folder/Distag.dll"
/usr/bin/gacutil -i "$folder/Distag.dll" -root "$2/usr/lib" >"$2/installed"
cd "$2/work"
MONO_GAC_PREFIX=$2/usr mono example.exe | cmp - expected
rm -rf "$2"
