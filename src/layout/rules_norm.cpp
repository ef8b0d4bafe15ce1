// Rules of norms that need their normalized dims whole.
#include "layout/rule_maker.h"

namespace distag::layout {
namespace {

void pass_of_norm(RuleMaker& maker, size_t dim) {
  const int factor = maker.factor();
  maker.place_input(0, dim, factor);
  maker.place_output(dim, factor);
}

void check_channel_factors(const RuleMaker& maker) {
  if (maker.shape(0).size() < 2) maker.refuse("x {}: [n, c, ..] is wanted", to_string(maker.shape(0)));
  for (size_t i = 1; i < maker.call().inputs.size(); ++i) {
    if (!maker.has_input(i) || maker.shape(i) == Dims{maker.shape(0)[1]}) continue;
    maker.refuse("{} does not fit the channels of x {}", to_string(maker.shape(i)), to_string(maker.shape(0)));
  }
}

}  // namespace

void rms_norm_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const int64_t whole = get_int(maker.call().attributes, "normalized_dims", 1);
  if (whole < 1 || whole > static_cast<int64_t>(x.size())) {
    maker.refuse("normalized_dims {} of a tensor of {} dims", whole, x.size());
  }
  const Dims tail(std::span<const int64_t>(x).last(static_cast<size_t>(whole)));
  if (maker.has_input(1) && maker.shape(1) != tail) {
    maker.refuse("weight {} does not fit the dims {}", to_string(maker.shape(1)), to_string(tail));
  }
  maker.add_output(x);
  for (size_t d = 0; d + static_cast<size_t>(whole) < x.size(); ++d) pass_of_norm(maker, d);
}

// Channels are whole, as a group may have channels of several parts.
void group_norm_rule(RuleMaker& maker) {
  check_channel_factors(maker);
  const int64_t groups = get_int(maker.call().attributes, "num_groups", 1);
  if (groups < 1 || maker.shape(0)[1] % groups != 0) {
    maker.refuse("num_groups {} must be above 0 and divide the {} channels", groups, maker.shape(0)[1]);
  }
  maker.add_output(maker.shape(0));
  pass_of_norm(maker, 0);
}

// Channels pass. Statistics of the batch need the batch whole; with given statistics all dims pass.
void batch_norm_rule(RuleMaker& maker) {
  check_channel_factors(maker);
  const bool is_training = get_bool(maker.call().attributes, "training", true);
  if (is_training && (maker.has_input(3) || maker.has_input(4))) {
    maker.refuse("training takes mean and variance of x: leave out running_mean and running_var");
  }
  if (!is_training && (!maker.has_input(3) || !maker.has_input(4))) {
    maker.refuse("without training it needs running_mean and running_var");
  }
  const Dims& x = maker.shape(0);
  maker.add_output(x);
  const int channel = maker.factor();
  maker.place_input(0, 1, channel);
  maker.place_output(1, channel);
  for (size_t i = 1; i < maker.call().inputs.size(); ++i) {
    if (maker.has_input(i)) maker.place_input(i, 0, channel);
  }
  if (is_training) return;
  for (size_t d = 0; d < x.size(); ++d) {
    if (d != 1) pass_of_norm(maker, d);
  }
}

}  // namespace distag::layout
