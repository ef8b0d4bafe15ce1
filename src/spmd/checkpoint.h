#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/random.h"
#include "spmd/background.h"
#include "spmd/program.h"
#include "tensor/value.h"

// Saves and loads values whose tensors may be sharded. Members agree at each step, so that all have the same outcome.
// Saves and loads of one line follow one another.
namespace distag::spmd {

// Replaces what the folder had, in one instant. A failure on any member, as of a disk, is the failure of all, with its
// rank: the former checkpoint stays, and the mesh goes on. Throws the error of the mesh if that ends. The calling
// thread writes the files, and blocks.
void save_checkpoint(const Line& line, const std::string& folder, const Value& value, Nanos timeout, Random& random);
// The same beside the program, with the values at the time of the call. The future's value is null.
Begun save_checkpoint_async(const Line& line, const std::string& folder, const Value& value, Nanos timeout,
                            std::unique_ptr<Random> random, OnLost on_lost);

// Loads into the tensors of `into` (null: none) in place, on all members or on none. Gives all that was saved; tensors
// that `into` lacks are deferred. Throws NOT_FOUND, PROTOCOL, INVALID_ARGUMENT, INVALID_STATE, as
// distag_checkpoint_load says.
Value load_checkpoint(const Line& line, const std::string& folder, const Value& into, Nanos timeout);
Begun load_checkpoint_async(const Line& line, const std::string& folder, const Value& into, Nanos timeout,
                            OnLost on_lost);
// Loads in this process alone, without a mesh.
Value load_checkpoint_alone(const std::string& folder, const Value& into);
// Reads and checks every element, in pieces. Throws as a load does.
void check_checkpoint(const std::string& folder);

}  // namespace distag::spmd
