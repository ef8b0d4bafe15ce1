#include "precision/exact_rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace distag::testing {
namespace {

using ops::make_attributes;

using NumberRows = std::vector<std::vector<double>>;

// The same numbers in each run.
class Draws {
 public:
  double up_to(double limit) { return between(0, limit); }
  double between(double low, double high) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return low + (high - low) * (static_cast<double>((state_ ^ (state_ >> 29)) >> 11) * 0x1p-53);
  }
  double of_sign(double limit) { return between(-limit, limit); }
  int whole(int low, int high) { return low + static_cast<int>(between(0, high - low + 0.999)); }
  // Numbers of both signs, equally many of each exponent.
  double of_exponents(int low, int high) {
    return std::ldexp(of_sign(1) < 0 ? -1 - up_to(1) : 1 + up_to(1), whole(low, high));
  }

 private:
  uint64_t state_ = 1;
};

// ---- pow ------------------------------------------------------------------------------------------------------------

struct Exponents {
  int least;  // of subnormal numbers
  int most;
};
constexpr Exponents exponents_of(bool is_float) { return is_float ? Exponents{-149, 127} : Exponents{-1074, 1023}; }

// Powers of the whole range, subnormal ones too: the exponent follows from the base and the logarithm of the power.
NumberRows powers(bool is_float, const std::function<double(Draws&)>& base_of) {
  const auto [least, most] = exponents_of(is_float);
  Draws draws;
  NumberRows rows;
  while (rows.size() < 5000) {
    const double base = is_float ? static_cast<double>(static_cast<float>(base_of(draws))) : base_of(draws);
    if (base == 1) continue;
    const double exponent = draws.between(least - 3, most + 1) / std::log2(base);
    if (std::fabs(exponent) < std::ldexp(1.0, most)) rows.push_back({base, exponent});
  }
  return rows;
}

NumberRows powers_of_all_bases(bool is_float) {
  const auto [least, most] = exponents_of(is_float);
  return powers(is_float,
                [low = least + 1, high = most - 1](Draws& draws) { return std::fabs(draws.of_exponents(low, high)); });
}

NumberRows powers_near_1(bool is_float) {
  const int digits = is_float ? 24 : 53;
  return powers(is_float, [digits](Draws& draws) { return 1 + draws.of_exponents(1 - digits, -1); });
}

NumberRows plain_powers(bool is_float) {
  const auto [least, most] = exponents_of(is_float);
  Draws draws;
  NumberRows rows;
  for (const double exponent : {-3.0, -2.0, -1.0, -0.5, 0.0, 0.1, 1.0 / 3, 0.5, 1.0, 1.5, 2.0, 3.0, 7.25, 1e-3, 1e-9}) {
    for (int i = 0; i < 400; ++i) rows.push_back({std::fabs(draws.of_exponents(least, most)), exponent});
  }
  return rows;
}

NumberRows powers_of_negative_bases(bool) {
  Draws draws;
  NumberRows rows;
  for (int exponent = -40; exponent <= 40; ++exponent) {
    for (int i = 0; i < 100; ++i)
      rows.push_back({-std::fabs(draws.of_exponents(-30, 30)), static_cast<double>(exponent)});
  }
  return rows;
}

ExactNumbers exact_power(const ExactNumbers& x) { return {power(x[0], x[1])}; }

// ---- sums of exponentials -------------------------------------------------------------------------------------------

constexpr size_t kWidth = 5;
constexpr double kInf = std::numeric_limits<double>::infinity();

// Rows that are spread widely, equal, or have one element that is huge, or hidden (-infinity).
NumberRows logits(bool is_float) {
  Draws draws;
  NumberRows rows;
  const auto add_rows = [&rows, &draws](double center, double spread, int count) {
    for (int i = 0; i < count; ++i) {
      std::vector<double>& row = rows.emplace_back();
      for (size_t k = 0; k < kWidth; ++k) row.push_back(center + draws.of_sign(spread));
    }
  };
  for (const double spread : {1e-3, 1.0, 20.0, is_float ? 60.0 : 400.0, 1e4, 1e30}) add_rows(0, spread, 800);
  for (const double center : {-300.0, 1.0, 700.0, 1e5}) add_rows(center, 4, 500);
  for (const double all : {0.0, -0.3, 1e-30, 700.0, -1e9, 1e30}) rows.emplace_back(kWidth, all);
  for (size_t at = 0; at < kWidth; ++at) {
    for (const double one : {1e30, -1e30, -kInf}) {
      for (int i = 0; i < 100; ++i) {
        add_rows(0, 3, 1);
        rows.back()[at] = one;
      }
    }
  }
  return rows;
}

