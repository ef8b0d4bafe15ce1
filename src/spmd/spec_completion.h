#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layout/placement.h"
#include "spmd/traced_program.h"

namespace distag::spmd {

// The specs for leaves of a program that have none, which follow from the leaves that have one.
//
// An op does with its inputs what choose_placement() says, as when the program runs. If an op cuts a repeated input
// along an axis, which costs nothing, the input gets that cut: a leaf at once; a result by the op that makes it, if all
// its readers want the same and that op moves no more. Forward and backward, until nothing changes. A leaf is repeated
// along an axis if two ops want different cuts, or if its cut makes some op move more than with all open leaves
// repeated. All then begins again, so that nothing follows from a cut that was taken back. To move more is a higher
// class of moves, or more bytes in the same class.
class SpecCompletion {
 public:
  // `fixed`: of each leaf; empty: the spec follows.
  SpecCompletion(const layout::MeshShape& mesh, const TracedProgram& program,
                 std::vector<std::optional<layout::Spec>> fixed);

  // The spec in which the item's first reader finds it.
  const layout::Spec& spec_of(size_t item) const { return made_[item]; }
  // The moves of a step; and the spec of its first result before a reader adds up parts of a sum.
  layout::MoveClass moves_of(size_t step) const { return moves_[step].moves; }
  const layout::Spec& result_of(size_t step) const { return results_[step]; }
  // The number of times that an op was placed.
  size_t placement_count() const { return placements_.count; }
  size_t count_of_large() const { return placements_.count_of_large; }  // ops of many inputs
  // Why the leaf, which was not fixed, has its spec.
  std::string why(size_t leaf) const;

 private:
  struct Placed {
    layout::Rule rule;
    layout::Placement placement;
  };
  // The moves that bring the inputs of a step; less is better.
  struct Moved {
    layout::MoveClass moves = layout::MoveClass::kNone;
    int64_t bytes = 0;
    auto operator<=>(const Moved&) const = default;
  };
  struct Placements {
    std::unordered_map<std::string, Placed> kept;
    Placed large;  // of the latest op with many inputs: each placement takes memory for all of them
    size_t count = 0;
    size_t count_of_large = 0;
  };
  // The cut of an item along an axis that steps wish.
  struct Wish {
    enum class State : uint8_t { kNone, kOne, kContrary } state = State::kNone;
    uint8_t dim = 0;
    uint32_t uses = 0;  // the number of uses that wish it
  };
  // An input of a step. If a step has an item twice, the first use stands for both.
  struct Use {
    size_t item = TracedProgram::kNone;
    size_t step = 0;
    size_t first = 0;                      // the first use of the item in the step
    size_t before = TracedProgram::kNone;  // the previous use of the item in another step: first uses only
    size_t after = TracedProgram::kNone;
    layout::Spec left;            // the item's spec behind it, if a sum was made; for a first use
    layout::AxisSet wishing = 0;  // axes along which it has a wish
  };
  struct Wiring {
    std::vector<Use> uses;
    std::vector<size_t> first_use;   // of each step
    std::vector<size_t> use_count;   // of each item
    std::vector<size_t> first_read;  // of each item: a use, or kNone
    std::vector<size_t> maker;       // of each item: the step, or kNone
  };
  struct Cut {
    size_t use;
    size_t dim;
  };
  using Wishes = std::array<Wish, layout::kMaxAxes>;
  using Cuts = std::vector<Cut>;

  bool is_free(size_t item) const { return item < fixed_.size() && !fixed_[item]; }
  bool is_taken_back(size_t item, size_t axis) const { return taken_back_.count({item, axis}) != 0; }
  void list_uses();
  const layout::Spec& read(size_t use) const;
  layout::OpCall call_of(size_t step, std::vector<layout::Operand>& operands) const;
  const Placed& placed(const layout::OpCall& call);  // until the next call
  void begin();
  bool complete();  // false: some cut was taken back
  void forward();
  const layout::Placement& place(size_t step);
  void place_behind(std::span<const size_t> items, size_t last);
  void add_readers(size_t item, std::set<size_t>& steps) const;
  bool moves_no_more();
  void blame(size_t step);
  std::vector<std::pair<size_t, size_t>> cuts_before(size_t step) const;
  Moved moves_without(size_t step, size_t item, size_t axis);
  void hear(size_t use, const layout::Spec& wanted);
  void check_costs(size_t step);
  void backward();
  void backward(size_t step, size_t output, size_t axis);
  bool find_cuts(size_t step, int factor, size_t axis, const layout::Rule& rule, Cuts& cuts) const;
  void wish(size_t use, size_t axis, size_t dim);
  void take_back(size_t item, size_t axis, std::string why);
  std::string name_of(size_t step) const;

  const layout::MeshShape& mesh_;
  const TracedProgram& program_;
  const std::vector<std::optional<layout::Spec>> fixed_;
  Wiring wiring_;
  std::vector<layout::Spec> made_;  // of each item: as given, or as its step leaves it
  std::vector<Moved> moves_;
  std::vector<Moved> least_moves_;  // where all leaves that are not fixed are repeated
  std::vector<layout::Spec> results_;
  std::vector<Wishes> wishes_;
  std::map<std::pair<size_t, size_t>, std::string> taken_back_;  // by leaf and axis
  std::map<std::pair<size_t, size_t>, size_t> given_;            // by leaf and axis: the step that it follows from
  bool has_changed_ = false;
  bool has_taken_back_ = false;
  Placements placements_;
};

}  // namespace distag::spmd
