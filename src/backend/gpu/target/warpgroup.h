// Matrix products of a warpgroup, four warps of which the first one's number is a multiple of 4: wgmma of compute
// capability 9.0 (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"), and the same for the simulation of 32
// lanes. Each warp has 16 of the warpgroup's 64 rows of sums, in the layout of MmaAccumulator and MmaA (gpu.h).
// Operands are bf16, sums fp32. Kernel passes only.
//   has_warpgroups             whether this target has them; if false, no function here may run
//   swizzled_shared<T>()       dynamic_shared<T>(), aligned to 1024 bytes
//   SwizzledTile<rows, columns>   a matrix in shared memory
//   async_proxy_fence()        after writes of this thread to shared memory, before the barrier to products with it
//   warpgroup_fence(arrays...) between writes of registers (sums, fragments) and products that use them
//   warpgroup_multiply_nt(sums, a, row, b)   starts sums = rows [row, row + 64) of tile a times tile b transposed
//   warpgroup_multiply_nn(sums, a, b, row)   starts sums += a times rows of tile b from `row`, a multiple of 16, on, as
//                              many as a has columns; with fragments a of the warp's 16 rows
//   warpgroup_wait<pending>(sums...)   waits until at most `pending` of the warp's products are in flight, not those of
//                              `sums`. Until then their sums and fragments may not be used, nor their tiles be written.
// All threads of the warpgroup call each of the last four, with the same tiles.
#pragma once

#include "backend/gpu/gpu.h"

#if GPU_KERNEL_PASS
namespace ingot::gpu::GPU_TARGET {

// [rows][columns] as panels of 64 columns, whose rows have 128 bytes. The 16-byte chunks of row r are permuted by r % 8
// ("128-Byte Swizzle Mode"), so that the 8 rows that a product reads at once lie in different banks.
template <int rows, int columns>
struct SwizzledTile {
  static constexpr int panel = 64;  // columns
  static_assert(rows % 8 == 0 && columns % panel == 0);
  Bf16* base;  // aligned to 1024 bytes