size_t largest_of(const ExactNumbers& x, size_t count) {
  size_t largest = 0;
  for (size_t i = 1; i < count; ++i) {
    if (x[i].value > x[largest].value) largest = i;
  }
  return largest;
}

// The exponentials below the largest element, 1 for that; the sum of all others.
struct Exponentials {
  size_t largest;
  ExactNumbers each;
  Exact others;

  explicit Exponentials(const ExactNumbers& x) : largest(largest_of(x, x.size())) {
    for (size_t i = 0; i < x.size(); ++i) {
      each.push_back(exp(x[i] - x[largest]));
      if (i != largest) others = others + each[i];
    }
  }
};

ExactNumbers exact_softmax(const ExactNumbers& x) {
  const Exponentials terms(x);
  ExactNumbers y;
  for (const Exact& term : terms.each) y.push_back(term / (Exact(1) + terms.others));
  return y;
}

ExactNumbers exact_log_softmax(const ExactNumbers& x) {
  const Exponentials terms(x);
  ExactNumbers y;
  for (const Exact& each : x) y.push_back((each - x[terms.largest]) - log1p(terms.others));
  return y;
}

ExactNumbers exact_logsumexp(const ExactNumbers& x) {
  const Exponentials terms(x);
  return {x[terms.largest] + log1p(terms.others)};
}

Wide terms_of_logsumexp(const ExactNumbers& x, size_t) {
  const Exponentials terms(x);
  return without_sign(x[terms.largest].value) + log1p_of(terms.others.value);
}

template <size_t kTarget>
ExactNumbers exact_cross_entropy(const ExactNumbers& x) {
  const Exponentials terms(x);
  return {log1p(terms.others) + (x[terms.largest] - x[kTarget])};
}

// The exponential of a difference is off by as many roundings as the difference is large: here it is the distance below
// the largest element, of which there is that of the second.
Wide distance_below(const ExactNumbers& x, size_t place) {
  const size_t largest = largest_of(x, x.size());
  Wide nearest = 5000;
  for (size_t i = 0; i < x.size(); ++i) {
    const Wide distance = x[largest].value - x[i].value;
    if (i != largest && (i == place || place == largest) && distance < nearest) nearest = distance;
  }
  return nearest;
}
Wide size_of_softmax(const ExactNumbers& x, size_t place) {
  const Wide y = exact_softmax(x)[place].value;
  return place == largest_of(x, x.size()) ? y : y * (1 + distance_below(x, place));
}
Wide size_of_log_softmax(const ExactNumbers& x, size_t place) {
  const Wide y = without_sign(exact_log_softmax(x)[place].value);
  return place == largest_of(x, x.size()) ? y * (1 + distance_below(x, place)) : y;
}
template <size_t kTarget>
Wide size_of_cross_entropy(const ExactNumbers& x, size_t) {
  return size_of_log_softmax(x, kTarget);
}
Wide condition_of_softmax(const ExactNumbers& x, size_t input, size_t output) {
  return 1 + distance_below(x, input) + (input == output ? Wide(0) : distance_below(x, output));
}
Wide condition_of_input(const ExactNumbers& x, size_t input, size_t) { return 1 + distance_below(x, input); }

// ---- attention: q, 3 keys, 3 values ---------------------------------------------------------------------------------

NumberRows queries(bool is_float) {
  Draws draws;
  NumberRows rows;
  for (const double size : {0.1, 1.0, is_float ? 6.0 : 18.0}) {
    for (int i = 0; i < 2000; ++i) {
      std::vector<double>& row = rows.emplace_back();
      for (int k = 0; k < 7; ++k) row.push_back(draws.of_sign(k < 4 ? size : 1));
    }
  }
  return rows;
}

ExactNumbers exact_attention(const ExactNumbers& x) {
  const ExactNumbers shares = exact_softmax({x[0] * x[1], x[0] * x[2], x[0] * x[3]});
  return {shares[0] * x[4] + shares[1] * x[5] + shares[2] * x[6]};
}

Wide condition_of_attention(const ExactNumbers& x, size_t, size_t) {
  Wide most = 0;
  for (size_t k = 1; k < 4; ++k) most = std::max(most, without_sign(x[0].value * x[k].value));
  return 1 + 2 * most;
}
Wide size_of_attention(const ExactNumbers& x, size_t) { return condition_of_attention(x, 0, 0); }

