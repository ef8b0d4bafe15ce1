#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "spmd/plan_search.h"
#include "spmd/plan_step.h"

namespace distag::spmd {

// The choice of specs for the leaves of a program, as tables of what each choice costs.
//
// A leaf without a spec is a variable; its values are the cuts, axes of a dim in the order of the mesh, that leave each
// member some elements. An op whose inputs depend on one variable depends on it too. An op with several makes a new
// variable of all outcomes that later ops can tell apart: the specs of results, the rest of a sum, the gradients that
// go back, and the buckets that leaves need. A table ties it to its inputs. Where gradients meet, a table covers all
// that bring one. The last variable says which kinds of buckets exist, each of which takes one start.
//
// No assignment costs less in a step than in the tables. It costs exactly as much unless a bucket is full before the
// end, the model is rough, or `has_gaps`.
class PlanModel {
 public:
  struct Limits {
    size_t most_combinations = 4096;             // of the inputs of one op
    size_t most_rows = size_t{1} << 18;          // of one table
    size_t most_meeting_rows = size_t{1} << 12;  // of one table where gradients meet
    // If gradients meet, keeps only the sums that they are parts of, with a lower bound of the cost of bringing them
    // to the cuts of the tensor: less than a step takes, but few rows.
    bool is_rough = false;
    // Axes whose places are chosen. All others stay where `now`, the specs of all leaves, has them.
    layout::AxisSet free_axes = ~layout::AxisSet{0};
    std::vector<layout::Spec> now = {};
    bool ends_at_cuts = false;                // a model with cuts is of no use, and may be left unfinished
    std::function<bool()> is_over = nullptr;  // asked while tables are made: throws DEADLINE
  };

  // `fixed`: of each leaf; empty: the search chooses its spec. `copies`: of each leaf, the number of times that its
  // bytes count as memory.
  PlanModel(StepCosts& costs, const std::vector<std::optional<layout::Spec>>& fixed,
            const std::vector<uint64_t>& copies, Limits limits);

  const SearchProblem& problem() const { return problem_; }  // without a limit of memory
  // The specs of all leaves for an assignment.
  std::vector<layout::Spec> leaves_of(const std::vector<uint32_t>& values) const;
  uint64_t fixed_bytes() const { return fixed_bytes_; }  // besides those of the problem
  // Some outcomes were left out, as there were too many: a better choice may have been missed.
  bool has_cuts() const { return has_cuts_; }
  // Some costs were left out: the tables may give less than a step takes.
  bool has_gaps() const { return has_gaps_; }
  bool is_rough() const { return limits_.is_rough; }
  // Rows of tables that were worked out, instead of shared.
  size_t worked_out() const { return known_.rows; }

 private:
  static constexpr uint32_t kNoVariable = UINT32_MAX;
  // Values of something, one for each value of a variable; without a variable, the only one.
  template <typename T>
  struct View {
    uint32_t variable = kNoVariable;
    std::vector<T> values{T()};
    const T& at(uint32_t value) const { return values[variable == kNoVariable ? 0 : value]; }
  };
  using Specs = StepCosts::Specs;
  using SpecView = View<layout::Spec>;
  using Kinds = uint32_t;  // a bit for each kind of bucket

  // All combinations of the values of some variables, the last one fastest.
  class Combinations;
  // The result of an op for one combination of its inputs.
  struct Row {
    const StepCosts::Applied* applied = nullptr;
    Picoseconds cost = 0;
    Kinds kinds = 0;
    uint32_t outcome = 0;
    Specs arriving;  // gradients that meet others, of each input
  };
  struct OpRows {
    std::vector<Row> rows;
    std::vector<bool> changing;    // of each input: later ops find it in another spec
    std::vector<uint32_t> one_of;  // of each outcome: one of its rows
    uint32_t count = 0;            // of outcomes that are possible, the first ones
    Costs costs;                   // with one variable for each of its rows, else also for each outcome
  };
  struct MeetingRows {
    Costs costs;
    std::vector<Kinds> kinds;  // of a leaf
  };

  uint32_t add_variable(size_t size);
  bool meets(size_t step, size_t input) const;
  void add_leaf(size_t leaf, const std::optional<layout::Spec>& fixed, uint64_t copies);
  void add_step(size_t step);
  // A variable of groups of another variable's values (UINT32_MAX: not allowed); kNoVariable if there is one group.
  uint32_t grouped(uint32_t variable, const std::vector<uint32_t>& group_of, uint32_t count);
  static Costs costs_of_groups(const std::vector<uint32_t>& group_of, uint32_t count);
  void group_alike(std::vector<SpecView*> views, size_t most);
  void add_meeting(size_t item);
  // Equal steps whose inputs have equal specs share their rows, and so do gradients that meet alike.
  const OpRows& rows_of(size_t step, const std::vector<SpecView>& inputs, const Combinations& all);
  const MeetingRows& rows_of(size_t item, const SpecView& own, const Combinations& all);
  OpRows work_out(size_t step, const std::vector<SpecView>& inputs, const Combinations& all);
  MeetingRows work_out(size_t item, const SpecView& own, const Combinations& all);
  Row row_of(size_t step, const std::vector<SpecView>& inputs, const Combinations& all, size_t index);
  void make_rough(size_t item, const layout::Spec& own, layout::Spec& gradient, Picoseconds& cost) const;
  std::vector<bool> changing_inputs(size_t step, const std::vector<SpecView>& inputs, const std::vector<Row>& rows,
                                    const Combinations& all) const;
  static Costs costs_of(const OpRows& op, bool has_outcome);
  void number_outcomes(size_t step, OpRows& op) const;
  void add_kinds(std::vector<uint32_t> variables, std::vector<Kinds> kinds);
  void close_kinds();
  void add_activations();
  void add_bytes(const SpecView& view, size_t value, uint64_t bytes);
  Kinds bit_of(const StepCosts::BucketKind& kind);
  void check_time() const;

  StepCosts& costs_;
  const Limits limits_;
  SearchProblem problem_;
  std::vector<SpecView> made_;                   // of each item
  std::vector<SpecView> now_;                    // of each item, as its next reader finds it
  std::vector<std::vector<SpecView>> arrivals_;  // gradients of each item that meet others
  size_t leaf_count_;
  uint64_t fixed_bytes_ = 0;
  bool has_cuts_ = false;
  bool has_gaps_ = false;
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, uint32_t> groups_;
  // Rows and costs that were worked out, by all that they depend on.
  struct Known {
    std::map<std::vector<uint32_t>, Costs> groups;
    std::unordered_map<std::string, OpRows> ops;
    std::unordered_map<std::string, MeetingRows> meetings;
    size_t rows = 0;
  };
  Known known_;
  std::map<StepCosts::BucketKind, uint32_t> kinds_;  // and their bits
  struct KindTable {
    std::vector<uint32_t> variables;
    std::vector<Kinds> kinds;
  };
  std::vector<KindTable> kind_tables_;
};

}  // namespace distag::spmd