  GPU_FN Bf16* at(int row, int column) const {
    return base + column / panel * (rows * panel) + row * panel + ((column % panel) ^ (row % 8 * 8));
  }
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

inline constexpr bool has_warpgroups = true;
template <class T>
GPU_FN T* swizzled_shared() {
  extern __shared__ __align__(1024) unsigned char ingot_swizzled_shared[];
  return reinterpret_cast<T*>(ingot_swizzled_shared);
}
GPU_FN void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Keep the compiler from moving uses of registers across the fence and the wait, which only order memory for it.
template <int count>
GPU_FN void keep_registers(MmaAccumulator (&sums)[count]) {
  GPU_UNROLL
  for (int n = 0; n < count; ++n) {
    GPU_UNROLL
    for (int i = 0; i < MmaAccumulator::count; ++i) asm volatile("" : "+f"(sums[n].at[i])::"memory");
  }
}
template <int count>
GPU_FN void keep_registers(MmaA (&a)[count]) {
  GPU_UNROLL
  for (int n = 0; n < count; ++n) {
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(a[n].at[i])::"memory");
  }
}
template <class... Registers>
GPU_FN void warpgroup_fence(Registers&... registers) {
  (keep_registers(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
template <int pending, class... Sums>
GPU_FN void warpgroup_wait(Sums&... sums) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
  (keep_registers(sums), ...);
}
GPU_FN void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// "Matrix Descriptor", with 128-byte swizzle. Groups of 8 rows of a panel are 1024 bytes apart (stride dimension). Of a
// tile whose rows are k, `leading` bytes are from one panel to the next; of others this field is not used.
GPU_FN uint64_t matrix_descriptor(const Bf16* start, uint32_t leading) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(start));
  return uint64_t{(address & 0x3ffff) >> 4} | uint64_t{leading >> 4} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

#define GPU_SUMS(sums)                                                                                \
  "+f"((sums).at[0]), "+f"((sums).at[1]), "+f"((sums).at[2]), "+f"((sums).at[3]), "+f"((sums).at[4]), \
      "+f"((sums).at[5]), "+f"((sums).at[6]), "+f"((sums).at[7])
#define GPU_32_SUMS(sums) GPU_SUMS((sums)[0]), GPU_SUMS((sums)[1]), GPU_SUMS((sums)[2]), GPU_SUMS((sums)[3])
#define GPU_64_SUMS(sums) \
  GPU_32_SUMS(sums), GPU_SUMS((sums)[4]), GPU_SUMS((sums)[5]), GPU_SUMS((sums)[6]), GPU_SUMS((sums)[7])
#define GPU_32_REGISTERS                                                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define GPU_64_REGISTERS                                                                                        \
  GPU_32_REGISTERS                                                                                              \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

template <int count, int a_rows, int columns>
GPU_FN void warpgroup_multiply_nt(MmaAccumulator (&sums)[count], const SwizzledTile<a_rows, columns>& a, int row,
                                  const SwizzledTile<16 * count, columns>& b) {
  static_assert(count == 4 || count == 8);
  GPU_UNROLL
  for (int k = 0; k < columns; k += mma_k) {
    const uint64_t a_matrix = matrix_descriptor(a.base + k / 64 * (a_rows * 64) + row * 64 + k % 64, 0);
    const uint64_t b_matrix = matrix_descriptor(b.base + k / 64 * (16 * count * 64) + k % 64, 0);
    const int accumulates = k > 0 ? 1 : 0;
    if constexpr (count == 4) {
      asm volatile(
          "{\n.reg .pred accumulates;\nsetp.ne.s32 accumulates, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" GPU_32_REGISTERS
          "}, %32, %33, accumulates, 1, 1, 0, 0;\n}"
          : GPU_32_SUMS(sums)
          : "l"(a_matrix), "l"(b_matrix), "r"(accumulates));
    } else {
      asm volatile(
          "{\n.reg .pred accumulates;\nsetp.ne.s32 accumulates, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" GPU_64_REGISTERS
          "}, %64, %65, accumulates, 1, 1, 0, 0;\n}"
          : GPU_64_SUMS(sums)
          : "l"(a_matrix), "l"(b_matrix), "r"(accumulates));
    }
  }
  warpgroup_commit();
}
template <int count, int k_tiles, int b_rows>
GPU_FN void warpgroup_multiply_nn(MmaAccumulator (&sums)[count], const MmaA (&a)[k_tiles],
                                  const SwizzledTile<b_rows, 16 * count>& b, int row) {
  static_assert(count == 4 || count == 8);
  GPU_UNROLL
  for (int t = 0; t < k_tiles; ++t) {
    const uint64_t matrix = matrix_descriptor(b.base + (row + t * mma_k) * 64, b_rows * 64 * sizeof(Bf16));
    const uint32_t(&at)[4] = a[t].at;
    if constexpr (count == 4) {
      asm volatile(
          "{\n.reg .pred accumulates;\nsetp.ne.s32 accumulates, %37, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" GPU_32_REGISTERS
          "}, {%32, %33, %34, %35}, %36, accumulates, 1, 1, 1;\n}"
          : GPU_32_SUMS(sums)
          : "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "l"(matrix), "r"(1));
    } else {
      asm volatile(
          "{\n.reg .pred accumulates;\nsetp.ne.s32 accumulates, %69, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" GPU_64_REGISTERS
          "}, {%64, %65, %66, %67}, %68, accumulates, 1, 1, 1;\n}"
          : GPU_64_SUMS(sums)
          : "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "l"(matrix), "r"(1));
    }
  }
  warpgroup_commit();
}

#else

template <class T>
GPU_FN T* swizzled_shared() {
  return dynamic_shared<T>();
}
GPU_FN void async_proxy_fence() {}
template <class... Registers>
GPU_FN void warpgroup_fence(Registers&...) {}
template <int pending, class... Sums>
GPU_FN void warpgroup_wait(Sums&...) {}

#if defined(INGOT_GPU_SIM) && INGOT_GPU_SIM == 32

// Products are made at once: that they are waited for is tested on the PTX (tests/backend/gpu/ptx).
inline constexpr bool has_warpgroups = true;

// sums += a b, of a warp's 16 rows: element (row, k) of a and (k, column) of b come from the functions, for k < k_size.
template <int k_size, int count, class A, class B>
inline void multiply_rows(MmaAccumulator* const (&sums)[warp_width], A a, B b) {
  for (int k0 = 0; k0 < k_size; k0 += mma_k) {
    float part[16][16 * count] = {};
    for (int k = k0; k < k0 + mma_k; ++k) {
      float of_b[16 * count];
      for (int column = 0; column < 16 * count; ++column) of_b[column] = b(k, column);
      for (int row = 0; row < 16; ++row) {
        const float of_a = a(row, k);
        for (int column = 0; column < 16 * count; ++column) part[row][column] += of_a * of_b[column];
      }
    }
    for (int lane = 0; lane < warp_width; ++lane) {
      for (int n = 0; n < count; ++n) {
        for (int i = 0; i < MmaAccumulator::count; ++i) {
          sums[lane][n].at[i] += part[mma_row_of(lane, i)][n * 16 + mma_column_of(lane, i)];
        }
      }
    }
  }
}

template <int count, int a_rows, int columns>
GPU_FN void warpgroup_multiply_nt(MmaAccumulator (&sums)[count], const SwizzledTile<a_rows, columns>& a, int row,
                                  const SwizzledTile<16 * count, columns>& b, int line = __builtin_LINE()) {
  struct Operands {
    MmaAccumulator* sums;
    const SwizzledTile<a_rows, columns>* a;
    int row;
    const SwizzledTile<16 * count, columns>* b;
  } operands{sums, &a, row + warp_index() % 4 * 16, &b};
  for (MmaAccumulator& each : sums) each = {};
  sim::warp_collective(
      &operands,
      [](void* const* by_lane) {
        MmaAccumulator* all_sums[warp_width];
        for (int lane = 0; lane < warp_width; ++lane)
          all_sums[lane] = static_cast<const Operands*>(by_lane[lane])->sums;
        const Operands& of = *static_cast<const Operands*>(by_lane[0]);
        multiply_rows<columns, count>(
            all_sums, [&](int r, int k) { return bf16_to_float(of.a->at(of.row + r, k)->bits); },
            [&](int k, int column) { return bf16_to_float(of.b->at(column, k)->bits); });
      },
      line);
}
template <int count, int k_tiles, int b_rows>
GPU_FN void warpgroup_multiply_nn(MmaAccumulator (&sums)[count], const MmaA (&a)[k_tiles],
                                  const SwizzledTile<b_rows, 16 * count>& b, int row, int line = __builtin_LINE()) {
  struct Operands {
    MmaAccumulator* sums;
    const MmaA* a;
    const SwizzledTile<b_rows, 16 * count>* b;
    int row;
  } operands{sums, a, &b, row};
  sim::warp_collective(
      &operands,
      [](void* const* by_lane) {
        MmaAccumulator* all_sums[warp_width];
        float of_a[16][mma_k * k_tiles];
        for (int lane = 0; lane < warp_width; ++lane) {
          const Operands& of_lane = *static_cast<const Operands*>(by_lane[lane]);
          all_sums[lane] = of_lane.sums;
          for (int t = 0; t < k_tiles; ++t) {
            for (int i = 0; i < mma_parts; ++i) {
              of_a[mma_a_row(lane, i)][t * mma_k + mma_a_k(lane, i)] = bf16_to_float(of_lane.a[t].at[i]);
            }
          }
        }
        const Operands& of = *static_cast<const Operands*>(by_lane[0]);
        multiply_rows<mma_k * k_tiles, count>(
            all_sums, [&](int r, int k) { return of_a[r][k]; },
            [&](int k, int column) { return bf16_to_float(of.b->at(of.row + k, column)->bits); });
      },
      line);
}

#else

inline constexpr bool has_warpgroups = false;

#endif
#endif

}  // namespace ingot::gpu::GPU_TARGET
#endif
