// The common implementation for cuBLASLt and hipBLASLt, whose functions differ only in their prefix (both documented in
// their vendors' library references). Both take column-major matrices, so that a row-major c = a b is requested as its
// transpose, c' = b' a', on the same memory.
//
// One algorithm serves all gemms of one type, form and k: the first in the vendor's list for a large result that uses
// no split-k and no workspace. The summation order therefore depends on k only (ops/matmul.h), as far as a kernel
// treats all its tiles alike.
#pragma once

#include <fmt/format.h>

#include <array>
#include <compare>
#include <map>
#include <vector>

#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"

namespace ingot::gpu {

using LtStatus = int;  // 0: success
using LtHandle = void*;
using LtDescriptor = void*;  // of a matmul, a matrix layout or a preference

// As in both libraries' headers. An algorithm is 64 bytes in cuBLASLt and 24 bytes in hipBLASLt.
template <size_t algorithm_bytes>
struct LtAlgorithm {
  alignas(8) std::array<std::byte, algorithm_bytes> data;
};
template <class Algorithm>
struct LtResult {
  Algorithm algorithm;
  size_t workspace_bytes;
  LtStatus status;
  float waves;
  int reserved[4];
};

template <class Algorithm>
struct LtFunctions {
  LtFunctions(const SharedLibrary& library, const std::string& prefix) {
    const auto bind = [&](auto*& function, const char* name) { library.bind(function, (prefix + name).c_str()); };
    bind(Create, "Create");
    bind(Destroy, "Destroy");
    bind(MatmulDescCreate, "MatmulDescCreate");
    bind(MatmulDescDestroy, "MatmulDescDestroy");
    bind(MatmulDescSetAttribute, "MatmulDescSetAttribute");
    bind(MatrixLayoutCreate, "MatrixLayoutCreate");
    bind(MatrixLayoutDestroy, "MatrixLayoutDestroy");
    bind(MatmulPreferenceCreate, "MatmulPreferenceCreate");
    bind(MatmulPreferenceDestroy, "MatmulPreferenceDestroy");
    bind(MatmulPreferenceSetAttribute, "MatmulPreferenceSetAttribute");
    bind(MatmulAlgoGetHeuristic, "MatmulAlgoGetHeuristic");
    bind(Matmul, "Matmul");
  }

  LtStatus (*Create)(LtHandle*);
  LtStatus (*Destroy)(LtHandle);
  LtStatus (*MatmulDescCreate)(LtDescriptor*, int compute_type, int scale_type);
  LtStatus (*MatmulDescDestroy)(LtDescriptor);
  LtStatus (*MatmulDescSetAttribute)(LtDescriptor, int attribute, const void*, size_t);
  LtStatus (*MatrixLayoutCreate)(LtDescriptor*, int type, uint64_t rows, uint64_t columns, int64_t ld);
  LtStatus (*MatrixLayoutDestroy)(LtDescriptor);
  LtStatus (*MatmulPreferenceCreate)(LtDescriptor*);
  LtStatus (*MatmulPreferenceDestroy)(LtDescriptor);
  LtStatus (*MatmulPreferenceSetAttribute)(LtDescriptor, int attribute, const void*, size_t);
  LtStatus (*MatmulAlgoGetHeuristic)(LtHandle, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor, LtDescriptor,
                                     LtDescriptor preference, int requested, LtResult<Algorithm>*, int* returned);
  LtStatus (*Matmul)(LtHandle, LtDescriptor, const void* alpha, const void* a, LtDescriptor, const void* b,
                     LtDescriptor, const void* beta, const void* c, LtDescriptor, void* d, LtDescriptor,
                     const Algorithm*, void* workspace, size_t workspace_bytes, void* stream);
};

struct LtDestroyer {
  LtStatus (*destroy)(LtDescriptor) = nullptr;
  void operator()(LtDescriptor descriptor) const { destroy(descriptor); }
};
using LtOwned = std::unique_ptr<void, LtDestroyer>;

// A preference attribute and its value.
struct LtPreference {
  int attribute;
  uint32_t value;
};

// `Vendor` provides: Algorithm; name, prefix, names(); the codes f32, bf16, f16, e4m3, e4m3_fnuz, compute_f32,
// transposed, not_transposed; transpose_a, transpose_b, a_scales, b_scales (attributes of a matmul), max_workspace (of
// a preference) and the vendor's own `preferences`; a constructor from SharedLibrary; and
//   const char* decline_codes(product): why it cannot run this fp8 gemm, even if the library offers algorithms;
//   bool has_no_split_k(algorithm): whether it computes every sum without split-k;
//   bool supports(handle, product, a, b, c, algorithm, size_t& workspace_bytes): whether it can run the gemm;
//   std::string version(LtFunctions): empty if the query needs a device and there is none.
template <class Vendor>
class BlasLt : public MatmulLibrary {
 public:
  using Algorithm = typename Vendor::Algorithm;

