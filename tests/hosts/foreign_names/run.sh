#!/bin/sh
# usage: run.sh REPOSITORY LIBRARY FOLDER
# Hosts that export names which distag takes from other libraries, beside those of the compiler and the C library.
set -eu
repository=$1 library=$2 folder=$3
here=$repository/tests/hosts/foreign_names
rm -rf "$folder"
mkdir -p "$folder/other"
cd "$folder"
build() { # NAME SOURCE...
  name=$1
  shift
  "${CC:-cc}" -Wall -O1 -rdynamic -I"$repository/include" -o "$name" "$here/host.c" "$@" "$library" \
    -Wl,-rpath,"$(dirname "$library")" -lm
}

# Those by which libsodium calls itself are the host's then, whatever distag does; and those by which libzmq calls itself
# and others.
called_by() { # LIBRARY
  objdump -R "$(ldd "$library" | awk -v name="$1" '$1 ~ "^" name { print $3 }')" |
    awk '$2 ~ /JUMP_SLOT/ { sub(/@.*/, "", $3); print $3 }'
}
called_by libsodium >inside
called_by libzmq >inside_zmq
nm -D --undefined-only "$library" | awk '$1 == "U" && $2 !~ /@/ { print $2 }' | grep -vxFf inside >names
printf '%s\n' cblas_sgemm cblas_dgemm openblas_get_config >>names # found in what distag loads
test "$(grep -c . names)" -ge 8
for name in crc32_iscsi crc32_gzip_refl crypto_box_seed_keypair sodium_init; do
  grep -qx "$name" names
done
foreign() { # FILE OF NAMES
  printf '#include <stdio.h>\n#include <unistd.h>\n'
  printf 'static void end(const char *name) { fprintf(stderr, "the host'"'"'s %%s was called\\n", name), _exit(5); }\n'
  while read -r name; do printf 'void %s(void);\nvoid %s(void) { end("%s"); }\n' "$name" "$name" "$name"; done <"$1"
}
foreign names >foreign.c
build foreign foreign.c
DISTAG_SOCKET_ENGINE=zmtp ./foreign
grep -vxFf inside_zmq names >names_zmq
grep -qx zmq_connect names_zmq
foreign names_zmq >foreign_zmq.c
build foreign_zmq foreign_zmq.c
DISTAG_SOCKET_ENGINE=zmq ./foreign_zmq

# libzmq calls these of its own by their names: one is enough, as where a host exports a libzmq that is linked into it.
for own in zmq_msg_send zmq_socket; do
  grep -qx "$own" inside_zmq
  printf 'int %s(void);\nint %s(void) { return -1; }\n' "$own" "$own" >zmq.c
  build zmq zmq.c
  DISTAG_SOCKET_ENGINE=zmq ./zmq starts "exports $own of another libzmq"
  DISTAG_SOCKET_ENGINE=zmtp ./zmq
done

# libsodium calls this one of its own by its name.
echo 'int crypto_box_detached_afternm(void); int crypto_box_detached_afternm(void) { return 0; }' >sodium.c
build sodium sodium.c
./sodium keys 'libsodium gives wrong answers'

# Parts of another OpenBLAS: what distag calls would run in both.
echo 'int gotoblas[64]; int exec_blas(void); int exec_blas(void) { return 0; }' >parts.c
build parts parts.c
./parts products 'exports gotoblas of another OpenBLAS'

# Other libraries in the place of the one that distag was linked with.
other() { # CONFIGURATION
  printf 'char *openblas_get_config(void);\nchar *openblas_get_config(void) { return "%s"; }\n' "$1"
  printf 'void cblas_sgemm(void);\nvoid cblas_sgemm(void) {}\nvoid cblas_dgemm(void);\nvoid cblas_dgemm(void) {}\n'
}
build plain
for each in 'OpenBLAS USE64BITINT=its integers have 64 bits' 'OpenBLAS=its products are wrong'; do
  other "${each%%=*}" >other.c
  "${CC:-cc}" -shared -fPIC -Wl,-soname,libopenblas.so.0 -o other/libopenblas.so.0 other.c
  LD_LIBRARY_PATH=$folder/other ./plain products "${each#*=}"
done
./plain
cd /
rm -rf "$folder"
