// Arithmetic of tensors and numbers as it is written. An operator that fails throws: code that takes a status uses the
// functions.
#ifndef DISTAG_OPERATORS_HPP
#define DISTAG_OPERATORS_HPP

#include "tensor.hpp"

#ifndef DISTAG_HPP_NO_EXCEPTIONS
namespace distag {

inline tensor operator+(const tensor& a, const tensor& b) { return a.add(b); }
inline tensor operator-(const tensor& a, const tensor& b) { return a.sub(b); }
inline tensor operator*(const tensor& a, const tensor& b) { return a.mul(b); }
inline tensor operator/(const tensor& a, const tensor& b) { return a.div(b); }
inline tensor operator-(const tensor& x) { return x.neg(); }
inline tensor operator+(const tensor& x, double s) { return x.add_scalar(s); }
inline tensor operator+(double s, const tensor& x) { return x.add_scalar(s); }
inline tensor operator-(const tensor& x, double s) { return x.add_scalar(-s); }
inline tensor operator-(double s, const tensor& x) { return x.neg().add_scalar(s); }
inline tensor operator*(const tensor& x, double s) { return x.mul_scalar(s); }
inline tensor operator*(double s, const tensor& x) { return x.mul_scalar(s); }
inline tensor operator/(const tensor& x, double s) { return x.mul_scalar(1 / s); }

}  // namespace distag
#endif

#endif