  explicit BlasLt(std::unique_ptr<SharedLibrary> library)
      : library_(std::move(library)), lt_(*library_, Vendor::prefix), vendor_(*library_) {
    check(lt_.Create(&handle_), "a handle");
  }
  BlasLt(const BlasLt&) = delete;
  BlasLt& operator=(const BlasLt&) = delete;
  ~BlasLt() override {
    plans_.clear();
    lt_.Destroy(handle_);
  }

  std::string_view decline(const Gemm& p) override {
    if (p.m == 0 || p.n == 0 || p.k == 0) return "m, n or k is 0";
    if (p.in == DType::f32 && p.out != DType::f32) return "f32 operands need an f32 result";
    for (const void* data : {static_cast<const void*>(p.c), p.addend, p.a, p.b}) {
      if (reinterpret_cast<uintptr_t>(data) % aligned_bytes != 0) return "memory is not aligned to 16 bytes";
    }
    for (const int64_t bytes : {p.lda * size(p.in), p.ldb * size(p.in), p.ldc * size(p.out)}) {
      if (bytes % aligned_bytes != 0) return "row strides are not multiples of 16 bytes";
    }
    if (p.in == DType::u8) {
      if (p.k % aligned_bytes != 0) return "fp8 needs k to be a multiple of 16";
      if (const std::string_view reason = vendor_.decline_codes(p); !reason.empty()) return reason;
    }
    return plan(p).reason;
  }

  void multiply(const Gemm& p, void* stream) override {
    const Plan& with = plan(p);
    if (!with.reason.empty()) throw_error(ErrorKind::internal, "{}: {}: {}", Vendor::name, text(p), with.reason);
    const float alpha = p.fnuz ? 4 : 1;
    if (p.in == DType::u8) set_scales(with.shape.product.get(), p.b_scales, p.a_scales);
    const float beta = p.addend != nullptr ? 1 : 0;
    const void* addend = p.addend != nullptr ? p.addend : p.c;
    const LtStatus status =
        lt_.Matmul(handle_, with.shape.product.get(), &alpha, p.b, with.shape.a.get(), p.a, with.shape.b.get(), &beta,
                   addend, with.shape.c.get(), p.c, with.shape.c.get(), &with.algorithm, nullptr, 0, stream);
    check(status, text(p));
  }

 private:
  static constexpr int64_t aligned_bytes = 16;
  static constexpr int64_t large = 8192;     // m and n of the gemm that algorithms are requested for
  static constexpr int candidates = 32;      // max algorithms requested from the vendor's heuristic
  static constexpr size_t max_plans = 4096;  // size of the cache; prompts have many lengths
  // A non-null dummy address, for descriptors that are not launched.
  static inline const float* const some_scales = reinterpret_cast<const float*>(aligned_bytes);

  struct Shape {
    LtOwned product, a, b, c;
  };
  struct Plan {
    std::string reason;  // why there is no plan
    Shape shape;
    Algorithm algorithm;
  };
  // Everything that the summation order may depend on.
  struct Form {
    DType in, out;
    bool transpose_a, transpose_b, fnuz;
    int64_t k;
    auto operator<=>(const Form&) const = default;
  };
  struct Extent {
    int64_t m, n, lda, ldb, ldc;
    auto operator<=>(const Extent&) const = default;
  };
  struct Pinned {
    bool found = false;
    Algorithm algorithm = {};
    std::string reason;  // why none was found
  };

  static int64_t size(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }
  static int type(DType dtype, bool fnuz) {
    switch (dtype) {
      case DType::f32: return Vendor::f32;
      case DType::bf16: return Vendor::bf16;
      case DType::u8: return fnuz ? Vendor::e4m3_fnuz : Vendor::e4m3;
      default: return Vendor::f16;
    }
  }
  static Form form(const Gemm& p) { return {p.in, p.out, p.transpose_a, p.transpose_b, p.fnuz, p.k}; }
  static std::string text(const Gemm& p) {
    return fmt::format("gemm of {} [{}, {}] and [{}, {}]{}{}", p.in == DType::u8 ? "fp8" : name(p.in), p.m, p.k, p.k,
                       p.n, p.transpose_a ? ", the first transposed" : "",
                       p.transpose_b ? ", the second transposed" : "");
  }
  void check(LtStatus status, std::string_view what) const {
    if (status != 0) {
      throw_error(ErrorKind::unavailable, "{} ({}): {}: status {}", Vendor::name, library_->path(), what, status);
    }
  }

