// The rule of scaled_dot_product_attention.
#include "layout/rule_maker.h"

namespace distag::layout {
namespace {

// The dims of an attention, counted from the right. Only input dims with the size of the result's dim get its factor.
struct AttentionDims {
  RuleMaker& maker;
  size_t rank = 0;
  Dims shape;  // shape of the result

  explicit AttentionDims(RuleMaker& made) : maker(made) {
    for (size_t i = 0; i < 3; ++i) {
      if (maker.shape(i).size() < 2) maker.refuse("{}: two dims at least are wanted", to_string(maker.shape(i)));
      rank = std::max(rank, maker.shape(i).size());
    }
    shape.resize(rank, 1);
    for (size_t d = 0; d + 2 < rank; ++d) {
      for (size_t i = 0; i < 3; ++i) {
        const int64_t size = size_at(i, d);
        if (shape[d] == 1) shape[d] = size;
        if (size != 1 && size != shape[d]) {
          maker.refuse("batches of {}, {} and {} do not broadcast", to_string(maker.shape(0)),
                       to_string(maker.shape(1)), to_string(maker.shape(2)));
        }
      }
    }
    shape[rank - 2] = maker.shape(0)[maker.shape(0).size() - 2];
    shape[rank - 1] = maker.shape(2).back();
  }
  bool has(size_t input, size_t dim) const { return maker.has_input(input) && dim + maker.shape(input).size() >= rank; }
  int64_t size_at(size_t input, size_t dim) const { return has(input, dim) ? maker.shape(input)[own(input, dim)] : 1; }
  void place(size_t input, size_t dim, int factor) const {
    if (has(input, dim) && size_at(input, dim) == shape[dim]) maker.place_input(input, own(input, dim), factor);
  }

 private:
  size_t own(size_t input, size_t dim) const { return dim + maker.shape(input).size() - rank; }
};

}  // namespace

// Batches and columns of v pass, and so do rows of q unless the mask is causal; keys are whole.
void attention_rule(RuleMaker& maker) {
  const AttentionDims dims(maker);
  if (maker.has_input(3) && maker.shape(3).size() > dims.rank) {
    maker.refuse("mask {} has more dims than the scores", to_string(maker.shape(3)));
  }
  maker.add_output(dims.shape);
  for (size_t d = 0; d + 2 < dims.rank; ++d) {
    const int factor = maker.factor();
    for (size_t i = 0; i < 4; ++i) dims.place(i, d, factor);
    maker.place_output(d, factor);
  }
  const int column = maker.factor();
  dims.place(2, dims.rank - 1, column);
  maker.place_output(dims.rank - 1, column);
  if (get_bool(maker.call().attributes, "is_causal", false)) return;
  const int row = maker.factor();
  dims.place(0, dims.rank - 2, row);
  dims.place(3, dims.rank - 2, row);
  maker.place_output(dims.rank - 2, row);
}

}  // namespace distag::layout
