#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tensor/value.h"

// The value of a checkpoint as a tree in JSON, its tensors by path. Pure: text in, text out.
namespace distag::store {

// A key as a part of a path.
std::string escaped(std::string_view key);

// Calls visit(path, tensor) for each tensor of a value, in the order of the paths, and gives the tree. Throws
// INVALID_ARGUMENT, naming the path, for values that cannot be saved (references, objects).
std::string print_tree(const Value& value, const std::function<void(const std::string&, const Tensor&)>& visit);
// The entries of a tree by path: numbers, texts and bytes in JSON; tensors as their paths; lists and maps without their
// items.
std::map<std::string, std::string> entries_of_tree(const std::string& tree);
// The value of a tree, with what `make` gives for each path of a tensor. Throws PROTOCOL.
Value parse_tree(std::string_view tree, const std::string& file,
                 const std::function<Value(const std::string& path)>& make);

}  // namespace distag::store
