// Declarations of symbols that simd/*.cpp defines once per instruction-set level. A header of simd/ writes
//   struct AddKernels { void (*add)(float* y, ...); };
//   INGOT_EVERY_LEVEL(extern const AddKernels add_kernels;)
// and its .cpp defines add_kernels in `namespace ingot::cpu::INGOT_SIMD_LEVEL`.
//
// Rules for simd/*.cpp, because a level's code must never run on a machine of a lower level: everything is in the
// level's namespace (and anonymous or static unless exported); no standard containers or algorithms, and no inline
// functions from elsewhere: the linker keeps one copy of a weak symbol for all callers, which could be the one compiled
// with AVX-512.
#pragma once

#define INGOT_EVERY_LEVEL(...) \
  namespace ingot::cpu {       \
  namespace plain {            \
  __VA_ARGS__                  \
  }                            \
  namespace avx2 {             \
  __VA_ARGS__                  \
  }                            \
  namespace avx512 {           \
  __VA_ARGS__                  \
  }                            \
  }

namespace ingot::cpu {

// Elements of 16-bit types, distinct types for overloading; laid out as uint16_t.
struct Bf16 {
  unsigned short bits;
};
struct F16 {
  unsigned short bits;
};

// One kernel per activation dtype; Form<T> is its signature. Backward kernels have no f16, because f16 is not trained
// in.
template <template <class> class Form>
struct ForTypes {
  Form<float>* f32;
  Form<Bf16>* bf16;
  Form<F16>* f16;
};

}  // namespace ingot::cpu