// ---- elu ------------------------------------------------------------------------------------------------------------

NumberRows elements(bool is_float) {
  const auto [least, most] = exponents_of(is_float);
  Draws draws;
  NumberRows rows;
  for (int i = 0; i < 5000; ++i) rows.push_back({draws.of_exponents(least, most - 1)});
  for (int i = 0; i < 5000; ++i) rows.push_back({draws.of_sign(is_float ? 110 : 760)});
  return rows;
}

template <int kQuarters>
ExactNumbers exact_elu(const ExactNumbers& x) {
  return {x[0].value > 0 ? x[0] : Exact(Wide(kQuarters) / 4) * expm1(x[0])};
}

// ---- losses of pairs ------------------------------------------------------------------------------------------------

NumberRows pairs(bool is_float) {
  const auto [least, most] = exponents_of(is_float);
  Draws draws;
  NumberRows rows;
  for (int i = 0; i < 5000; ++i) {
    rows.push_back({draws.of_exponents(least / 2, most / 2 - 1), draws.of_exponents(least / 2, most / 2 - 1)});
    rows.push_back({draws.of_sign(3), draws.of_sign(3)});
    const double near = draws.of_sign(100);
    rows.push_back({near, near + draws.of_exponents(is_float ? -20 : -49, 0)});
  }
  return rows;
}

ExactNumbers exact_mse(const ExactNumbers& x) { return {(x[0] - x[1]) * (x[0] - x[1])}; }

template <int kQuarters>
ExactNumbers exact_huber(const ExactNumbers& x) {
  const Exact difference = x[0] - x[1];
  const Exact distance = difference.value < 0 ? -difference : difference;
  const Exact limit = Wide(kQuarters) / 4;
  const Exact half(Wide(1) / 2);
  return {distance.value <= limit.value ? half * distance * distance : limit * (distance - half * limit)};
}

// Logits of the whole range, and targets.
NumberRows logits_and_targets(bool is_float) {
  Draws draws;
  NumberRows rows = elements(is_float);
  for (std::vector<double>& row : rows) {
    const double near_end = std::fabs(draws.of_exponents(is_float ? -30 : -60, -2));
    const int kind = draws.whole(0, 3);
    row.push_back(kind == 0 ? draws.up_to(1) : kind == 1 ? near_end : kind == 2 ? 1 - near_end : draws.whole(0, 1));
  }
  return rows;
}

ExactNumbers exact_binary_cross_entropy(const ExactNumbers& x) {
  const bool is_above = x[0].value > 0;
  const Exact share = is_above ? Exact(1) - x[1] : -x[1];
  return {x[0] * share + log1p(exp(is_above ? -x[0] : x[0]))};
}
Wide terms_of_binary_cross_entropy(const ExactNumbers& x, size_t place) {
  return place == 0 ? std::min(x[1].value, 1 - x[1].value) : Wide(0);
}

// Logarithms beside shares from 1 to the smallest.
NumberRows logs_and_shares(bool is_float) {
  Draws draws;
  NumberRows rows;
  for (int i = 0; i < 5000; ++i) {
    const double share = std::fabs(draws.of_exponents(is_float ? -149 : -1074, -1));
    rows.push_back({draws.between(is_float ? -100 : -700, 0), share});
    rows.push_back({std::log(share) + draws.of_sign(0.1), share});
  }
  return rows;
}
ExactNumbers exact_divergence(const ExactNumbers& x) { return {x[1] * (log(x[1]) - x[0])}; }
Wide logs_of_divergence(const ExactNumbers& x) { return without_sign(x[0].value) + without_sign(log_of(x[1].value)); }
Wide terms_of_divergence(const ExactNumbers& x, size_t) { return x[1].value * logs_of_divergence(x); }
Wide slope_terms_of_divergence(const ExactNumbers& x, size_t place) {
  return place == 0 ? Wide(0) : 1 + logs_of_divergence(x);
}

NumberRows logs_and_logs(bool is_float) {
  Draws draws;
  NumberRows rows;
  const double most = is_float ? 105 : 750;
  for (int i = 0; i < 5000; ++i) {
    const double target = -draws.up_to(most);
    rows.push_back({-draws.up_to(most), target});
    rows.push_back({target + draws.of_sign(1), target});
  }
  return rows;
}
ExactNumbers exact_log_divergence(const ExactNumbers& x) { return {exp(x[1]) * (x[1] - x[0])}; }
Wide slope_terms_of_log_divergence(const ExactNumbers& x, size_t place) {
  return place == 0 ? Wide(0) : exp_of(x[1].value) * (1 + without_sign(x[1].value - x[0].value));
}

