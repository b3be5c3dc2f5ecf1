#include "ops/columns.h"

#include "base/error.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

// `wide` is [T, N], and each of `narrow` is [T, groups width] of its part.
void check_columns(const char* op, const Context& context, const Tensor& wide, std::span<const Tensor> narrow,
                   std::span<const ColumnsAttributes> parts, std::initializer_list<DType> types) {
  check_rank(op, "x", wide, 2);
  check_dtype(op, "x", wide, types);
  check_device(op, "x", context, wide);
  if (parts.empty() || parts.size() > max_column_parts || parts.size() != narrow.size()) {
    throw_error(ErrorKind::internal, "{}: {} matrices for {} parts; from 1 to {} are possible", op, narrow.size(),
                parts.size(), max_column_parts);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const ColumnsAttributes& a = parts[i];
    if (a.groups < 1 || a.width < 1 || a.offset < 0 || (a.groups > 1 && a.stride < a.width) ||
        (a.groups - 1) * a.stride + a.offset + a.width > wide.shape[1]) {
      throw_error(ErrorKind::internal, "{}: {} groups of {} columns with stride {} and offset {} do not fit x, {}", op,
                  a.groups, a.width, a.stride, a.offset, wide.text());
    }
    check(op, "y", context, narrow[i], {wide.shape[0], a.groups * a.width}, {wide.dtype});
  }
}

// Every element that is copied is read and written.
OpWork copy_work(const Tensor& wide, std::span<const Tensor> narrow) {
  OpWork work{.wide = wide.dtype == DType::f32};
  for (const Tensor& tensor : narrow) work.bytes += 2 * static_cast<double>(tensor.bytes());
  return work;
}

}  // namespace

void gather_columns(Context& context, std::span<const Tensor> y, const Tensor& x,
                    std::span<const ColumnsAttributes> parts) {
  check_columns(GatherColumns::name, context, x, y, parts, forward_types);
  if (x.elements() == 0) return;
  dispatch<GatherColumns>(context, y, x, parts);
}

OpWork GatherColumns::work(std::span<const Tensor> y, const Tensor& x, std::span<const ColumnsAttributes>) {
  return copy_work(x, y);
}

void scatter_columns(Context& context, const Tensor& x, std::span<const Tensor> y,
                     std::span<const ColumnsAttributes> parts) {
  check_columns(ScatterColumns::name, context, x, y, parts, optimizer_types);
  if (x.elements() == 0) return;
  dispatch<ScatterColumns>(context, x, y, parts);
}

OpWork ScatterColumns::work(const Tensor& x, std::span<const Tensor> y, std::span<const ColumnsAttributes>) {
  return copy_work(x, y);
}

}  // namespace ingot::ops
