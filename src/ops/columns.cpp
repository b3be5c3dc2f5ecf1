#include "ops/columns.h"

#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {
namespace {

// `wide` is [T, N] and `narrow` is [T, groups width].
void check_columns(const char* op, const Context& context, const Tensor& wide, const Tensor& narrow,
                   const ColumnsAttributes& a, std::initializer_list<DType> types) {
  check_rank(op, "x", wide, 2);
  check_dtype(op, "x", wide, types);
  check_device(op, "x", context, wide);
  if (a.groups < 1 || a.width < 1 || a.offset < 0 || (a.groups > 1 && a.stride < a.width) ||
      (a.groups - 1) * a.stride + a.offset + a.width > wide.shape[1]) {
    throw_error(ErrorKind::internal, "{}: {} groups of {} columns with stride {} and offset {} do not fit x, {}", op,
                a.groups, a.width, a.stride, a.offset, wide.text());
  }
  check(op, "y", context, narrow, {wide.shape[0], a.groups * a.width}, {wide.dtype});
}

}  // namespace

void gather_columns(Context& context, const Tensor& y, const Tensor& x, ColumnsAttributes attributes) {
  check_columns(GatherColumns::name, context, x, y, attributes, forward_types);
  if (x.elements() == 0) return;
  dispatch<GatherColumns>(context, y, x, attributes);
}

void scatter_columns(Context& context, const Tensor& x, const Tensor& y, ColumnsAttributes attributes) {
  check_columns(ScatterColumns::name, context, x, y, attributes, optimizer_types);
  if (x.elements() == 0) return;
  dispatch<ScatterColumns>(context, x, y, attributes);
}

}  // namespace ingot::ops
