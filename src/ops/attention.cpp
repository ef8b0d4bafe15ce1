// scaled_dot_product_attention: products, a softmax and a mask, each by an existing kernel.
#include <cmath>
#include <limits>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/gemm.h"
#include "ops/require.h"
#include "ops/views.h"

namespace distag::ops {

struct ScaledDotProductAttentionOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    check_attention(inputs);
    const double scale = scale_of(inputs[0], attributes);
    const Tensor mask = inputs.size() > 3 ? inputs[3] : Tensor();
    Tensor scores = times(product(kAttention, inputs[0], turned(inputs[1])), scale);
    if (mask) check_mask(mask, scores);
    if (mask && mask.dtype() != Dtype::kBool) scores = combine(kAttention, kSumOf, scores, mask);
    const Tensor allowed = allowed_scores(mask, scores, attributes);
    const Tensor hidden = allowed ? hidden_scores(allowed, scores.dtype()) : Tensor();
    if (allowed) scores = where(allowed, scores, hidden);
    Tensor shares = kSoftmax.forward(std::vector<Tensor>{scores}, {}, nullptr)[0];
    if (allowed) shares = where(allowed, shares, Tensor::scalar(shares.dtype(), 0.0));
    if (saved != nullptr) {
      saved->attributes = attributes;
      saved->tensors = {inputs[0].snapshot(),
                        inputs[1].snapshot(),
                        inputs[2].snapshot(),
                        mask ? mask.snapshot() : mask,
                        shares,
                        allowed ? allowed.snapshot() : allowed,
                        hidden};
      saved->shapes = {Dims{static_cast<int64_t>(inputs.size())}};
      if (!mask || mask.dtype() == Dtype::kBool) saved->needed &= ~(uint64_t{1} << 3);
    }
    return product(kAttention, shares, inputs[2]);
  }

  // With the shares p: dv = p^T g, dscores = p (g v^T - sum(p g v^T)), dq = scale dscores k, dk = scale dscores^T q.
  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(static_cast<size_t>(saved.shapes[0][0]));
    const Tensor& q = saved.tensors[0];
    const Tensor& k = saved.tensors[1];
    const Tensor& v = saved.tensors[2];
    const Tensor& shares = saved.tensors[4];
    if (saved.needs(2)) result[2] = reduced_to(v, product(kAttention, turned(shares), g));
    const bool needs_mask = result.size() > 3 && saved.needs(3);
    if (!saved.needs(0) && !saved.needs(1) && !needs_mask) return result;
    Saved of_softmax;
    // Batches of v that q and k do not have are summed first: the shares have only the batches of q and k.
    const Tensor of_shares = reduced_to(shares, product(kAttention, g, turned(v)));
    of_softmax.tensors = {shares};
    of_softmax.shapes = {Dims{static_cast<int64_t>(shares.rank()) - 1}};
    const Tensor of_scores = kSoftmax.backward(of_softmax, {of_shares})[0];
    if (needs_mask) result[3] = reduced_to(saved.tensors[3], of_scores);
    const double scale = scale_of(q, saved.attributes);
    if (saved.needs(0)) result[0] = times(reduced_to(q, product(kAttention, of_scores, k)), scale);
    if (saved.needs(1)) result[1] = times(reduced_to(k, product(kAttention, turned(of_scores), q)), scale);
    return result;
  }

 private:
  static constexpr const char* kAttention = "scaled_dot_product_attention";

  static Tensor turned(const Tensor& x) { return transposed(x, x.rank() - 2, x.rank() - 1); }

  static void check_attention(Inputs inputs) {
    const Tensor& q = inputs[0];
    const Tensor& k = inputs[1];
    const Tensor& v = inputs[2];
    require_floating(kAttention, q);
    const bool fits = q.dtype() == k.dtype() && k.dtype() == v.dtype() && q.rank() >= 2 && k.rank() >= 2 &&
                      v.rank() >= 2 && q.shape().back() == k.shape().back() &&
                      k.shape()[k.rank() - 2] == v.shape()[v.rank() - 2];
    require(fits, "{}: q {}, k {}, v {} do not fit: [.., l, e], [.., s, e] and [.., s, d] of one dtype do", kAttention,
            q, k, v);
  }

  static void check_mask(const Tensor& mask, const Tensor& scores) {
    const bool has_dtype = mask.dtype() == Dtype::kBool || mask.dtype() == scores.dtype();
    require(has_dtype && broadcast_shapes(kAttention, mask.shape(), scores.shape()) == scores.shape(),
            "{}: mask {} does not fit: bool or {}, broadcast to {}, does", kAttention, mask, dtype_name(scores.dtype()),
            scores.shape());
  }

  static double scale_of(const Tensor& q, const Attributes& attributes) {
    const double scale = get_float(attributes, "scale", 0.0);
    require(std::isfinite(scale), "{}: scale {} is not finite", kAttention, scale);
    if (scale != 0) return scale;
    return q.shape().back() == 0 ? 1.0 : 1.0 / std::sqrt(static_cast<double>(q.shape().back()));
  }

  // bool[l, s]: row i may use columns 0 .. i.
  static Tensor causal_mask(int64_t rows, int64_t columns) {
    Tensor mask = Tensor::empty(Dtype::kBool, Dims{rows, columns});
    Bool* to = mask.mutable_data_as<Bool>();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) *to++ = j <= i ? 1 : 0;
    }
    return mask;
  }

  // The mask of the scores that count; undefined if all do.
  static Tensor allowed_scores(const Tensor& mask, const Tensor& scores, const Attributes& attributes) {
    const bool is_causal = get_bool(attributes, "is_causal", false);
    const Tensor given = mask && mask.dtype() == Dtype::kBool ? mask : Tensor();
    if (!is_causal) return given;
    const Tensor causal = causal_mask(scores.shape()[scores.rank() - 2], scores.shape().back());
    if (!given) return causal;
    return kLogicalAnd.forward(std::vector<Tensor>{given, causal}, {}, nullptr)[0];
  }

  static Tensor where(const Tensor& mask, const Tensor& x, const Tensor& other) {
    return kWhere.forward(std::vector<Tensor>{mask, x, other}, {}, nullptr)[0];
  }

  // The value for hidden scores of a row: -inf; 0 if all are hidden, so that their shares are numbers at first.
  static Tensor hidden_scores(const Tensor& allowed, Dtype dtype) {
    const Dims last = allowed.rank() == 0 ? Dims{} : Dims{static_cast<int64_t>(allowed.rank()) - 1};
    const Tensor any =
        kAny.forward(std::vector<Tensor>{allowed}, make_attributes({{"dims", last}, {"keepdim", true}}), nullptr)[0];
    return where(any, Tensor::scalar(dtype, -std::numeric_limits<double>::infinity()), Tensor::scalar(dtype, 0.0));
  }

  static Tensor times(const Tensor& x, double factor) {
    return kMulScalar.forward(std::vector<Tensor>{x}, make_attributes({{"value", factor}}), nullptr)[0];
  }

  static Tensor reduced_to(const Tensor& like, const Tensor& gradient) {
    return reduce_to(gradient, like.shape(), like.dtype());
  }
};
constexpr Op kScaledDotProductAttention = make_op<ScaledDotProductAttentionOp>(
    "scaled_dot_product_attention(tensor q, tensor k, tensor v, tensor? mask, bool is_causal = false, float64 scale = "
    "0) -> tensor",
    "softmax(scale q k^T) v of q [.., l, e], k [.., s, e], v [.., s, d]; scale 0 is 1 / sqrt(e). A mask hides where it "
    "is false, or is added; is_causal hides column j > row i; a row with all hidden gives 0.");

}  // namespace distag::ops
