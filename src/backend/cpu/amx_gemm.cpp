#include "backend/cpu/amx_gemm.h"

#include "backend/cpu/amx/tiles.h"
#include "backend/cpu/glue.h"
#include "backend/cpu/workspace.h"

namespace ingot::cpu {

bool amx_declines(DType in, DType, int64_t k, ops::Refusal refuse) {
  if (in != DType::bf16) return refuse("supports bf16 only");
  return k == 0 && refuse("k is 0");
}

#if defined(INGOT_SIMD_X86)
namespace {

using amx::Lines;
using amx::tile_k;
using amx::tile_lines;

// Sizes of what is in the workspace: the right operand's packed lines for all threads (8 MiB), the left one's for one
// thread (1 MiB, half of its L2). If k is split, the sums of at most max_kept elements of c are kept between the chunks
// of k (16 MiB).
constexpr int64_t max_right = 2048;
constexpr int64_t max_k = 2048;
constexpr int64_t max_left = 256;
constexpr int64_t max_kept = max_right * 2048;
constexpr int64_t max_unit_sums = 2 * max_left * tile_lines;  // of a unit: amx::multiply's `sums`
static_assert(max_right * max_k * sizeof(Bf16) + max_kept * sizeof(float) <= amx_shared_workspace);
static_assert(max_left * max_k * sizeof(Bf16) + max_unit_sums * sizeof(float) <= thread_workspace);

int64_t tiles_of(int64_t count, int64_t size) { return (count + size - 1) / size; }
int64_t even(int64_t tiles) { return (tiles + 1) / 2 * 2; }

Lines part(const Lines& lines, int64_t first, int64_t most, int64_t k, int64_t k_count) {
  Lines some = lines;
  some.data += first * lines.line_step + k * lines.k_step;
  some.count = std::min(most, lines.count - first);
  some.k = k_count;
  return some;
}

// c, with element (left line l, right line r) at l * left_step + r * right_step.
struct Destination {
  std::byte* data;
  size_t element;
  int64_t left_step, right_step;

  Destination at(int64_t left, int64_t right) const {
    return {data + static_cast<size_t>(left * left_step + right * right_step) * element, element, left_step,
            right_step};
  }
  amx::Result result(const Gemm& gemm, int64_t left, int64_t right, int64_t rows, int64_t columns) const {
    std::byte* first = at(left, right).data;
    const bool wide = gemm.out == DType::f32;
    return {.c_float = wide ? reinterpret_cast<float*>(first) : nullptr,
            .c_bf16 = wide ? nullptr : reinterpret_cast<Bf16*>(first),
            .c_row = gemm.ldc,
            .rows = rows,
            .columns = columns,
            .transposed = left_step == 1,
            .accumulate = gemm.accumulate};
  }
};

// How the tiles of left x right lines are split into tasks (units).
struct Units {
  int64_t left_lines, right_lines;  // per unit
  int64_t blocks, groups;           // number of ranges of left and of right lines

  Units(int64_t left, int64_t right, int64_t threads) {
    const int64_t left_tiles = tiles_of(left, tile_lines);
    const int64_t right_tiles = tiles_of(right, tile_lines);
    // Balances the units over the threads. Left lines are packed again for every group, so there are few groups.
    blocks = tiles_of(left, max_left);
    groups = std::clamp<int64_t>(threads / blocks, 1, tiles_of(right_tiles, 2));
    const int64_t rounds = tiles_of(blocks * groups, threads);
    blocks = std::min(left_tiles, rounds * threads / groups);
    left_lines = even(tiles_of(left_tiles, blocks)) * tile_lines;
    right_lines = even(tiles_of(right_tiles, groups)) * tile_lines;
    blocks = tiles_of(left, left_lines);
    groups = tiles_of(right, right_lines);
  }

  int64_t count() const { return blocks * groups; }
};

int64_t whole_tiles(int64_t lines) { return tiles_of(lines, tile_lines) * tile_lines; }

// A part of the gemm: its left lines times packed right lines, over a chunk of k.
struct Piece {
  Lines left;
  const Bf16* right;
  int64_t right_count;
  const Units& units;
  Destination destination;  // of the part's first element
  float* kept;              // sums of all units, in whole tiles, if k is split; else null
  bool begin, end;          // whether this is the first, and the last, chunk of k

