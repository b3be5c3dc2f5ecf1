// Matrix products of warpgroups in the emulator of PTX (tests/backend/gpu/ptx): their meaning as in NVIDIA's PTX ISA,
// "Asynchronous Warpgroup Level Matrix Instructions", and faults of kernels, which it must report.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/backend/gpu/ptx/executor.h"

namespace ingot::ptx {
namespace {

constexpr uint64_t base = 0x10000;
constexpr int threads = 128;
constexpr int columns = 72;             // of b: in two panels of 64
constexpr int registers = columns / 2;  // of a thread's sums
constexpr size_t out_words = size_t{threads} * registers;
constexpr size_t image_words = 4608;  // of shared memory
constexpr uint32_t b_at = 8192;       // bytes of shared memory; a is before it

// Small integers and halves, which bf16 holds.
float a_value(int row, int k) { return static_cast<float>((row * 5 + k * 3) % 17 - 8); }
float b_value(int k, int column) { return static_cast<float>((column * 7 + k * 2) % 13 - 6); }
uint16_t code(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

// Where element `column` (of 64) of row `row` of a panel with 128-byte swizzle lies, in elements: bits 4 to 6 of the
// address in bytes are those of the chunk, exclusive or bits 7 to 9.
size_t in_panel(int row, int column) {
  const int byte = row * 128 + column * 2;
  return static_cast<size_t>((byte ^ ((byte >> 7 & 7) << 4)) / 2);
}

uint64_t descriptor(uint32_t start, uint32_t leading, uint32_t stride) {
  return start / 16 | uint64_t{leading / 16} << 16 | uint64_t{stride / 16} << 32 | uint64_t{1} << 62;
}

// Input of a kernel: shared memory, then the fragments of a of each thread.
struct Input {
  std::vector<uint16_t> shared = std::vector<uint16_t>(image_words * 2);
  std::vector<uint16_t> fragments;
};
// a is [64][32] in a panel, b [72][32] in one (its rows are columns of the product).
Input k_major_input() {
  Input input;
  for (int k = 0; k < 32; ++k) {
    for (int row = 0; row < 64; ++row) input.shared[in_panel(row, k)] = code(a_value(row, k));
    for (int column = 0; column < columns; ++column) {
      input.shared[b_at / 2 + in_panel(column, k)] = code(b_value(k, column));
    }
  }
  input.fragments.resize(size_t{threads} * 8);
  return input;
}
// b is [16][128] in two panels; a [64][16] in registers.
Input mn_major_input() {
  Input input;
  for (int k = 0; k < 16; ++k) {
    for (int column = 0; column < columns; ++column) {
      const size_t panel = b_at / 2 + static_cast<size_t>(column / 64) * 16 * 64;
      input.shared[panel + in_panel(k, column % 64)] = code(b_value(k, column));
    }
  }
  for (int thread = 0; thread < threads; ++thread) {
    const int row = thread / 32 * 16 + thread % 32 / 4;
    const int k = thread % 4 * 2;
    for (const auto& [further_row, further_k] : {std::pair{0, 0}, {8, 0}, {0, 8}, {8, 8}}) {
      for (int i = 0; i < 2; ++i) input.fragments.push_back(code(a_value(row + further_row, k + further_k + i)));
    }
  }
  return input;
}

struct Outcome {
  std::vector<float> out;
  std::string error;
};

std::string sums() {
  std::string text;
  for (int r = 0; r < registers; ++r) text += (r > 0 ? ", %f" : "%f") + std::to_string(r);
  return text;
}

// Fills shared memory and the registers %r10 to %r13 of a, sets the sums to 0.5, runs `body`, stores the sums.
Outcome run_body(const std::string& body, const Input& input) {
  std::string text = R"(
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(
	.param .align 8 .b8 k_param_0[16]
)
.maxntid 128
{
	.reg .pred %p<9>;
	.reg .b32 %r<40>;
	.reg .b32 %f<40>;
	.reg .b64 %rd<20>;
	ld.param.u64 %rd1, [k_param_0];
	ld.param.u64 %rd2, [k_param_0+8];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, dynamic;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd2, %rd3;
	mad.lo.s32 %r3, %r1, 4, %r2;
	mov.b32 %r4, 0;
$L_copy:
	ld.global.u32 %r5, [%rd4];
	st.shared.u32 [%r3], %r5;
	add.s64 %rd4, %rd4, 512;
	add.s32 %r3, %r3, 512;
	add.s32 %r4, %r4, 1;
	setp.lt.u32 %p1, %r4, 36;
	@%p1 bra $L_copy;
	mul.wide.u32 %rd5, %r1, 16;
	add.s64 %rd6, %rd2, %rd5;
	ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd6+18432];
	mov.pred %p2, 0;
	mov.pred %p3, 1;
)";
  for (int r = 0; r < registers; ++r) text += "\tmov.f32 %f" + std::to_string(r) + ", 0f3F000000;\n";
  text += body + "\n\tmul.wide.u32 %rd7, %r1, " + std::to_string(registers * 4) + ";\n\tadd.s64 %rd8, %rd1, %rd7;\n";
  for (int r = 0; r < registers; ++r) {
    text += "\tst.global.f32 [%rd8+" + std::to_string(4 * r) + "], %f" + std::to_string(r) + ";\n";
  }
  text += "\tret;\n}\n";
  std::vector<std::byte> contents(out_words * 4 + image_words * 4 + size_t{threads} * 16);
  std::memcpy(contents.data() + out_words * 4, input.shared.data(), image_words * 4);
  std::memcpy(contents.data() + out_words * 4 + image_words * 4, input.fragments.data(), size_t{threads} * 16);
  const uint64_t pointers[2] = {base, base + out_words * 4};
  GlobalMemory memory(base, contents, {{pointers[0], out_words * 4}, {pointers[1], contents.size() - out_words * 4}});
  Outcome outcome;
  try {
    const Module module = parse(text);
    const Kernel kernel(module, "k");
    run(kernel, {1, 1, threads, image_words * 4}, std::as_bytes(std::span(pointers)), memory, nullptr, 100000);
  } catch (const Error& error) {
    outcome.error = error.message();
  }
  outcome.out.resize(out_words);
  std::memcpy(outcome.out.data(), memory.contents().data(), out_words * 4);
  return outcome;
}

// "Matrix fragments": groups of 8 columns in 4 registers of each thread, whose rows are 8 apart in the latter two.
bool is_product(const Outcome& outcome, int k_size, float before) {
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < columns; ++column) {
      float sum = before;
      for (int k = 0; k < k_size; ++k) sum += a_value(row, k) * b_value(k, column);
      const int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
      const int at = column / 8 * 4 + (row % 16 >= 8 ? 2 : 0) + column % 2;
      if (outcome.out[static_cast<size_t>(thread * registers + at)] != sum) return false;
    }
  }
  return true;
}