// ---- moments --------------------------------------------------------------------------------------------------------

constexpr size_t kOfRow = 6;

// Rows around a mean that is large beside their spread, down to some units in its last place.
NumberRows centered(bool is_float) {
  Draws draws;
  NumberRows rows;
  const double unit = is_float ? 0x1p-23 : 0x1p-52;
  for (const double mean : {0.0, 1.0, -300.0, 1e4, 1.5e8}) {
    for (const double spread : {1.0, 1e-3, 64 * unit, 4 * unit}) {
      const double size = mean == 0 ? 1 : std::fabs(mean);
      for (int i = 0; i < 500; ++i) {
        std::vector<double>& row = rows.emplace_back();
        for (size_t k = 0; k < kOfRow; ++k) row.push_back(mean + size * spread * draws.whole(-8, 8) / 8);
      }
    }
  }
  return rows;
}

Exact mean_of(const ExactNumbers& x) {
  Exact sum;
  for (const Exact& each : x) sum = sum + each;
  return sum / Exact(static_cast<Wide>(x.size()));
}

Exact squares_of(const ExactNumbers& x, Exact center) {
  Exact sum;
  for (const Exact& each : x) sum = sum + (each - center) * (each - center);
  return sum;
}

constexpr double kEpsilon = 1e-12;

ExactNumbers exact_var(const ExactNumbers& x) { return {squares_of(x, mean_of(x)) / Exact(Wide(x.size() - 1))}; }
ExactNumbers exact_std(const ExactNumbers& x) {
  const Exact variance = exact_var(x)[0];
  return {variance.value == 0 ? Exact(0) : root(variance)};
}
ExactNumbers exact_moment_norm(const ExactNumbers& x) {
  const Exact center = mean_of(x);
  const Exact scale = root(squares_of(x, center) / Exact(Wide(x.size())) + Exact(Wide(kEpsilon)));
  ExactNumbers y;
  for (const Exact& each : x) y.push_back((each - center) / scale);
  return y;
}
ExactNumbers exact_rms_norm(const ExactNumbers& x) {
  const Exact scale = root(squares_of(x, Exact(0)) / Exact(Wide(x.size())) + Exact(Wide(kEpsilon)));
  ExactNumbers y;
  for (const Exact& each : x) y.push_back(each / scale);
  return y;
}
ExactNumbers exact_norm(const ExactNumbers& x) { return {root(squares_of(x, Exact(0)))}; }

// Squares that no number holds, though the root of their sum is one.
NumberRows lengths(bool is_float) {
  const auto [least, most] = exponents_of(is_float);
  Draws draws;
  NumberRows rows;
  for (int i = 0; i < 5000; ++i) {
    const int exponent = draws.whole(least + (is_float ? 30 : 60), most - 2);
    std::vector<double>& row = rows.emplace_back();
    for (size_t k = 0; k < 3; ++k) row.push_back(std::ldexp(draws.of_sign(1), exponent));
  }
  return rows;
}

// ---- the table ------------------------------------------------------------------------------------------------------

void add_powers(std::vector<ExactRows>& table) {
  const auto add = [&table](const char* range, ExactRows::Rows rows) {
    table.push_back({"pow", range, {{}, {}}, {}, rows, exact_power, 1, 4});
  };
  add("of plain exponents", plain_powers);
  add("of all bases", powers_of_all_bases);
  add("of bases near 1", powers_near_1);
  add("of bases below 0", powers_of_negative_bases);
}