  // In the library's terms: its a is our b.
  void set_scales(LtDescriptor product, const float* a, const float* b) const {
    check(lt_.MatmulDescSetAttribute(product, Vendor::a_scales, static_cast<const void*>(&a), sizeof a), "fp8 scales");
    check(lt_.MatmulDescSetAttribute(product, Vendor::b_scales, static_cast<const void*>(&b), sizeof b), "fp8 scales");
  }

  // fp8 gemms have one scale per row of a and per column of b. A library that is too old for these modes rejects them.
  LtStatus set_scale_modes(LtDescriptor product) const {
    constexpr int32_t outer_vectors = 3;  // ..MATMUL_MATRIX_SCALE_OUTER_VEC_32F in both libraries
    LtStatus status = 0;
    for (const int mode : {31, 32}) {  // ..MATMUL_DESC_A_SCALE_MODE and _B_SCALE_MODE in both
      if (status == 0) status = lt_.MatmulDescSetAttribute(product, mode, &outer_vectors, sizeof outer_vectors);
    }
    return status;
  }

  bool has_scales_by_rows() const {
    LtDescriptor product = nullptr;
    check(lt_.MatmulDescCreate(&product, Vendor::compute_f32, Vendor::f32), "a gemm");
    const LtOwned owned(product, LtDestroyer{lt_.MatmulDescDestroy});
    return set_scale_modes(product) == 0;
  }

  // The descriptors in the library's terms: its a is our b.
  Shape shape(const Gemm& p) const {
    Shape made;
    LtDescriptor product = nullptr;
    check(lt_.MatmulDescCreate(&product, Vendor::compute_f32, Vendor::f32), "a gemm");
    made.product = LtOwned(product, LtDestroyer{lt_.MatmulDescDestroy});
    const auto transpose = [&](int attribute, bool transposed) {
      const int32_t operation = transposed ? Vendor::transposed : Vendor::not_transposed;
      check(lt_.MatmulDescSetAttribute(product, attribute, &operation, sizeof operation), "a gemm");
    };
    transpose(Vendor::transpose_a, p.transpose_b);
    transpose(Vendor::transpose_b, p.transpose_a);
    if (p.in == DType::u8) {
      check(set_scale_modes(product), "an fp8 gemm");
      // Each call sets its own scales when it starts; algorithms are selected as if there were some.
      set_scales(product, some_scales, some_scales);
    }
    // Our row-major rows x columns matrix is a column-major columns x rows matrix to the library.
    const auto matrix = [&](DType dtype, int64_t rows, int64_t columns, int64_t ld) {
      LtDescriptor layout = nullptr;
      check(lt_.MatrixLayoutCreate(&layout, type(dtype, p.fnuz), static_cast<uint64_t>(columns),
                                   static_cast<uint64_t>(rows), ld),
            "a matrix");
      return LtOwned(layout, LtDestroyer{lt_.MatrixLayoutDestroy});
    };
    made.a = p.transpose_b ? matrix(p.in, p.n, p.k, p.ldb) : matrix(p.in, p.k, p.n, p.ldb);
    made.b = p.transpose_a ? matrix(p.in, p.k, p.m, p.lda) : matrix(p.in, p.m, p.k, p.lda);
    made.c = matrix(p.out, p.m, p.n, p.ldc);
    return made;
  }

  // A gemm of this form with densely stored matrices.
  static Gemm dense(const Form& form, int64_t m, int64_t n) {
    return {.c = nullptr,
            .a = nullptr,
            .b = nullptr,
            .m = m,
            .n = n,
            .k = form.k,
            .lda = form.transpose_a ? m : form.k,
            .ldb = form.transpose_b ? form.k : n,
            .ldc = n,
            .transpose_a = form.transpose_a,
            .transpose_b = form.transpose_b,
            .in = form.in,
            .out = form.out,
            .fnuz = form.fnuz};
  }

  bool supports(const Shape& shape, const Algorithm& algorithm) {
    size_t workspace_bytes = 0;
    return vendor_.supports(handle_, shape.product.get(), shape.a.get(), shape.b.get(), shape.c.get(), algorithm,
                            workspace_bytes) &&
           workspace_bytes == 0;
  }