const std::string fences = "fence.proxy.async.shared::cta;\nbar.sync 0;\nwgmma.fence.sync.aligned;\n";
const std::string commit = "wgmma.commit_group.sync.aligned;\n";
const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
const std::string product = "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {" + sums() + "}, ";

std::string k_major_step(uint32_t k, const std::string& accumulates) {
  return "mov.b64 %rd10, " + std::to_string(descriptor(k * 2, 0, 1024)) + ";\nmov.b64 %rd11, " +
         std::to_string(descriptor(b_at + k * 2, 0, 1024)) + ";\n" + product + "%rd10, %rd11, " + accumulates +
         ", 1, 1, 0, 0;\n";
}
const std::string mn_major = "mov.b64 %rd11, " + std::to_string(descriptor(b_at, 2048, 1024)) + ";\n" + product +
                             "{%r10, %r11, %r12, %r13}, %rd11, %p3, 1, 1, 1;\n";
const std::string whole = fences + mn_major + commit + wait;

TEST(PtxWarpgroup, MultipliesMatricesInSharedMemory) {
  const Outcome first =
      run_body(fences + k_major_step(0, "%p2") + k_major_step(16, "%p3") + commit + wait, k_major_input());
  ASSERT_EQ(first.error, "");
  EXPECT_TRUE(is_product(first, 32, 0)) << "the first of two products is not added";
  const Outcome added = run_body(fences + k_major_step(0, "%p3") + commit + wait, k_major_input());
  ASSERT_EQ(added.error, "");
  EXPECT_TRUE(is_product(added, 16, 0.5F));
}

