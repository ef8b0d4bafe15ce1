#pragma once

#include "ops/op.h"

// The explicit list of built-in ops, in the order in which distag_get_op returns them. New ops are appended, and the
// list is never sorted: hosts may keep an index.
// clang-format off
#define DISTAG_BUILTIN_OPS(X)                                                                                       \
  X(kZeros) X(kOnes) X(kFull) X(kArange) X(kRand) X(kRandn)                                                          \
  X(kAdd) X(kSub) X(kMul) X(kDiv) X(kMaximum) X(kEq) X(kAddScalar) X(kMulScalar)                                     \
  X(kNeg) X(kExp) X(kLog) X(kSqrt) X(kTanh) X(kSigmoid) X(kRelu)                                                     \
  X(kSum) X(kMean) X(kMax) X(kArgmax)                                                                                \
  X(kMatmul) X(kLinear)                                                                                              \
  X(kTranspose) X(kReshape) X(kSlice) X(kConcat)                                                                     \
  X(kSoftmax) X(kLogSoftmax) X(kCrossEntropy) X(kMseLoss)                                                            \
  X(kConv2d) X(kMaxPool2d)                                                                                           \
  X(kCast) X(kClone) X(kDetach)                                                                                      \
  X(kSin) X(kCos) X(kAbs) X(kSquare) X(kRsqrt) X(kReciprocal) X(kClamp)                                              \
  X(kSilu) X(kSoftplus) X(kGelu) X(kLeakyRelu) X(kElu)                                                               \
  X(kPermute) X(kExpand) X(kSqueeze) X(kUnsqueeze) X(kStack) X(kSplit) X(kFlip) X(kPad) X(kTril) X(kCumsum)          \
  X(kWhere) X(kGather) X(kIndexSelect) X(kEmbedding) X(kLogsumexp) X(kVar) X(kLayerNorm)                  \
  X(kPow) X(kAmin) X(kNllLoss) X(kL1Loss) X(kBinaryCrossEntropyWithLogits) X(kDropout)                                   \
  X(kGt) X(kGe) X(kLt) X(kLe) X(kNe) X(kLogicalAnd) X(kLogicalOr) X(kLogicalNot) X(kMinimum) X(kMaskedFill)        \
  X(kFloor) X(kRound) X(kSign) X(kErf) X(kTriu) X(kAny) X(kAll)                                                   \
  X(kOneHot) X(kTopk) X(kIndexAdd) X(kScatterAdd) X(kNonzero) X(kHuberLoss)                             \
  X(kStd) X(kNorm) X(kSort) X(kAvgPool2d) X(kScaledDotProductAttention)                                             \
  X(kRmsNorm) X(kGroupNorm) X(kBatchNorm) X(kKlDiv) X(kAdaptiveAvgPool2d) \
  X(kConv1d) X(kConvTranspose2d) X(kRepeat) X(kInterpolate) X(kMinWithIndices) X(kMaxWithIndices)
// clang-format on

namespace distag::ops {

#define DISTAG_DECLARE_OP(op) extern const Op op;
DISTAG_BUILTIN_OPS(DISTAG_DECLARE_OP)
#undef DISTAG_DECLARE_OP

}  // namespace distag::ops
