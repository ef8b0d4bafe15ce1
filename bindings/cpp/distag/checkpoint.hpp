// Checkpoints: values whose tensors may be sharded, in a folder of safetensors files.
#ifndef DISTAG_CHECKPOINT_HPP
#define DISTAG_CHECKPOINT_HPP

#include "futures.hpp"
#include "mesh.hpp"

namespace distag {
namespace checkpoint {

// Saves a map of tensors, numbers, texts and bytes. Replaces an earlier checkpoint in one instant. Collective. Blocks.
inline void save(const mesh& on, text directory, const value& given, nanoseconds timeout = nanoseconds{0},
                 outcome err = {}) {
  err.check(distag_checkpoint_save(on.get(), directory.c_str(), given.get(), timeout.count(), err.raw()));
}
inline void save(const mesh& on, text directory, const value& given, status& err) {
  save(on, directory, given, nanoseconds{0}, outcome(err));
}
// Saves the present values while the program goes on. Collective.
inline future<void> save_async(const mesh& on, text directory, const value& given,
                               nanoseconds timeout = nanoseconds{0}, outcome err = {}) {
  distag_future* made = nullptr;
  err.check(distag_checkpoint_save_async(on.get(), directory.c_str(), given.get(), timeout.count(), &made, err.raw()));
  return future<void>(made);
}
// Loads a checkpoint of any mesh, and files of other programs; tensors in `into` get their elements in place, others
// come deferred. With an empty mesh, loads for this process alone; otherwise collective. Blocks.
inline value load(const mesh& on, text directory, const value& into = {}, nanoseconds timeout = nanoseconds{0},
                  outcome err = {}) {
  value loaded;
  err.check(distag_checkpoint_load(on.get(), directory.c_str(), into.get(), timeout.count(), loaded.put(), err.raw()));
  return loaded;
}
inline value load(const mesh& on, text directory, const value& into, status& err) {
  return load(on, directory, into, nanoseconds{0}, outcome(err));
}
// The same while the program goes on, over a mesh.
inline future<value> load_async(const mesh& on, text directory, const value& into = {},
                                nanoseconds timeout = nanoseconds{0}, outcome err = {}) {
  distag_future* made = nullptr;
  err.check(distag_checkpoint_load_async(on.get(), directory.c_str(), into.get(), timeout.count(), &made, err.raw()));
  return future<value>(made);
}

}  // namespace checkpoint
}  // namespace distag

#endif