TEST(PtxWarpgroup, MultipliesFragmentsByATransposedMatrix) {
  const Outcome outcome = run_body(whole, mn_major_input());
  ASSERT_EQ(outcome.error, "");
  EXPECT_TRUE(is_product(outcome, 16, 0.5F));
}

TEST(PtxWarpgroup, FindsMistakes) {
  struct Mistake {
    std::string text, replacement, error;  // without an error the values are wrong
  };
  const std::string start = std::to_string(descriptor(b_at, 2048, 1024));
  const Mistake mistakes[] = {
      {"fence.proxy.async.shared::cta;", "", "without fence.proxy.async"},
      {"bar.sync 0;", "", "a race"},
      {fences, "bar.sync 0;\nfence.proxy.async.shared::cta;\nwgmma.fence.sync.aligned;\n", "without fence.proxy.async"},
      {"wgmma.fence.sync.aligned;", "", "no wgmma.fence"},
      {"wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; mov.f32 %f7, 0f00000000;", "after the last wgmma.fence"},
      {"wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned; add.s32 %r12, %r12, 1;", "after the last wgmma.fence"},
      {commit, "", ""},
      {wait, "", ""},
      {wait, "wgmma.wait_group.sync.aligned 1;", ""},
      {wait, "add.rn.f32 %f3, %f3, %f3;\n" + wait, "sums of a matrix product were written"},
      {wait, "mov.b32 %r13, 0;\n" + wait, "an operand of a matrix product was written"},
      {wait, "st.shared.u32 [%r2+8192], %r1;\n" + wait, "before a matrix product that reads it"},
      {"mov.b64 %rd11", "setp.gt.u32 %p4, %r1, 31; @%p4 bra $L_end;\nmov.b64 %rd11", "do not make the same"},
      {"mov.b64 %rd11, " + start, "cvt.u64.u32 %rd11, %r1", "different matrix descriptors"},
      {start, std::to_string(descriptor(b_at, 2048, 1024) ^ uint64_t{3} << 62), "is not supported"},
      {start, std::to_string(descriptor(b_at + 128, 2048, 1024)), "is not supported"},
      {start, std::to_string(descriptor(b_at, 4096, 1024)), ""},
      {start, std::to_string(descriptor(b_at, 2048, 2048)), ""},
      {start, std::to_string(descriptor(b_at + 8192, 2048, 1024)), "outside shared memory"},
      {"%p3, 1, 1, 1;", "%p3, 1, 1, 0;", ""},
      {"%p3, 1, 1, 1;", "%p2, 1, 1, 1;", ""},
      {"%p3, 1, 1, 1;", "%p3, 1, -1, 1;", "is not supported"},
  };
  for (const Mistake& mistake : mistakes) {
    std::string body = whole + "$L_end:";
    ASSERT_NE(body.find(mistake.text), std::string::npos) << mistake.text;
    body.replace(body.find(mistake.text), mistake.text.size(), mistake.replacement);
    const Outcome outcome = run_body(body, mn_major_input());
    if (mistake.error.empty()) {
      EXPECT_EQ(outcome.error, "") << mistake.text << " -> " << mistake.replacement;
      EXPECT_FALSE(is_product(outcome, 16, 0.5F)) << mistake.text << " -> " << mistake.replacement;
    } else {
      EXPECT_NE(outcome.error.find(mistake.error), std::string::npos)
          << mistake.text << " -> " << mistake.replacement << ": " << outcome.error;
    }
  }
  // After the wait a write of another thread needs a barrier as well.
  const std::string write = "st.shared.u32 [%r2+8192], %r1;\n";
  EXPECT_NE(run_body(whole + write, mn_major_input()).error.find("a race"), std::string::npos);
  const std::string by_one = "setp.ne.s32 %p4, %r1, 0;\n@%p4 bra $L_end;\n" + write + "$L_end:";
  EXPECT_EQ(run_body(whole + "bar.sync 0;\n" + by_one, mn_major_input()).error, "");
}

}  // namespace
}  // namespace ingot::ptx
