#include "ops/embedding.h"

#include "base/error.h"
#include "ops/check.h"
#include "ops/registry.h"

namespace ingot::ops {

void embedding(Context& context, const Tensor& y, const Weight& table, const Tensor& ids, TablePart part) {
  check_device("embedding", "table", context, table);
  if (is_fp8(table.storage))
    throw_error(ErrorKind::unsupported, "embedding: a table in {} is not supported", name(table.storage));
  check_rank("embedding", "ids", ids, 1);
  check("embedding", "ids", context, ids, ids.shape, {DType::i32});
  check("embedding", "y", context, y, Shape{ids.shape[0], table.in}, forward_types);
  if (y.elements() == 0) return;
  dispatch<Embedding>(context, y, table, ids, part);
}

void embedding_backward(Context& context, const Tensor& dtable, const Tensor& dy, const Tensor& ids, bool accumulate,
                        TablePart part) {
  check_rank("embedding_backward", "dtable", dtable, 2);
  check_rank("embedding_backward", "ids", ids, 1);
  check("embedding_backward", "dtable", context, dtable, dtable.shape, {DType::f32});
  check("embedding_backward", "ids", context, ids, ids.shape, {DType::i32});
  check("embedding_backward", "dy", context, dy, Shape{ids.shape[0], dtable.shape[1]}, optimizer_types);
  if (dtable.elements() == 0) return;
  dispatch<EmbeddingBackward>(context, dtable, dy, ids, accumulate, part);
}

}  // namespace ingot::ops
