// Declares what every level's copy of simd/*.cpp defines. A header of simd/ writes
//   struct AddKernels { void (*add)(float* y, ...); };
//   INGOT_EVERY_LEVEL(extern const AddKernels add_kernels;)
// and its .cpp defines add_kernels in `namespace ingot::cpu::INGOT_SIMD_LEVEL`.
//
// Rules for simd/*.cpp, because a level's code must never run on a lower machine: everything in the level's namespace
// (anonymous or static where it is not exported), no standard containers or algorithms, no inline functions from
// elsewhere: a weak symbol compiled with AVX-512 could be the copy that the linker keeps for everyone.
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

// Elements of 16-bit types, told apart by overloading; laid out as uint16_t.
struct Bf16 {
  unsigned short bits;
};
struct F16 {
  unsigned short bits;
};

// A kernel for every type of activations; Form<T> is its signature. Backward kernels have no f16: nothing is trained in
// it.
template <template <class> class Form>
struct ForTypes {
  Form<float>* f32;
  Form<Bf16>* bf16;
  Form<F16>* f16;
};

}  // namespace ingot::cpu
