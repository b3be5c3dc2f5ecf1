#include "backend/cpu/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <dnnl.hpp>
#include <map>

#include "base/error.h"

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

struct Product {
  dnnl::matmul primitive;
  memory::desc a, b, c;
  memory scratchpad;
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

// Each thread has a cache of its own primitives and scratchpads, so no two threads share one.
Product& product_of(const Gemm& gemm) {
  constexpr size_t most = 512;
  thread_local std::map<Key, Product> products;
  const Key key = key_of(gemm);
  const auto found = products.find(key);
  if (found != products.end()) return found->second;
  if (products.size() >= most) products.clear();
  Product product;
  product.a = matrix(gemm.m, gemm.k, gemm.in, gemm.transpose_a);
  product.b = matrix(gemm.k, gemm.n, gemm.in, gemm.transpose_b);
  product.c = matrix(gemm.m, gemm.n, gemm.out, false);
  const auto description = describe(product.a, product.b, product.c, gemm.accumulate);
  product.scratchpad = memory(description.scratchpad_desc(), engine());
  product.primitive = dnnl::matmul(description);
  return products.emplace(key, std::move(product)).first->second;
}

void copy_rows(void* to, size_t to_row, const void* from, size_t from_row, int64_t rows, size_t bytes) {
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<std::byte*>(to) + static_cast<size_t>(i) * to_row,
                static_cast<const std::byte*>(from) + static_cast<size_t>(i) * from_row, bytes);
  }
}

// The size of a row-major matrix.
struct Extent {
  int64_t rows;
  int64_t columns;
};

// A matrix without gaps between its rows: the original, or a copy that is valid until the thread's next slice. oneDNN
// uses another algorithm, with another summation order, for matrices with gaps.
class Dense {
 public:
  void* of(const void* data, Extent own, int64_t ld, size_t element, bool read) {
    if (ld == own.columns || own.rows == 1) return const_cast<void*>(data);
    const size_t row = static_cast<size_t>(own.columns) * element;
    memory_.resize(static_cast<size_t>(own.rows) * row + alignment);
    void* copy = memory_.data();
    size_t space = memory_.size();
    std::align(alignment, memory_.size() - alignment, copy, space);
    if (read) copy_rows(copy, row, data, static_cast<size_t>(ld) * element, own.rows, row);
    return copy;
  }

 private:
  static constexpr size_t alignment = 64;
  std::vector<std::byte> memory_;
};

}  // namespace

bool onednn_declines(DType in, DType out, int64_t k, ops::Refusal refuse) {
  if (k == 0) return refuse("k is 0");
  if (in == DType::f16) return refuse("does not support f16: the distribution's oneDNN has no f16 gemm on CPUs");
  return in == DType::f32 && out != DType::f32 && refuse("f32 operands with a bf16 result are not supported");
}

void onednn_gemm(const Gemm& gemm, void* c, const void* a, const void* b) {
  one_openmp_thread();
  thread_local dnnl::stream stream(engine());
  try {
    Product& product = product_of(gemm);
    thread_local Dense dense_a;
    thread_local Dense dense_b;
    thread_local Dense dense_c;
    const size_t in = size_of(gemm.in);
    const size_t out = size_of(gemm.out);
    const auto stored = [](bool transposed, int64_t rows, int64_t columns) {
      return transposed ? Extent{columns, rows} : Extent{rows, columns};
    };
    void* own_a = dense_a.of(a, stored(gemm.transpose_a, gemm.m, gemm.k), gemm.lda, in, true);
    void* own_b = dense_b.of(b, stored(gemm.transpose_b, gemm.k, gemm.n), gemm.ldb, in, true);
    void* own_c = dense_c.of(c, {gemm.m, gemm.n}, gemm.ldc, out, gemm.accumulate);
    product.primitive.execute(stream, {{DNNL_ARG_SRC, memory(product.a, engine(), own_a)},
                                       {DNNL_ARG_WEIGHTS, memory(product.b, engine(), own_b)},
                                       {DNNL_ARG_DST, memory(product.c, engine(), own_c)},
                                       {DNNL_ARG_SCRATCHPAD, product.scratchpad}});
    stream.wait();
    const size_t row = static_cast<size_t>(gemm.n) * out;
    if (own_c != c) copy_rows(c, static_cast<size_t>(gemm.ldc) * out, own_c, row, gemm.m, row);
  } catch (const dnnl::error& error) {
    throw_error(ErrorKind::internal, "oneDNN: gemm of {} x {} x {}: {}", gemm.m, gemm.n, gemm.k, error.what());
  }
}

}  // namespace ingot::cpu
