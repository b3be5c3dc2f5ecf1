#include "backend/cpu/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>

#include "backend/cpu/workspace.h"
#include "base/error.h"
#include "base/mutex.h"

namespace ingot::cpu {
namespace {

using dnnl::memory;

// oneDNN is kept from using AMX: with AMX it splits the sums of bf16 gemms depending on the number of rows and columns
// (measured with 2.6, for sums of 768 terms and more), so a row's bits would depend on the batch and on the threads.
// With AVX-512 they do not. On AMX machines the engine `amx` runs these gemms.
dnnl::engine& engine() {
  static dnnl::engine instance = [] {
    dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return instance;
}

// The distribution's oneDNN is built with OpenMP. The pool owns the threads, so OpenMP is limited to one thread, on
// each of the pool's threads. A oneDNN with another runtime has no such function, and nothing is called.
void one_openmp_thread() {
  using SetThreads = void (*)(int);
  static const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  thread_local bool done = false;
  if (!done && set_threads != nullptr) set_threads(1);
  done = true;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::f32 ? memory::data_type::f32 : memory::data_type::bf16;
}

memory::desc matrix(int64_t rows, int64_t columns, DType dtype, bool transposed) {
  return {{rows, columns}, type_of(dtype), transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

// What oneDNN has compiled for a gemm without gaps. Holds no scratch memory, so several threads may run it at once.
struct Product {
  dnnl::matmul primitive;
  memory::desc a, b, c, scratchpad;
};

dnnl::matmul::primitive_desc describe(const memory::desc& a, const memory::desc& b, const memory::desc& c,
                                      bool accumulate) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops after;
    after.append_sum(1.0F);
    attributes.set_post_ops(after);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine()};
#endif
}

using Key = std::array<int64_t, 4>;

Key key_of(const Gemm& gemm) {
  const int64_t flags = (gemm.in == DType::bf16 ? 1 : 0) + (gemm.out == DType::bf16 ? 2 : 0) +
                        (gemm.transpose_a ? 4 : 0) + (gemm.transpose_b ? 8 : 0) + (gemm.accumulate ? 16 : 0);
  return {gemm.m, gemm.n, gemm.k, flags};
}

std::shared_ptr<const Product> compile(const Gemm& gemm) {
  Product product;
  product.a = matrix(gemm.m, gemm.k, gemm.in, gemm.transpose_a);
  product.b = matrix(gemm.k, gemm.n, gemm.in, gemm.transpose_b);
  product.c = matrix(gemm.m, gemm.n, gemm.out, false);
  const auto description = describe(product.a, product.b, product.c, gemm.accumulate);
  product.scratchpad = description.scratchpad_desc();
  product.primitive = dnnl::matmul(description);
  return std::make_shared<const Product>(std::move(product));
}

// The process's cache of products by shape. An entry is a few KiB of descriptions and references to machine code; the
// code is in oneDNN's own cache (ONEDNN_PRIMITIVE_CACHE_CAPACITY), whose entries these references keep alive.
class ProductCache {
 public:
  std::shared_ptr<const Product> get(const Gemm& gemm) INGOT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const Key key = key_of(gemm);
    const auto found = products_.find(key);
    if (found != products_.end()) return found->second;
    if (products_.size() >= most) products_.clear();
    return products_.emplace(key, compile(gemm)).first->second;
  }

 private:
  static constexpr size_t most = 512;
  Mutex mutex_;
  std::map<Key, std::shared_ptr<const Product>> products_ INGOT_GUARDED_BY(mutex_);
};

ProductCache& products() {
  static ProductCache cache;
  return cache;
}

// A matrix as it is stored, rows x columns, each row `ld` elements after the previous one.
struct Stored {
  int64_t rows, columns, ld;
  size_t element;

  size_t row_bytes() const { return static_cast<size_t>(columns) * element; }
  bool dense() const { return ld == columns || rows == 1; }
  // Bytes of the workspace for a copy without gaps; 0 if the matrix has none. oneDNN uses another algorithm, with
  // another summation order, for matrices with gaps.
  size_t copy_bytes() const {
    return dense() ? 0 : WorkspaceArrays::footprint(static_cast<size_t>(rows) * row_bytes());
  }
};

Stored stored(bool transposed, int64_t rows, int64_t columns, int64_t ld, DType dtype) {
  return {transposed ? columns : rows, transposed ? rows : columns, ld, size_of(dtype)};
}
Stored a_of(const Gemm& gemm) { return stored(gemm.transpose_a, gemm.m, gemm.k, gemm.lda, gemm.in); }
Stored b_of(const Gemm& gemm) { return stored(gemm.transpose_b, gemm.k, gemm.n, gemm.ldb, gemm.in); }
Stored c_of(const Gemm& gemm) { return stored(false, gemm.m, gemm.n, gemm.ldc, gemm.out); }

void copy_rows(void* to, size_t to_row, const void* from, size_t from_row, int64_t rows, size_t bytes) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<std::byte*>(to) + static_cast<size_t>(i) * to_row,
                static_cast<const std::byte*>(from) + static_cast<size_t>(i) * from_row, bytes);
  }
}

// The matrix at `data` without gaps: itself, or a copy in the workspace, with its contents if `read`.
void* without_gaps(const void* data, const Stored& matrix, bool read, WorkspaceArrays& arrays) {
  if (matrix.dense()) return const_cast<void*>(data);
  const size_t row = matrix.row_bytes();
  auto* copy = arrays.take<std::byte>(matrix.rows * static_cast<int64_t>(row));
  if (read) copy_rows(copy, row, data, static_cast<size_t>(matrix.ld) * matrix.element, matrix.rows, row);
  return copy;
}

