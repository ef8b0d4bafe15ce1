#!/bin/bash
# Everything that is checked: the gate (.ci/run), then what is too long for it. usage: scripts/check_full.sh [STEP...]
# Run before an issue is said to be resolved. As root, on Debian 12; takes some hours on 2 cores. With steps, those alone.
# Steps run in order; one that fails does not stop the others. What each printed is in build/full/<step>.log.
set -u

cd "$(dirname "$0")/.." || exit 1
export DISTAG_CI=1 # a test that needs root or namespaces fails without them
logs=build/full
. .ci/steps.sh
wanted=("$@")

gate() {
  CI=true .ci/run
}

# Clang looks at everything, and its warnings are errors: it compiles what the gate's suite-asan and the fuzz targets run,
# and of the rest makes no code.
warnings_clang() {
  cmake --preset asan-clang && cmake --build build/asan-clang --target units contracts interface_programs -- -k 0 &&
    cmake --preset warnings-clang && cmake --build build/warnings-clang --target distag_schema_headers &&
    /usr/bin/python3 -B tests/bindings/cpp/emit_op_calls.py . build/warnings-clang/tests/bindings/cpp/op_calls.inc &&
    /usr/bin/python3 -B .ci/check_sources.py build/warnings-clang build/asan-clang
}

# The whole suite as gcc has the sanitizers. Left out are three programs that measure what these need of memory and
# descriptors, and those that fork while other threads allocate: gcc 12's does not give up the locks of its allocator in the
# child, which hangs there.
suite_asan_gcc() {
  tests/run.sh asan -E '^capi_(descriptors|lacks|payload_memory|fork|fork_losses)(_zmq|_zmtp)?$'
}

# The programs in which threads meet, under ThreadSanitizer. All of the suite: tests/run.sh tsan.
suite_tsan() {
  local programs=(unit_base contract_transport capi_async_twins capi_calls capi_checkpoints_async capi_events capi_flood
    capi_futures capi_handle_report capi_host_executor capi_lifetimes capi_loader_failures capi_loaders
    capi_members capi_rref_optimizers capi_sharded_stages
    capi_shared_storage capi_shared_tensors capi_shutdown_stress capi_shutdowns capi_snapshots capi_thread_exits capi_threads
    capi_traces capi_unregister capi_waits capi_workers)
  cmake --preset tsan && cmake --build build/tsan --target "${programs[@]}" &&
    run_suite build/tsan -R "^($(IFS='|'; echo "${programs[*]}"))\$"
}

# Each fuzz target searches for 60 s, two at a time on two cores.
fuzz() {
  DISTAG_FUZZ_SEED=1 tests/fuzz/soak.sh 0.0167
}

# What is left out of every suite: the sweeps in full.
long() {
  cmake --preset dev && cmake --build build/dev && run_suite build/dev -C long -L long
}

full_step() { # NAME COMMAND...
  [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $1 "* ]] || step "$@"
}

# The gate's suite once more, with the engine that is not the default wherever a test does not choose.
suite_zmtp() {
  tests/run.sh --engine zmtp
}

full_step gate gate
full_step suite-zmtp suite_zmtp
full_step warnings-clang warnings_clang
full_step suite-asan-gcc suite_asan_gcc
full_step suite-tsan suite_tsan
full_step fuzz fuzz
full_step long long
full_step clean scripts/check_clean.sh
full_step container scripts/check_clean.sh --container
print_summary
