"""Plants violations into small trees and expects each to be found, and a clean tree to pass."""
import sys

import check_layers
import check_on_loop
import check_rules

LAYERS = """# comment
2 rpc
1 tensor transport
0 base
deny rpc tensor
fence xtensor/ : tensor/*.cpp
fence zmq.h : transport/zmq/*.cpp
fence sys/ : base transport
fence _generated.h : transport/*.cpp
"""
CLEAN = {
    "layers.txt": LAYERS,
    "base/error.h": "#pragma once\n#include <string>\n",
    "tensor/tensor.h": '#pragma once\n#include "base/error.h"\n',
    "tensor/tensor.cpp": '#include "tensor/tensor.h"\n#include <xtensor/xarray.hpp>\n',
    "transport/zmq/socket.cpp": "#include <zmq.h>\n#include <sys/socket.h>\n",
    "rpc/call.h": '#pragma once\n#include "base/error.h"\n',
}
# A file that is added or replaced, and a part of the complaint that must come.
LAYER_VIOLATIONS = [
    ("base/up.h", '#include "tensor/tensor.h"\n', "may not see tensor"),
    ("tensor/aside.h", '#include "transport/frame.h"\n', "no file of src"),
    ("rpc/denied.h", '#  include "tensor/tensor.h"\n', "may not see tensor"),
    ("tensor/tensor.h", "#include <xtensor/xarray.hpp>\n", "is kept to"),
    ("tensor/tensor.cpp", '#include <vector>\n#include "tensor/tensor.h"\n', "first include"),
    ("transport/inproc/socket.cpp", "#include <zmq.h>\n", "is kept to"),
    ("transport/zmq/frame.h", "#include <zmq.h>\n", "is kept to"),
    ("rpc/call.cpp", '#include "rpc/call.h"\n#include <sys/socket.h>\n', "is kept to"),
    ("rpc/message.cpp", '#include "call_generated.h"\n', "is kept to"),
    ("stray/room.h", "#pragma once\n", "no layer"),
    ("base/local.h", '#include "error.h"\n', "no file of src"),
]
RULE_VIOLATIONS = [
    ("src/rpc/a.cpp", "void f() { pthread_atfork(nullptr, nullptr, nullptr); }\n", "base/fork_handlers.cpp"),
    ("src/base/wait.cpp", "std::this_thread::sleep_for(1ms);\n", "wait for a condition"),
    ("src/base/now.cpp", "std::chrono::system_clock::now();\n", "no wall clock"),
    ("src/base/dice.cpp", "std::random_device device;\n", "no hidden randomness"),
    ("src/base/die.cpp", "std::abort();\n", "never dies"),
    ("src/base/print.cpp", "std::cerr << 1;\n", "no output"),
    ("src/base/long.cpp", "\n" * 601, "more than 600"),
    ("tests/unit/long_test.cpp", "\n" * 901, "more than 900"),
    ("src/base/catch.cpp", "try {\n} catch (...) {\n}\n", "an empty catch"),
    ("samples/long.c", "\n" * 301, "more than 300"),
    ("src/base/guard.h", "int x;\n", "#pragma once"),
    ("src/group/a.h", "#pragma once\nvirtual uint64_t refused() const { return 0; }\n", "answer in silence"),
    ("samples/note.c", "/* " + "TO" + "DO */\n", "an issue"),
    ("src/capi/a.cpp", "int distag_a(int a) {\n  return work(a);\n}\n", "into a guard"),
    ("src/capi/b.cpp", "int distag_b(void) { return work(); }\n", "into a guard"),
    ("src/capi/data.cpp", "{\n  HostData data(user_data, destroy);\n}\n", "take GivenData"),
    ("src/base/file.cpp", "std::ifstream file(path);\n", "programs that the host starts"),
    ("tools/open.cpp", "open(path, O_RDONLY |\n O_NOCTTY);\n", "with CLOEXEC"),
    ("src/transport/socket.cpp", "socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0);\n", "with CLOEXEC"),
    ("src/base/bell.cpp", "eventfd(0, 0);\n", "with CLOEXEC"),
    ("src/base/twin.cpp", "::dup(descriptor);\n", "with CLOEXEC"),
    ("src/base/shared.cpp", "namespace {\n\nMutex table_mutex;\nclass A {\n  Mutex mutex_;\n};\n}\n", "ProcessState"),
    ("tests/unit/base/a_test.cpp", "TEST_F(Traps, Fall) {}\n", "ends in Test"),
]
LOOP_HEADER = """// Owns the calls. On
// the loop.
class Calls {
 public:
  explicit Calls(Loop& loop);
  static int most();
  Error start(int call, Options options = {});

  // Any thread.
  void count();
  void forget();

  int size() const;
  void leave();  // any thread
  void end();
  bool is_over() const { return over_; }

 private:
  void end(int call);
};

// Made on the loop that it is given.
class Free {
 public:
  void run();
  // On the loop.
  void stop();
};
"""
LOOP_SOURCE = """Calls::Calls(Loop& loop) : loop_(loop) { begin(); }
int Calls::most() { return get(5); }
Error Calls::start(int call, Options options) {
  assert_on_loop(loop_);
  return begin(call);
}
void Calls::count() { add(1); }
void Calls::forget() { add(-1); }
int Calls::size() const { return calls_.size(); }
void Calls::leave() { post(1); }
void Calls::State::end() {
  assert_on_loop(loop_);
}
void Calls::end() { state_->end(); }
void Calls::end(int call) { erase(call); }
void Free::run() { post(1); }
void Free::stop() {
  port_->assert_on_loop();
}
"""
# A text of the source, the one in its place, and the method that must be complained of.
LOOP_VIOLATIONS = [
    ("{\n  assert_on_loop(loop_);\n  return begin(call);", "{\n  return begin(call);", "Calls::start"),
    ("  assert_on_loop(loop_);\n  return begin(call);", "  check();\n  assert_on_loop(loop_);", "Calls::start"),
    ("return calls_.size();", "return find(1);", "Calls::size"),
    ("State::end() {\n  assert_on_loop(loop_);", "State::end() {\n  erase(1);", "Calls::end"),
    ("{ state_->end(); }", "{ state_->stop(); }", "Calls::end"),
    ("  port_->assert_on_loop();", "  post(1);", "Free::stop"),
]


