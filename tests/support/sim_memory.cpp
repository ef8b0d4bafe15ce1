#include "support/sim_memory.h"

#include <utility>

namespace distag::sim {
namespace {

thread_local SimMemory* t_memory = nullptr;

}  // namespace

SimMemory* exchange_memory(SimMemory* memory) { return std::exchange(t_memory, memory); }
SimMemory* current_memory() { return t_memory; }

}  // namespace distag::sim