  void run(const Gemm& gemm, int64_t first_unit, int64_t last_unit, std::span<std::byte> workspace) const {
    WorkspaceArrays arrays(workspace);
    auto* packed = arrays.take<Bf16>(max_left * max_k);
    auto* unit_sums = arrays.take<float>(max_unit_sums);
    const int64_t k_tiles = tiles_of(left.k, tile_k);
    const int64_t line = k_tiles * tile_k;
    int64_t packed_block = -1;
    for (int64_t unit = first_unit; unit < last_unit; ++unit) {
      const int64_t l = unit / units.groups * units.left_lines;
      const int64_t r = unit % units.groups * units.right_lines;
      const Lines own = part(left, l, units.left_lines, 0, left.k);
      const int64_t columns = std::min(units.right_lines, right_count - r);
      if (l != packed_block) amx::pack_left(packed, own);
      packed_block = l;
      // The kept sums of units to the left of this one in its range of left lines, after those of earlier ranges.
      const int64_t before = l * whole_tiles(right_count) + r * whole_tiles(own.count);
      float* sums = kept != nullptr ? kept + before : unit_sums;
      const amx::Result result = destination.result(gemm, l, r, own.count, columns);
      amx::multiply(sums, packed, tiles_of(own.count, tile_lines), right + r * line, tiles_of(columns, tile_lines),
                    k_tiles, begin, end ? &result : nullptr);
    }
  }
};

// AMX tiles need pairs of k adjacent in memory: along the lines of the left operand, across the lines of the right one.
// An operand stored the other way is transposed while it is packed; if the operands are swapped, c is transposed.
// Returns whether swapping transposes less.
bool exchanged(const Gemm& gemm) {
  const int64_t a = gemm.m * gemm.k;
  const int64_t b = gemm.n * gemm.k;
  const int64_t straight = (gemm.transpose_a ? a : 0) + (gemm.transpose_b ? b : 0);
  const int64_t other = (gemm.transpose_a ? 0 : a) + (gemm.transpose_b ? 0 : b) + 2 * gemm.m * gemm.n;
  return other < straight;
}

void pack_right(ThreadPool& pool, int64_t threads, Bf16* packed, const Lines& lines) {
  const int64_t line = tiles_of(lines.k, tile_k) * tile_k;
  const int64_t share = tiles_of(tiles_of(lines.count, tile_lines), threads) * tile_lines;
  // Packing a few lines takes less time than waking up a thread.
  const int64_t grain = lines.count * lines.k < 64 * 1024 ? lines.count : share;
  pool.parallel_for(0, lines.count, grain, [&](int64_t lo, int64_t hi) {
    amx::pack_right(packed + lo * line, part(lines, lo, hi - lo, 0, lines.k));
  });
}

}  // namespace

void amx_gemm(ops::Context& context, const Gemm& gemm, void* c, const void* a, const void* b) {
  if (gemm.m == 0 || gemm.n == 0) return;
  const auto lines = [&](const void* data, bool by_k, int64_t ld, int64_t count) {
    return Lines{static_cast<const Bf16*>(data), by_k ? 1 : ld, by_k ? ld : 1, count, gemm.k};
  };
  Lines left = lines(a, gemm.transpose_a, gemm.lda, gemm.m);
  Lines right = lines(b, !gemm.transpose_b, gemm.ldb, gemm.n);
  Destination destination{static_cast<std::byte*>(c), size_of(gemm.out), gemm.ldc, 1};
  if (exchanged(gemm)) {
    std::swap(left, right);
    std::swap(destination.left_step, destination.right_step);
  }
  // Below this size, waking up the pool costs more than it saves.
  const int64_t threads = gemm.m * gemm.n * gemm.k < 64 * 1024 ? 1 : context.threads->threads();
  const bool kept = gemm.k > max_k;
  const int64_t right_step = std::min(max_right, even(tiles_of(right.count, tile_lines)) * tile_lines);
  const int64_t left_step = kept ? max_kept / right_step / max_left * max_left : left.count;

  const ThreadPool::Workspace workspace(*context.threads);
  WorkspaceArrays shared(workspace.shared());
  auto* packed = shared.take<Bf16>(max_right * max_k);
  auto* kept_sums = shared.take<float>(max_kept);
  for (int64_t r0 = 0; r0 < right.count; r0 += right_step) {
    const int64_t right_count = std::min(right_step, right.count - r0);
    for (int64_t l0 = 0; l0 < left.count; l0 += left_step) {
      const int64_t left_count = std::min(left_step, left.count - l0);
      const Units units(left_count, right_count, threads);
      for (int64_t k0 = 0; k0 < gemm.k; k0 += max_k) {
        const int64_t k = std::min(max_k, gemm.k - k0);
        pack_right(*context.threads, threads, packed, part(right, r0, right_count, k0, k));
        const Piece piece{part(left, l0, left_count, k0, k), packed,  right_count,     units, destination.at(l0, r0),
                          kept ? kept_sums : nullptr,        k0 == 0, k0 + k == gemm.k};
        context.threads->parallel_for(
            0, units.count(), tiles_of(units.count(), threads),
            [&](int64_t lo, int64_t hi, int thread) { piece.run(gemm, lo, hi, workspace.of(thread)); });
      }
    }
  }
}
#endif

}  // namespace ingot::cpu
