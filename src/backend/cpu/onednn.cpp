#include "backend/cpu/onednn.h"

#include <dlfcn.h>

#include <dnnl.hpp>
#include <map>

#include "backend/cpu/isa.h"
#include "base/error.h"

namespace ingot::cpu {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

// The distribution's oneDNN is built on OpenMP. Our pool owns the threads, so OpenMP is told, thread by thread, to use
// no others. A oneDNN on another runtime has no such function and is not asked.
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

memory::desc matrix(int64_t rows, int64_t columns, DType dtype, bool transposed, int64_t ld) {
  return {{rows, columns}, type_of(dtype), transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
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

using Key = std::array<int64_t, 7>;

Key key_of(const Gemm& gemm) {
  const int64_t flags = (gemm.in == DType::bf16 ? 1 : 0) + (gemm.out == DType::bf16 ? 2 : 0) +
                        (gemm.transpose_a ? 4 : 0) + (gemm.transpose_b ? 8 : 0) + (gemm.accumulate ? 16 : 0);
  return {gemm.m, gemm.n, gemm.k, gemm.lda, gemm.ldb, gemm.ldc, flags};
}

// Each thread keeps its own products, with their scratchpads, so no two threads share one.
Product& product_of(const Gemm& gemm) {
  constexpr size_t most = 512;
  thread_local std::map<Key, Product> products;
  const Key key = key_of(gemm);
  const auto found = products.find(key);
  if (found != products.end()) return found->second;
  if (products.size() >= most) products.clear();
  Product product;
  product.a = matrix(gemm.m, gemm.k, gemm.in, gemm.transpose_a, gemm.lda);
  product.b = matrix(gemm.k, gemm.n, gemm.in, gemm.transpose_b, gemm.ldb);
  product.c = matrix(gemm.m, gemm.n, gemm.out, false, gemm.ldc);
  const auto description = describe(product.a, product.b, product.c, gemm.accumulate);
  product.scratchpad = memory(description.scratchpad_desc(), engine());
  product.primitive = dnnl::matmul(description);
  return products.emplace(key, std::move(product)).first->second;
}

}  // namespace

std::string onednn_declines(DType in, DType out, int64_t k) {
  if (k == 0) return "an empty sum";
  if (in == DType::f32 && out != DType::f32) return "f32 products into bf16";
  if (in == DType::bf16 && machine_isa() < Isa::avx512) return "bf16 products need a machine with avx512_bf16";
  return {};
}

void onednn_gemm(const Gemm& gemm, void* c, const void* a, const void* b) {
  one_openmp_thread();
  thread_local dnnl::stream stream(engine());
  try {
    Product& product = product_of(gemm);
    product.primitive.execute(stream, {{DNNL_ARG_SRC, memory(product.a, engine(), const_cast<void*>(a))},
                                       {DNNL_ARG_WEIGHTS, memory(product.b, engine(), const_cast<void*>(b))},
                                       {DNNL_ARG_DST, memory(product.c, engine(), c)},
                                       {DNNL_ARG_SCRATCHPAD, product.scratchpad}});
    stream.wait();
  } catch (const dnnl::error& error) {
    throw_error(ErrorKind::internal, "oneDNN: product of {} x {} x {}: {}", gemm.m, gemm.n, gemm.k, error.what());
  }
}

}  // namespace ingot::cpu