// The product for a block of c, if its copies and oneDNN's scratch memory fit into the workspace; else null.
std::shared_ptr<const Product> fitting(const Gemm& block, size_t workspace) {
  const size_t copies = a_of(block).copy_bytes() + b_of(block).copy_bytes() + c_of(block).copy_bytes();
  if (copies > workspace) return nullptr;
  std::shared_ptr<const Product> product = products().get(block);
  return copies + WorkspaceArrays::footprint(product->scratchpad.get_size()) <= workspace ? product : nullptr;
}

// About half of `size`, a length of the blocks that `whole` is cut into: whole vectors, and not so that one row or
// column is left, for which oneDNN may use another summation order.
int64_t half_of(int64_t size, int64_t whole) {
  constexpr int64_t lanes = 16;
  int64_t half = (size + 1) / 2;
  if (half > lanes) half = (half + lanes - 1) / lanes * lanes;
  while (half > 2 && whole % half == 1) half -= half > lanes ? lanes : 1;
  return half;
}

// Rows and columns of c that are computed at a time, and the product for such a block.
struct Block {
  int64_t m, n;
  std::shared_ptr<const Product> product;
};

// The largest block whose copies and scratchpad fit into the workspace: all of c, unless much has to be copied.
Block block_of(const Gemm& gemm, size_t workspace) {
  Gemm part = gemm;
  for (;;) {
    std::shared_ptr<const Product> product = fitting(part, workspace);
    if (product != nullptr) return {part.m, part.n, std::move(product)};
    // Rows of c are rows of op(a), columns are columns of op(b).
    const bool rows = part.n <= 2 || (part.m > 2 && a_of(part).copy_bytes() >= b_of(part).copy_bytes());
    int64_t& size = rows ? part.m : part.n;
    if (size <= 2) {
      throw_error(ErrorKind::internal, "oneDNN: a gemm of {} x {} x {} needs more than a workspace of {} bytes", gemm.m,
                  gemm.n, gemm.k, workspace);
    }
    size = half_of(size, rows ? gemm.m : gemm.n);
  }
}

void multiply(const Product& product, const Gemm& gemm, void* c, const void* a, const void* b,
              std::span<std::byte> workspace) {
  WorkspaceArrays arrays(workspace);
  void* own_a = without_gaps(a, a_of(gemm), true, arrays);
  void* own_b = without_gaps(b, b_of(gemm), true, arrays);
  void* own_c = without_gaps(c, c_of(gemm), gemm.accumulate, arrays);
  void* scratchpad = arrays.take<std::byte>(static_cast<int64_t>(product.scratchpad.get_size()));
  dnnl::stream stream(engine());
  product.primitive.execute(stream, {{DNNL_ARG_SRC, memory(product.a, engine(), own_a)},
                                     {DNNL_ARG_WEIGHTS, memory(product.b, engine(), own_b)},
                                     {DNNL_ARG_DST, memory(product.c, engine(), own_c)},
                                     {DNNL_ARG_SCRATCHPAD, memory(product.scratchpad, engine(), scratchpad)}});
  stream.wait();
  const size_t row = c_of(gemm).row_bytes();
  if (own_c != c) copy_rows(c, static_cast<size_t>(gemm.ldc) * size_of(gemm.out), own_c, row, gemm.m, row);
}

}  // namespace

bool onednn_declines(DType in, DType out, int64_t k, ops::Refusal refuse) {
  if (k == 0) return refuse("k is 0");
  // A block of 3 x 3 of which both operands are copied (half_of makes none smaller), and a quarter of the workspace for
  // the rest: k up to 131,072 in f32.
  if (6 * static_cast<size_t>(k) * size_of(in) > thread_workspace / 4 * 3) {
    return refuse("k is too large for the workspace");
  }
  if (in == DType::f16) return refuse("does not support f16: the distribution's oneDNN has no f16 gemm on CPUs");
  return in == DType::f32 && out != DType::f32 && refuse("f32 operands with a bf16 result are not supported");
}

void onednn_gemm(const Gemm& gemm, void* c, const void* a, const void* b, std::span<std::byte> workspace) {
  one_openmp_thread();
  const auto at = [](const void* data, int64_t place, DType dtype) {
    return static_cast<const std::byte*>(data) + place * static_cast<int64_t>(size_of(dtype));
  };
  try {
    const Block block = block_of(gemm, workspace.size());
    for (int64_t i = 0; i < gemm.m; i += block.m) {
      for (int64_t j = 0; j < gemm.n; j += block.n) {
        Gemm part = gemm;
        part.m = std::min(block.m, gemm.m - i);
        part.n = std::min(block.n, gemm.n - j);
        const bool whole = part.m == block.m && part.n == block.n;
        const std::shared_ptr<const Product> product = whole ? block.product : products().get(part);
        multiply(*product, part, const_cast<std::byte*>(at(c, i * gemm.ldc + j, gemm.out)),
                 at(a, i * (gemm.transpose_a ? 1 : gemm.lda), gemm.in),
                 at(b, j * (gemm.transpose_b ? gemm.ldb : 1), gemm.in), workspace);
      }
    }
  } catch (const dnnl::error& error) {
    throw_error(ErrorKind::internal, "oneDNN: gemm of {} x {} x {}: {}", gemm.m, gemm.n, gemm.k, error.what());
  }
}

}  // namespace ingot::cpu
