#!/bin/sh
# A program that takes the library at run time refuses each one that does not fit, in one sentence with its path and both
# versions. usage: refused_libraries.sh WORK_FOLDER PROGRAM
set -eu
work=$1 program=$2
here=$(dirname "$0")
unset LD_LIBRARY_PATH
for kind in OLDER MAJOR NEWER; do cc -shared -fPIC "-D$kind" -o "$work/lib$kind.so" "$here/older.c"; done
/usr/bin/python3 - "$work/libOLDER.so" "$work" <<'END'
import sys
with open(sys.argv[1], "rb") as file:
    head = bytearray(file.read())
head[18:20] = (62 if head[18] == 183 else 183).to_bytes(2, sys.byteorder)
for name, width in (("processor", head[4]), ("width", 3 - head[4])):
    head[4] = width
    with open(f"{sys.argv[2]}/lib{name}.so", "wb") as file:
        file.write(head)
END
deep=$work/$(printf 'ü%.0s/' $(seq 150))
mkdir -p "$deep"
cp "$work/libOLDER.so" "${deep}libdistag.so"
needs='needs version 0.3.0'
refused() { # LIBRARY PARTS...
  named=$1
  shift
  DISTAG_LIBRARY=$named "$program" refused "$@" >"$work/said" 2>&1 || { cat "$work/said"; echo "with $named"; exit 1; }
}
refused "$work/nowhere.so" "DISTAG_LIBRARY cannot be loaded ($work/nowhere.so: " "$needs"
refused "$work/libOLDER.so" "$work/libOLDER.so is version 0.2.9" "$needs"
refused "$work/libMAJOR.so" "$work/libMAJOR.so is version 1.0.0" "$needs with ABI 0"
refused "$work/libprocessor.so" "$work/libprocessor.so is for another processor: ELF machine " "$needs"
refused "$work/libwidth.so" "$work/libwidth.so is for another processor: ELF machine " "$needs"
refused libm.so.6 "libm.so.6 is no libdistag"
refused "${deep}libdistag.so" "ü/ü/libdistag.so is version 0.2.9" "$needs with ABI 0"
refused "${deep}nowhere.so" "DISTAG_LIBRARY cannot be loaded (" "ü/ü/nowhere.so: " "No such file or directory" "$needs"
if [ ! -e "/usr/lib/$(gcc -print-multiarch)/libdistag.so.0" ]; then
  refused "" "libdistag is not found: install it, or name its file in DISTAG_LIBRARY (libdistag.so.0: " "$needs"
fi
DISTAG_LIBRARY=$work/libNEWER.so "$program" taken
rm -r "$work/ü"