def check_loop_self(failures):
    clean = {"rpc/calls.h": LOOP_HEADER, "rpc/calls.cpp": LOOP_SOURCE}
    complaints, count = check_on_loop.check(clean)
    if complaints or count != 4:
        failures.append(f"the clean class: {count} methods on the loop, {complaints}")
    for text, planted, expected in LOOP_VIOLATIONS:
        complaints, _ = check_on_loop.check({**clean, "rpc/calls.cpp": LOOP_SOURCE.replace(text, planted)})
        if len(complaints) != 1 or expected not in complaints[0]:
            failures.append(f"{planted!r}: expected one complaint of {expected}, got {complaints}")


KERNEL = "struct Rows {\n  struct Kernel {\n    DISTAG_INLINE static void run(int) {}\n  };\n};\n"
KERNEL_VIOLATIONS = [
    ({"a.cpp": KERNEL}, "", "write it as an expression of xtensor, or say why not in src/ops/README.md"),
    ({"a.cpp": KERNEL, "b.cpp": ""}, "| `Rows` | a.cpp, b.cpp | x | 1.2 | 2 | 3 | | t |", "take the row out"),
    ({"a.cpp": KERNEL}, "| `Rows` | a.cpp | x | 1.2 | | 3 | | t |", "`Rows` has neither figures nor another reason"),
]


def main():
    failures = []
    check_loop_self(failures)
    if check_layers.check(CLEAN):
        failures.append(f"the clean tree is refused: {check_layers.check(CLEAN)}")
    for path, text, expected in LAYER_VIOLATIONS:
        complaints = check_layers.check({**CLEAN, path: text})
        if len(complaints) != 1 or expected not in complaints[0]:
            failures.append(f"{path}: expected one complaint with {expected!r}, got {complaints}")
    if check_rules.check_text("src/base/a.h", '#pragma once\n// sleep(1)\nconst char* kText = "sleep(1)";\n'):
        failures.append("a comment or a text counts as code")
    if check_rules.check_text("src/base/a.cpp", "try {\n} catch (...) {\n  // Nobody waits.\n}\n"):
        failures.append("a catch with a reason is refused")
    for files, table, expected in KERNEL_VIOLATIONS:
        complaints = check_rules.check_kernels(files, table)
        if [expected] != [complaint.split(": ")[-1] for complaint in complaints]:
            failures.append(f"{files}: expected {expected!r} alone, got {complaints}")
    if check_rules.check_kernels({"a.cpp": KERNEL}, "| `Rows` | a.cpp | x | 1.2 | 2 | 3 | | t |"):
        failures.append("a kernel with its figures is refused")
    for path, text, expected in RULE_VIOLATIONS:
        complaints = check_rules.check_text(path, text)
        if len(complaints) != 1 or expected not in complaints[0]:
            failures.append(f"{path}: expected one complaint with {expected!r}, got {complaints}")
    print("\n".join(failures))
    print(f"{len(LAYER_VIOLATIONS) + len(RULE_VIOLATIONS) + len(LOOP_VIOLATIONS) + len(KERNEL_VIOLATIONS)} planted, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