  // The first algorithm that supports all sizes of the form: it is checked with m and n small and large.
  const Pinned& pinned(const Form& form) {
    const auto [at, added] = pinned_.try_emplace(form);
    if (!added) return at->second;
    at->second.reason = fmt::format("{} offers no algorithm for k = {} without split-k", Vendor::name, form.k);
    if (form.in == DType::u8 && !has_scales_by_rows()) {
      at->second.reason =
          fmt::format("{} ({}) is too old: it does not support row-wise scales", Vendor::name, library_->path());
      return at->second;
    }
    LtDescriptor preference = nullptr;
    check(lt_.MatmulPreferenceCreate(&preference), "a preference");
    const LtOwned owned(preference, LtDestroyer{lt_.MatmulPreferenceDestroy});
    const auto prefer = [&](int attribute, const auto& value) {
      check(lt_.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
    };
    prefer(Vendor::max_workspace, uint64_t{0});
    for (const LtPreference& own : Vendor::preferences) prefer(own.attribute, own.value);
    const Shape largest = shape(dense(form, large, large));
    std::vector<LtResult<Algorithm>> results(candidates);
    int returned = 0;
    const LtStatus status =
        lt_.MatmulAlgoGetHeuristic(handle_, largest.product.get(), largest.a.get(), largest.b.get(), largest.c.get(),
                                   largest.c.get(), preference, candidates, results.data(), &returned);
    if (status != 0) return at->second;
    const int64_t few_rows = form.transpose_a ? 8 : 1;  // rows of a stored [k, m] are m apart, aligned to 16 bytes
    const Shape others[] = {shape(dense(form, few_rows, large)), shape(dense(form, large, 8)),
                            shape(dense(form, few_rows, 8))};
    for (int i = 0; i < returned && !at->second.found; ++i) {
      const LtResult<Algorithm>& result = results[static_cast<size_t>(i)];
      if (result.status != 0 || result.workspace_bytes != 0 || !vendor_.has_no_split_k(result.algorithm)) continue;
      bool all = supports(largest, result.algorithm);
      for (const Shape& other : others) all = all && supports(other, result.algorithm);
      if (all) at->second = {true, result.algorithm, {}};
    }
    return at->second;
  }

  const Plan& plan(const Gemm& p) {
    const std::pair<Form, Extent> key{form(p), {p.m, p.n, p.lda, p.ldb, p.ldc}};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() == max_plans) plans_.clear();
    Plan made{};
    const Pinned& pin = pinned(key.first);
    if (!pin.found) {
      made.reason = pin.reason;
    } else {
      made.shape = shape(p);
      made.algorithm = pin.algorithm;
      if (!supports(made.shape, pin.algorithm)) {
        made.reason = fmt::format("{}'s algorithm for k = {} does not support {} x {}", Vendor::name, p.k, p.m, p.n);
      }
    }
    return plans_.emplace(key, std::move(made)).first->second;
  }

  std::unique_ptr<SharedLibrary> library_;
  LtFunctions<Algorithm> lt_;
  Vendor vendor_;
  LtHandle handle_ = nullptr;
  std::map<Form, Pinned> pinned_;
  std::map<std::pair<Form, Extent>, Plan> plans_;
};

// Declines everything.
class AbsentMatmulLibrary : public MatmulLibrary {
 public:
  explicit AbsentMatmulLibrary(std::string reason) : reason_(std::move(reason)) {}
  std::string_view decline(const Gemm&) override { return reason_; }
  void multiply(const Gemm&, void*) override { throw_error(ErrorKind::internal, "{}", reason_); }

 private:
  std::string reason_;
};

template <class Vendor>
std::unique_ptr<MatmulLibrary> open_blas_lt() {
  std::unique_ptr<MatmulLibrary> opened;
  const std::string reason = try_libraries(Vendor::names(), [&](std::unique_ptr<SharedLibrary> library) {
    opened = std::make_unique<BlasLt<Vendor>>(std::move(library));
  });
  if (opened == nullptr) opened = std::make_unique<AbsentMatmulLibrary>(reason);
  return opened;
}

template <class Vendor>
LibraryInfo info_of_blas_lt() {
  LibraryInfo info;
  info.name = Vendor::name;
  info.reason = try_libraries(Vendor::names(), [&](std::unique_ptr<SharedLibrary> library) {
    const LtFunctions<typename Vendor::Algorithm> lt(*library, Vendor::prefix);
    info.version = Vendor(*library).version(lt);
    info.path = library->path();
  });
  return info;
}

}  // namespace ingot::gpu
