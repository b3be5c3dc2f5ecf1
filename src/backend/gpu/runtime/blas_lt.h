// The common implementation for cuBLASLt and hipBLASLt, whose functions differ only in their prefix. Both take
// column-major matrices, so that a row-major c = a b is requested as its transpose, c' = b' a', on the same memory.
//
// Algorithms are the first in the vendor's list that fit. How many gemms share one depends on what their bits may
// depend on (Gemm::invariance):
//   slices  all of one type, form and k: the algorithm for a large result, without split-k and workspace. The summation
//           order then depends on k only (ops/matmul.h), as far as a kernel treats all its tiles alike.
//   rows    those that also have one n: the algorithm for many rows, without split-k and workspace.
//   none    those that also have a similar m (row_bucket); split-k with fp32 sums in a fixed order and workspace are
//           allowed.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <map>
#include <vector>

#include "backend/gpu/runtime/blas_lt_functions.h"
#include "backend/gpu/runtime/matmul_library.h"
#include "base/error.h"

namespace ingot::gpu {

// `Vendor` provides: Algorithm; name, prefix, names(); the codes f32, bf16, f16, e4m3, e4m3_fnuz, compute_f32,
// transposed, not_transposed; transpose_a, transpose_b, a_scales, b_scales (attributes of a matmul), max_workspace (of
// a preference); a constructor from SharedLibrary; and
//   epilogue, bias, bias_type (attributes of a matmul);
//   preferences(bool split): the vendor's own, where sums may be split or not;
//   const char* decline_codes(product): why it cannot run this fp8 gemm, even if the library offers algorithms;
//   LtSum sum(handle, algorithm, workspace_bytes): how it adds up a gemm that needs so much workspace;
//   std::string algorithm_name(handle, algorithm): for messages;
//   bool supports(handle, product, a, b, c, algorithm, LtResult& result): whether it can run the gemm, and with which
//     workspace and number of waves (0: unknown);
//   void describe(handle, algorithm, MatmulPlan&): assigns algorithm, tile and split_k;
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
    for (const void* data : {static_cast<const void*>(p.c), p.addend, p.bias, p.a, p.b}) {
      if (reinterpret_cast<uintptr_t>(data) % aligned_bytes != 0) return "memory is not aligned to 16 bytes";
    }
    for (const int64_t bytes : {p.lda * size(p.in), p.ldb * size(p.in), p.ldc * size(p.out)}) {
      if (bytes % aligned_bytes != 0) return "row strides are not multiples of 16 bytes";
    }
    if (p.in == DType::u8) {
      if (p.k % aligned_bytes != 0) return "fp8 needs k to be a multiple of 16";
      if (const std::string_view reason = vendor_.decline_codes(p); !reason.empty()) return reason;
    }
    return best(p).reason;
  }

  void multiply(const Gemm& p, void* workspace, void* stream) override {
    const Plan& with = best(p);
    if (!with.reason.empty()) throw_error(ErrorKind::internal, "{}: {}: {}", Vendor::name, text(p), with.reason);
    const float alpha = p.fnuz ? 4 : 1;
    if (p.in == DType::u8) set_scales(with.shape.product.get(), p.b_scales, p.a_scales);
    if (p.bias != nullptr) set_bias(with.shape.product.get(), p.bias);
    const float beta = p.addend != nullptr ? 1 : 0;
    const void* addend = p.addend != nullptr ? p.addend : p.c;
    const LtStatus status =
        lt_.Matmul(handle_, with.shape.product.get(), &alpha, p.b, with.shape.a.get(), p.a, with.shape.b.get(), &beta,
                   addend, with.shape.c.get(), p.c, with.shape.c.get(), &with.algorithm,
                   with.workspace_bytes > 0 ? workspace : nullptr, with.workspace_bytes, stream);
    check(status, text(p));
  }

  MatmulPlan describe(const Gemm& p) override {
    MatmulPlan described;
    described.reason = decline(p);
    if (!described.reason.empty()) return described;
    const Plan& with = best(p);
    described.waves = with.waves;
    described.workspace_bytes = with.workspace_bytes;
    vendor_.describe(handle_, with.algorithm, described);
    return described;
  }

 private:
  static constexpr int64_t aligned_bytes = 16;
  static constexpr int64_t large = 8192;   // m and n of the gemm that algorithms are requested for
  static constexpr int64_t few_rows = 16;  // up to here, bits never depend on m (ops::LinearAttributes)
  static constexpr int candidates = 32;    // max algorithms requested from the vendor's heuristic
  static constexpr size_t max_plans =
      4096;  // size of each cache, of plans and of algorithms; prompts have many lengths
  // A non-null dummy address, for descriptors that are not launched.
  static inline const float* const some_address = reinterpret_cast<const float*>(aligned_bytes);

  struct Shape {
    LtOwned product, a, b, c;
  };
  struct Plan {
    std::string reason;  // why there is no plan
    Shape shape;
    Algorithm algorithm = {};
    size_t workspace_bytes = 0;
    float waves = 0;
  };
  // Types, layout, whether it has a bias, and k.
  struct Form {
    DType in, out;
    bool transpose_a, transpose_b, fnuz, bias;
    int64_t k;
    auto operator<=>(const Form&) const = default;
  };
  // Gemms that share an algorithm: all of the form (m and n are 0), those with n columns (m is 0), or those with n
  // columns and, rounded up, m rows. Whether sums may be split, with or without workspace, is part of it.
  struct Class {
    Form form;
    int64_t m = 0, n = 0;
    bool workspace = false;
    auto operator<=>(const Class&) const = default;
  };
  struct Extent {
    int64_t m, n, lda, ldb, ldc;
    auto operator<=>(const Extent&) const = default;
  };
  struct Selected {
    bool found = false;
    Algorithm algorithm = {};
    std::string reason = "no algorithm was asked for";  // why none was found; empty: it was
  };

  static int64_t size(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }
  static int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
  static int type(DType dtype, bool fnuz) {
    switch (dtype) {
      case DType::f32: return Vendor::f32;
      case DType::bf16: return Vendor::bf16;
      case DType::u8: return fnuz ? Vendor::e4m3_fnuz : Vendor::e4m3;
      default: return Vendor::f16;
    }
  }
  static Class class_of(const Gemm& p, bool workspace) {
    const Form form{p.in, p.out, p.transpose_a, p.transpose_b, p.fnuz, p.bias != nullptr, p.k};
    switch (p.invariance) {
      case ops::Invariance::slices: return {form};
      case ops::Invariance::rows: return {form, 0, p.n};
      case ops::Invariance::none: break;
    }
    return {form, row_bucket(p.m), p.n, workspace};
  }
  static std::string text(const Gemm& p) {
    return fmt::format("gemm of {} [{}, {}] and [{}, {}]{}{}{}", p.in == DType::u8 ? "fp8" : name(p.in), p.m, p.k, p.k,
                       p.n, p.transpose_a ? ", the first transposed" : "",
                       p.transpose_b ? ", the second transposed" : "", p.bias != nullptr ? ", with a bias" : "");
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

  void set_bias(LtDescriptor product, const void* bias) const {
    check(lt_.MatmulDescSetAttribute(product, Vendor::bias, static_cast<const void*>(&bias), sizeof bias), "a bias");
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
      set_scales(product, some_address, some_address);
    }
    if (p.bias != nullptr) {
      constexpr uint32_t add_bias = 4;  // .._EPILOGUE_BIAS in both libraries: to each of our rows
      const int32_t bias_type = type(p.out, false);
      check(lt_.MatmulDescSetAttribute(product, Vendor::epilogue, &add_bias, sizeof add_bias), "a bias");
      check(lt_.MatmulDescSetAttribute(product, Vendor::bias_type, &bias_type, sizeof bias_type), "a bias");
      set_bias(product, some_address);  // each call sets its own when it starts
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

  // A gemm of this form whose matrices are stored densely, but for rows that begin at multiples of 16 bytes.
  static Gemm dense(const Form& form, int64_t m, int64_t n) {
    const auto stride = [](int64_t elements, DType dtype) { return round_up(elements, aligned_bytes / size(dtype)); };
    return {.c = nullptr,
            .a = nullptr,
            .b = nullptr,
            .m = m,
            .n = n,
            .k = form.k,
            .lda = stride(form.transpose_a ? m : form.k, form.in),
            .ldb = stride(form.transpose_b ? form.k : n, form.in),
            .ldc = stride(n, form.out),
            .transpose_a = form.transpose_a,
            .transpose_b = form.transpose_b,
            .bias = form.bias ? some_address : nullptr,
            .in = form.in,
            .out = form.out,
            .fnuz = form.fnuz};
  }

  // Whether the algorithm runs the gemm with at most `max_workspace` bytes. Assigns workspace and waves of `result`.
  bool supports(const Shape& shape, const Algorithm& algorithm, size_t max_workspace, LtResult<Algorithm>& result) {
    return vendor_.supports(handle_, shape.product.get(), shape.a.get(), shape.b.get(), shape.c.get(), algorithm,
                            result) &&
           result.workspace_bytes <= max_workspace;
  }

  // The vendor's list for this gemm, best first; empty where it has none.
  std::vector<LtResult<Algorithm>> heuristic(const Shape& shape, size_t max_workspace, bool split) {
    LtDescriptor preference = nullptr;
    check(lt_.MatmulPreferenceCreate(&preference), "a preference");
    const LtOwned owned(preference, LtDestroyer{lt_.MatmulPreferenceDestroy});
    const auto prefer = [&](int attribute, const auto& value) {
      check(lt_.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
    };
    prefer(Vendor::max_workspace, uint64_t{max_workspace});
    for (const LtPreference& own : Vendor::preferences(split)) prefer(own.attribute, own.value);
    std::vector<LtResult<Algorithm>> results(candidates);
    int returned = 0;
    const LtStatus status =
        lt_.MatmulAlgoGetHeuristic(handle_, shape.product.get(), shape.a.get(), shape.b.get(), shape.c.get(),
                                   shape.c.get(), preference, candidates, results.data(), &returned);
    results.resize(status == 0 ? static_cast<size_t>(returned) : 0);
    return results;
  }

  // Why the algorithm does not serve a class for which it may need `max_workspace` bytes, empty if it does: `shapes`
  // are its sizes, the largest first.
  std::string refusal(const Class& of, const std::vector<Shape>& shapes, const Algorithm& algorithm,
                      size_t max_workspace) {
    for (const Shape& shape : shapes) {
      LtResult<Algorithm> checked{};
      if (!supports(shape, algorithm, max_workspace, checked)) return "does not support all sizes";
      const LtSum sum = vendor_.sum(handle_, algorithm, checked.workspace_bytes);
      if (!sum.refusal.empty()) return std::string(sum.refusal);
      if (sum.order != LtOrder::whole && of.m == 0) return "adds sums of several pieces";
      // With few rows, a row's bits do not depend on their number.
      if (sum.order == LtOrder::split_by_shape && of.m == few_rows) return "chooses the number of pieces by the shape";
    }
    return {};
  }

  // The first algorithm that supports all sizes of the class: it is checked with m and n small and large.
  const Selected& selected(const Class& of) {
    if (selected_.size() == max_plans) selected_.clear();
    const auto [at, added] = selected_.try_emplace(of);
    Selected& made = at->second;
    if (!added) return made;
    const Form& form = of.form;
    if (form.in == DType::u8 && !has_scales_by_rows()) {
      made.reason =
          fmt::format("{} ({}) is too old: it does not support row-wise scales", Vendor::name, library_->path());
      return made;
    }
    const bool split = of.m > 0;
    const size_t max_workspace = of.workspace ? matmul_workspace_bytes : 0;
    const int64_t m = of.m > 0 ? of.m : large;
    const int64_t n = of.n > 0 ? of.n : large;
    // What else it must support. A stored [k, m] has rows of at least 16 bytes.
    const int64_t smallest = form.transpose_a ? 8 : 1;
    std::vector<Shape> shapes;
    shapes.push_back(shape(dense(form, m, n)));
    if (of.m <= few_rows) shapes.push_back(shape(dense(form, smallest, n)));
    if (of.n == 0) {
      shapes.push_back(shape(dense(form, large, 8)));
      shapes.push_back(shape(dense(form, smallest, 8)));
    }
    std::string refused;  // why the best one is not taken
    for (const LtResult<Algorithm>& result : heuristic(shapes.front(), max_workspace, split)) {
      if (result.status != 0 || result.workspace_bytes > max_workspace) continue;
      const std::string why = refusal(of, shapes, result.algorithm, max_workspace);
      if (why.empty()) {
        made = {true, result.algorithm, {}};
        return made;
      }
      if (refused.empty())
        refused = fmt::format("; its first, {}, {}", vendor_.algorithm_name(handle_, result.algorithm), why);
    }
    made.reason = fmt::format("{} offers no algorithm for k = {}{}{}", Vendor::name, form.k,
                              split ? " with reproducible sums" : " without split-k", refused);
    return made;
  }

  // The plan that `decline`, `multiply` and `describe` share.
  const Plan& best(const Gemm& p) {
    if (p.invariance == ops::Invariance::none) {
      const Plan& with = plan(p, true);
      if (with.reason.empty()) return with;
    }
    return plan(p, false);
  }

  const Plan& plan(const Gemm& p, bool workspace) {
    const std::pair<Class, Extent> key{class_of(p, workspace), {p.m, p.n, p.lda, p.ldb, p.ldc}};
    const auto found = plans_.find(key);
    if (found != plans_.end()) return found->second;
    if (plans_.size() == max_plans) plans_.clear();
    Plan made{};
    const Selected& with = selected(key.first);
    if (!with.found) {
      made.reason = with.reason;
    } else {
      made.shape = shape(p);
      made.algorithm = with.algorithm;
      LtResult<Algorithm> checked{};
      if (!supports(made.shape, with.algorithm, workspace ? matmul_workspace_bytes : 0, checked)) {
        made.reason = fmt::format("{}'s algorithm for k = {} does not support {} x {}", Vendor::name, p.k, p.m, p.n);
      }
      made.workspace_bytes = checked.workspace_bytes;
      made.waves = checked.waves;
    }
    return plans_.emplace(key, std::move(made)).first->second;
  }

  std::unique_ptr<SharedLibrary> library_;
  LtFunctions<Algorithm> lt_;
  Vendor vendor_;
  LtHandle handle_ = nullptr;
  std::map<Class, Selected> selected_;
  std::map<std::pair<Class, Extent>, Plan> plans_;
};

// Declines everything.
class AbsentMatmulLibrary : public MatmulLibrary {
 public:
  explicit AbsentMatmulLibrary(std::string reason) : reason_(std::move(reason)) {}
  bool is_absent() const override { return true; }
  std::string_view decline(const Gemm&) override { return reason_; }
  void multiply(const Gemm&, void*, void*) override { throw_error(ErrorKind::internal, "{}", reason_); }
  MatmulPlan describe(const Gemm&) override {
    MatmulPlan described;
    described.reason = reason_;
    return described;
  }

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