void add_exponentials(std::vector<ExactRows>& table) {
  const Dims row{int64_t{kWidth}};
  table.push_back(
      {"softmax", "spread widely", {row}, {}, logits, exact_softmax, 3, 6, condition_of_softmax, size_of_softmax});
  table.push_back({"log_softmax",
                   "spread widely",
                   {row},
                   {},
                   logits,
                   exact_log_softmax,
                   3,
                   4,
                   condition_of_input,
                   size_of_log_softmax});
  ExactRows sums{"logsumexp", "spread widely", {row}, make_attributes({{"dims", Dims{1}}}),
                 logits,      exact_logsumexp, 2,     4};
  sums.condition = condition_of_input;
  sums.value_size = terms_of_logsumexp;
  table.push_back(sums);
  const auto of_each = make_attributes({{"reduction", "none"}});
  ExactRows entropy{"cross_entropy", "of class 0", {row}, of_each, logits, exact_cross_entropy<0>, 3, 4};
  entropy.condition = condition_of_input;
  entropy.target = 0;
  entropy.value_size = size_of_cross_entropy<0>;
  table.push_back(entropy);
  entropy.range = "of class 3";
  entropy.value = exact_cross_entropy<3>;
  entropy.target = 3;
  entropy.value_size = size_of_cross_entropy<3>;
  table.push_back(entropy);
  ExactRows attention{"scaled_dot_product_attention",
                      "of close and far keys",
                      {{1, 1}, {3, 1}, {3, 1}},
                      make_attributes({{"scale", 1.0}}),
                      queries,
                      exact_attention,
                      3,
                      4};
  attention.condition = condition_of_attention;
  attention.value_size = attention.slope_size = size_of_attention;
  table.push_back(attention);
}

void add_elements_and_pairs(std::vector<ExactRows>& table) {
  const auto alpha = [](double number) { return make_attributes({{"alpha", number}}); };
  table.push_back({"elu", "of alpha 0.25", {{}}, alpha(0.25), elements, exact_elu<1>, 3, 3});
  table.push_back({"elu", "of alpha 1000", {{}}, alpha(1000), elements, exact_elu<4000>, 3, 3});
  const auto of_each = make_attributes({{"reduction", "none"}});
  table.push_back({"mse_loss", "of the range", {{}, {}}, of_each, pairs, exact_mse, 2, 3});
  const auto huber = [](double delta) { return make_attributes({{"delta", delta}, {"reduction", "none"}}); };
  table.push_back({"huber_loss", "of delta 1", {{}, {}}, huber(1), pairs, exact_huber<4>, 3, 1});
  table.push_back({"huber_loss", "of delta 0.25", {{}, {}}, huber(0.25), pairs, exact_huber<1>, 3, 1});
  ExactRows logits_loss{"binary_cross_entropy_with_logits",
                        "of all targets",
                        {{}, {}},
                        of_each,
                        logits_and_targets,
                        exact_binary_cross_entropy,
                        3,
                        4};
  logits_loss.slope_size = terms_of_binary_cross_entropy;
  table.push_back(logits_loss);
  ExactRows divergence{"kl_div", "of shares", {{}, {}}, of_each, logs_and_shares, exact_divergence, 3, 3};
  divergence.value_size = terms_of_divergence;
  divergence.slope_size = slope_terms_of_divergence;
  table.push_back(divergence);
  ExactRows of_logs{
      "kl_div",      "of logarithms",      {{}, {}}, make_attributes({{"log_target", true}, {"reduction", "none"}}),
      logs_and_logs, exact_log_divergence, 4,        4};
  of_logs.slope_size = slope_terms_of_log_divergence;
  table.push_back(of_logs);
}

void add_moments(std::vector<ExactRows>& table) {
  const Dims row{int64_t{kOfRow}};
  const auto dims = make_attributes({{"dims", Dims{1}}});
  const auto eps = make_attributes({{"eps", kEpsilon}});
  const auto add = [&table](const char* op, const Dims& shape, const ops::Attributes& attributes,
                            ExactRows::Value value) -> ExactRows& {
    ExactRows& added = table.emplace_back(ExactRows{op, "far from 0", {shape}, attributes, centered, value, 4, 6});
    added.is_of_largest = true;
    return added;
  };
  add("var", row, dims, exact_var);
  add("std", row, dims, exact_std);
  add("layer_norm", row, eps, exact_moment_norm);
  add("rms_norm", row, eps, exact_rms_norm);
  add("group_norm", {2, 3}, make_attributes({{"eps", kEpsilon}, {"num_groups", 1}}), exact_moment_norm);
  add("batch_norm", row, eps, exact_moment_norm).are_columns = true;
  table.push_back({"norm", "of all sizes", {Dims{3}}, dims, lengths, exact_norm, 2, 3});
}

}  // namespace

const std::vector<ExactRows>& exact_rows() {
  static const std::vector<ExactRows> table = [] {
    std::vector<ExactRows> rows;
    add_powers(rows);
    add_exponentials(rows);
    add_elements_and_pairs(rows);
    add_moments(rows);
    return rows;
  }();
  return table;
}

}  // namespace distag::testing
