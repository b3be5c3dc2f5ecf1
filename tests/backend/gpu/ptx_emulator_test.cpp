// The emulator of PTX (tests/backend/gpu/ptx) on short kernels: each instruction's meaning as in NVIDIA's PTX ISA, and
// faults of kernels, which it must report.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "tests/backend/gpu/ptx/executor.h"
#include "tests/backend/gpu/ptx/recording.h"

namespace ingot::ptx {
namespace {

constexpr uint64_t base = 0x10000;
constexpr size_t words = 256;  // of each of the two allocations

// A kernel with two pointers: %rd1 is that to the output, %rd2 that to the input, %rd3 the address of the thread's
// output word, %r1 the thread's number.
std::string kernel_of(const std::string& body) {
  return R"(
.version 9.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(
	.param .align 8 .b8 k_param_0[16]
)
.maxntid 64 .minnctapersm 5
{
	.reg .pred %p<9>;
	.reg .b16 %rs<20>;
	.reg .b32 %r<40>;
	.reg .b32 %f<20>;
	.reg .b64 %rd<20>;
	.reg .b64 %fd<9>;
	.local .align 16 .b8 __local_depot0[32];
	.shared .align 16 .b8 shared[1024];
	ld.param.u64 %rd10, [k_param_0];
	cvta.to.global.u64 %rd1, %rd10;
	ld.param.u64 %rd2, [k_param_0+8];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd4, %r1, 4;
	add.s64 %rd3, %rd1, %rd4;
	mov.u32 %r39, shared;
	mad.lo.s32 %r2, %r1, 4, %r39;
)" + body +
         "\n\tret;\n}\n";
}

struct Outcome {
  std::vector<uint32_t> out;
  std::vector<uint8_t> executed;  // by instruction
  std::string error;
};

Outcome run_body(const std::string& body, int threads = 32, const std::vector<uint32_t>& input = {}, int blocks = 1) {
  const std::string text = kernel_of(body);
  std::vector<std::byte> contents(2 * words * 4 + 64);
  if (!input.empty()) std::memcpy(contents.data() + words * 4 + 64, input.data(), input.size() * 4);
  const uint64_t pointers[2] = {base, base + words * 4 + 64};
  GlobalMemory memory(base, contents, {{pointers[0], words * 4}, {pointers[1], words * 4}});
  Outcome outcome;
  try {
    const Module module = parse(text);
    const Kernel kernel(module, "k");
    outcome.executed.resize(kernel.instructions().size());
    run(kernel, {blocks, 1, threads, 256}, std::as_bytes(std::span(pointers)), memory, &outcome.executed, 100000);
  } catch (const Error& error) {
    outcome.error = error.message();
  }
  outcome.out.resize(words);
  std::memcpy(outcome.out.data(), memory.contents().data(), words * 4);
  return outcome;
}

// The value that `body` leaves in %r0.
uint32_t value_of(const std::string& body) {
  const Outcome outcome = run_body(body + " st.global.u32 [%rd3], %r0;");
  EXPECT_EQ(outcome.error, "") << body;
  return outcome.out[5];
}

struct Meaning {
  const char* body;
  uint32_t wanted;
};

TEST(PtxEmulator, IntegersWrapAndShiftsAreClamped) {
  const Meaning meanings[] = {
      {"mov.b32 %r3, 2147483647; add.s32 %r0, %r3, 2;", 0x80000001},
      {"mov.b32 %r3, -7; div.s32 %r0, %r3, 2;", static_cast<uint32_t>(-3)},
      {"mov.b32 %r3, -7; rem.s32 %r0, %r3, 2;", static_cast<uint32_t>(-1)},
      {"mov.b32 %r3, -2147483648; div.s32 %r0, %r3, -1;", 0x80000000},
      {"mov.b32 %r3, -7; div.u32 %r0, %r3, 2;", 0x7ffffffc},
      {"mov.b32 %r3, -8; shr.s32 %r0, %r3, 40;", 0xffffffff},
      {"mov.b32 %r3, -8; shr.u32 %r0, %r3, 1;", 0x7ffffffc},
      {"mov.b32 %r3, -8; shr.u32 %r0, %r3, 32;", 0},
      {"mov.b32 %r3, 3; shl.b32 %r0, %r3, 32;", 0},
      {"mov.b16 %rs1, -3; mul.wide.s16 %r0, %rs1, 1000;", static_cast<uint32_t>(-3000)},
      {"mov.b16 %rs1, 40000; mul.hi.u16 %rs2, %rs1, 40000; cvt.u32.u16 %r0, %rs2;", 24414},
      {"mov.b64 %rd5, 6000000000; mad.lo.s64 %rd6, %rd5, 3, 5; shr.u64 %rd7, %rd6, 32; cvt.u32.u64 %r0, %rd7;", 4},
      {"mov.b32 %r3, 0x12345678; bfe.u32 %r0, %r3, 8, 12;", 0x456},
      {"mov.b32 %r3, 0x12345678; bfi.b32 %r0, -4, %r3, 28, 8;", 0xc2345678},
      {"mov.b32 %r3, 0x12345678; bfi.b32 %r0, 5, %r3, 8, 12;", 0x12300578},
      {"mov.b64 %rd5, 3; bfi.b64 %rd6, %rd5, %rd5, 32, 32; shr.u64 %rd7, %rd6, 32; cvt.u32.u64 %r0, %rd7;", 3},
      {"mov.b64 %rd5, -1; popc.b64 %r0, %rd5;", 64},
      {"mov.b32 %r3, 0x33221100; mov.b32 %r4, 0x77665584; prmt.b32 %r0, %r3, %r4, 0x5c41U;", 0x55ff8411},
      {"mov.b32 %r3, 5; mov.b32 %r4, -6; min.s32 %r0, %r3, %r4;", static_cast<uint32_t>(-6)},
      {"mov.b32 %r3, 5; mov.b32 %r4, -6; min.u32 %r0, %r3, %r4;", 5},
      {"mov.b32 %r3, 0xabcd1234; mov.b32 {%rs1, %rs2}, %r3; mov.b32 %r0, {%rs2, %rs1};", 0x1234abcd},
      {"mov.b64 %rd5, 0x700000003; { .reg .b32 tmp; mov.b64 {tmp, %r0}, %rd5; }", 7},
      {"mov.b32 %r3, 5; setp.lt.s32 %p1, %r3, 6; selp.b32 %r0, 1, 2, %p1;", 1},
      {"mov.b32 %r3, -1; setp.lt.u32 %p1, %r3, 6; not.pred %p2, %p1; selp.b32 %r0, 1, 2, %p2;", 1},
      {"mov.pred %p1, 1; mov.pred %p2, 0; and.pred %p3, %p1, %p2; selp.b32 %r0, 1, 2, %p3;", 2},
  };
  for (const Meaning& meaning : meanings) EXPECT_EQ(value_of(meaning.body), meaning.wanted) << meaning.body;
}

TEST(PtxEmulator, FloatsAreRoundedOnceAndNaNIsCanonical) {
  const Meaning meanings[] = {
      {"mov.f32 %f1, 0f3F800001; fma.rn.f32 %f2, %f1, %f1, 0fBF800002; mov.b32 %r0, %f2;", 0x28800000},  // 2^-46
      {"mov.f32 %f1, 0f3F800001; mul.rn.f32 %f2, %f1, %f1; add.rn.f32 %f3, %f2, 0fBF800002; mov.b32 %r0, %f3;", 0},
      {"mov.f32 %f1, 0f7FC01234; add.rn.f32 %f2, %f1, %f1; mov.b32 %r0, %f2;", 0x7fffffff},
      {"mov.f32 %f1, 0fBF800000; sqrt.rn.f32 %f2, %f1; mov.b32 %r0, %f2;", 0x7fffffff},
      {"mov.f32 %f1, 0f7FC01234; max.f32 %f2, %f1, 0f3F800000; mov.b32 %r0, %f2;", 0x3f800000},
      {"mov.f32 %f1, 0f80000000; max.f32 %f2, %f1, 0f00000000; mov.b32 %r0, %f2;", 0},
      {"mov.f32 %f1, 0f7FC00000; setp.ne.f32 %p1, %f1, %f1; selp.b32 %r0, 1, 2, %p1;", 2},
      {"mov.f32 %f1, 0f7FC00000; setp.neu.f32 %p1, %f1, %f1; selp.b32 %r0, 1, 2, %p1;", 1},
      {"mov.f32 %f1, 0f7FC00000; setp.leu.f32 %p1, %f1, 0f00000000; selp.b32 %r0, 1, 2, %p1;", 1},
      {"mov.f32 %f1, 0f40400000; rcp.rn.f32 %f2, %f1; mov.b32 %r0, %f2;", 0x3eaaaaab},
      {"mov.f32 %f1, 0f40400000; ex2.approx.ftz.f32 %f2, %f1; mov.b32 %r0, %f2;", 0x41000000},
      {"mov.f32 %f1, 0fC3000000; ex2.approx.ftz.f32 %f2, %f1; mov.b32 %r0, %f2;", 0},  // 2^-128 is subnormal
      {"mov.f32 %f1, 0f7FC00000; cvt.rzi.s64.f32 %rd5, %f1; shr.u64 %rd6, %rd5, 32; cvt.u32.u64 %r0, %rd6;",
       0x80000000},
      {"mov.f32 %f1, 0fC0200000; cvt.rzi.s64.f32 %rd5, %f1; cvt.u32.u64 %r0, %rd5;", static_cast<uint32_t>(-2)},
      {"mov.b32 %r3, -1; cvt.rn.f32.u32 %f1, %r3; mov.b32 %r0, %f1;", 0x4f800000},
      {"mov.b32 %r3, -1; cvt.rn.f32.s32 %f1, %r3; mov.b32 %r0, %f1;", 0xbf800000},
      {"mov.f64 %fd1, 0d3FF0000010000000; cvt.rn.f32.f64 %f1, %fd1; mov.b32 %r0, %f1;", 0x3f800000},  // ties to even
      {"mov.f32 %f1, 0f3F801000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1;", 0x3c00},          // ties to even
      {"mov.f32 %f1, 0f3F803000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1;", 0x3c02},
      {"mov.f32 %f1, 0f33C00000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1;", 2},  // subnormal
      {"mov.f32 %f1, 0f477FF000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r0, %rs1;", 0x7c00},
      {"mov.b16 %rs1, 0x8001; cvt.f32.f16 %f1, %rs1; mov.b32 %r0, %f1;", 0xb3800000},
      {"mov.f32 %f1, 0f3F808000; mov.f32 %f2, 0fC0000000; cvt.rn.bf16x2.f32 %r0, %f1, %f2;", 0x3f80c000},
      {"mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f7FC00000; cvt.rn.f16x2.f32 %r0, %f1, %f2;", 0x3c007fff},
  };
  for (const Meaning& meaning : meanings) EXPECT_EQ(value_of(meaning.body), meaning.wanted) << meaning.body;
}

TEST(PtxEmulator, NarrowValuesAreExtendedInWiderRegisters) {
  const Meaning meanings[] = {
      {"mov.b64 %rd5, 0x1ff; cvt.s64.s8 %rd6, %rd5; cvt.u32.u64 %r0, %rd6;", 0xffffffff},
      {"mov.b64 %rd5, 0x180; cvt.s8.s64 %rs1, %rd5; cvt.s32.s16 %r0, %rs1;", 0xffffff80},
      {"mov.b32 %r3, -2; cvt.u64.u32 %rd5, %r3; shr.u64 %rd6, %rd5, 32; cvt.u32.u64 %r0, %rd6;", 0},
      {"mov.b32 %r3, -2; st.shared.u32 [%r2], %r3; ld.shared.s32 %rd5, [%r2]; shr.u64 %rd6, %rd5, 32; cvt.u32.u64 %r0, "
       "%rd6;",
       0xffffffff},
      {"mov.b32 %r3, 0x8081; st.shared.u32 [%r2], %r3; ld.shared.s8 %rs1, [%r2+1]; cvt.s32.s16 %r0, %rs1;", 0xffffff80},
      {"mov.b32 %r3, 0x8081; st.shared.u32 [%r2], %r3; ld.shared.u8 %r0, [%r2];", 0x81},
  };
  for (const Meaning& meaning : meanings) EXPECT_EQ(value_of(meaning.body), meaning.wanted) << meaning.body;
}

TEST(PtxEmulator, EachThreadHasItsOwnLocalMemory) {
  const Outcome outcome = run_body(R"(
	mov.u64 %rd5, __local_depot0;
	st.local.u32 [%rd5+4], %r1;
	ld.local.u32 %r3, [%rd5+4];
	st.global.u32 [%rd3], %r3;)");
  ASSERT_EQ(outcome.error, "");
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(outcome.out[t], t);
}

TEST(PtxEmulator, LanesThatDivergeMeetAgain) {
  // Thread t sums 1 to t in a loop of its own length, odd ones add 1000; then each reads its neighbour's sum.
  const Outcome outcome = run_body(R"(
	mov.b32 %r3, 0;
	mov.b32 %r4, 0;
$L_loop:
	setp.ge.u32 %p1, %r4, %r1;
	@%p1 bra $L_done;
	add.s32 %r4, %r4, 1;
	add.s32 %r3, %r3, %r4;
	bra.uni $L_loop;
$L_done:
	and.b32 %r5, %r1, 1;
	setp.eq.s32 %p2, %r5, 0;
	@%p2 bra $L_even;
	add.s32 %r3, %r3, 1000;
$L_even:
	shfl.sync.bfly.b32 %r6|%p3, %r3, 1, 31, -1;
	st.global.u32 [%rd3], %r6;)");
  ASSERT_EQ(outcome.error, "");
  for (uint32_t t = 0; t < 32; ++t) {
    const uint32_t other = t ^ 1;
    EXPECT_EQ(outcome.out[t], other * (other + 1) / 2 + (other % 2) * 1000);
  }
}

TEST(PtxEmulator, SaysWhichInstructionsWereExecuted) {
  const Outcome outcome =
      run_body("setp.gt.u32 %p1, %r1, 40; @%p1 bra $L_a; bra.uni $L_b; $L_a: mov.b32 %r3, 1; $L_b:");
  ASSERT_EQ(outcome.error, "");
  const size_t count = outcome.executed.size();
  const std::vector<uint8_t> last(outcome.executed.begin() + static_cast<std::ptrdiff_t>(count - 5),
                                  outcome.executed.end());
  EXPECT_EQ(last, (std::vector<uint8_t>{1, 0, 1, 0, 1}));  // no lane takes the first branch
}

TEST(PtxEmulator, ShufflesAndVotesAreOfTheWholeWarp) {
  const Outcome outcome = run_body(R"(
	add.s32 %r3, %r1, 100;
	shfl.sync.down.b32 %r4|%p1, %r3, 30, 31, -1;
	selp.b32 %r5, 1000, 0, %p1;
	add.s32 %r6, %r4, %r5;
	setp.gt.u32 %p2, %r1, 29;
	vote.sync.ballot.b32 %r7, %p2, -1;
	shr.u32 %r8, %r7, 16;
	add.s32 %r9, %r6, %r8;
	st.global.u32 [%rd3], %r9;)");
  ASSERT_EQ(outcome.error, "");
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(outcome.out[t], (t < 2 ? t + 1130 : t + 100) + 0xc000);
}

// Each thread writes its number to shared memory and reads that of thread ^ `distance`.
std::string swap_with(int distance, const std::string& barrier) {
  return "st.shared.u32 [%r2], %r1;" + barrier + "xor.b32 %r3, %r1, " + std::to_string(distance) +
         "; mad.lo.s32 %r4, %r3, 4, %r39; ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd3], %r5;";
}

TEST(PtxEmulator, ReportsRacesInSharedMemory) {
  for (const auto& [distance, barrier] : {std::pair{1, "bar.warp.sync -1;"}, {1, "bar.sync 0;"}, {32, "bar.sync 0;"}}) {
    const Outcome outcome = run_body(swap_with(distance, barrier), 64);
    EXPECT_EQ(outcome.error, "");
    for (int t = 0; t < 64; ++t) EXPECT_EQ(outcome.out[static_cast<size_t>(t)], static_cast<uint32_t>(t ^ distance));
  }
  for (const auto& [distance, barrier] : {std::pair{1, ""}, {32, ""}, {32, "bar.warp.sync -1;"}}) {
    EXPECT_NE(run_body(swap_with(distance, barrier), 64).error.find("a race"), std::string::npos);
  }
  // A write after the reads of others needs a barrier as well.
  const std::string overwrite = swap_with(32, "bar.sync 0;") + "st.shared.u32 [%r2], %r1;";
  EXPECT_NE(run_body(overwrite, 64).error.find("a race"), std::string::npos);
  // Atomics do not race with each other.
  const std::string sum =
      "mov.b64 %rd5, 0; setp.ne.s32 %p1, %r1, 0; @%p1 bra $L_add; st.shared.u64 [shared], %rd5; $L_add: " +
      std::string("bar.sync 0; atom.shared.add.u64 %rd6, [%r39], 3; bar.sync 0; ") +
      "ld.shared.u32 %r3, [shared]; st.global.u32 [%rd3], %r3;";
  const Outcome outcome = run_body(sum, 64);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.out[63], 192U);
}

// Each thread of three blocks writes its number in the launch plus 5, and thread 0 counts its block in the input's
// first word. The threads of the block that is counted last add what thread ^ `distance` of the other two wrote.
std::string count_blocks(int distance, const std::string& before, const std::string& semantics,
                         const std::string& after) {
  return "mov.u32 %r3, %ctaid.x; mad.lo.s32 %r4, %r3, 64, %r1; mul.wide.u32 %rd5, %r4, 4; add.s64 %rd6, %rd1, %rd5; "
         "add.s32 %r5, %r4, 5; st.global.u32 [%rd6], %r5; " +
         before + "setp.ne.s32 %p1, %r1, 0; @%p1 bra $L_counted; atom." + semantics +
         ".gpu.global.add.s32 %r6, [%rd2], 1; st.shared.u32 [%r39], %r6; $L_counted: " + after +
         "ld.shared.u32 %r7, [%r39]; setp.ne.s32 %p2, %r7, 2; @%p2 bra $L_end; xor.b32 %r8, %r1, " +
         std::to_string(distance) +
         "; mul.wide.u32 %rd7, %r8, 4; add.s64 %rd8, %rd1, %rd7; ld.global.u32 %r9, [%rd8]; "
         "ld.global.u32 %r10, [%rd8+256]; add.s32 %r11, %r9, %r10; st.global.u32 [%rd3+768], %r11; $L_end:";
}

TEST(PtxEmulator, ReportsReadsThatRaceWithAnotherBlock) {
  const std::string barrier = "bar.sync 0; ";
  const auto run_with = [](const std::string& body, int threads) { return run_body(body, threads, {}, 3); };
  const Outcome outcome = run_with(count_blocks(33, barrier, "acq_rel", barrier), 64);
  EXPECT_EQ(outcome.error, "");
  for (uint32_t t = 0; t < 64; ++t) EXPECT_EQ(outcome.out[192 + t], 2 * (t ^ 33U) + 74);
  const char* race = "of global memory: it is read, and no acquire and release order";
  EXPECT_NE(run_with(count_blocks(33, barrier, "relaxed", barrier), 64).error.find(race), std::string::npos);
  EXPECT_NE(run_with(count_blocks(33, "", "acq_rel", barrier), 64).error.find(race), std::string::npos);
  // Without a barrier only the thread that counts is ordered.
  EXPECT_EQ(run_with(count_blocks(0, "", "acq_rel", ""), 1).error, "");
  EXPECT_NE(run_with(count_blocks(0, "", "relaxed", ""), 1).error.find(race), std::string::npos);
  EXPECT_NE(run_with(count_blocks(0, barrier, "acq_rel", "bar.warp.sync -1; "), 32).error.find(race),
            std::string::npos);
}

// Copies the input's 16 bytes for each thread to shared memory and reads the first word of thread + 1.
std::string copy_input(const std::string& wait) {
  return "shl.b32 %r3, %r1, 4; cvt.u64.u32 %rd5, %r3; add.s64 %rd6, %rd2, %rd5; add.s32 %r4, %r39, %r3; "
         "setp.lt.u32 %p1, %r1, 31; selp.b32 %r5, 16, 0, %p1; "
         "cp.async.cg.shared.global [%r4], [%rd6], 16, %r5; cp.async.commit_group; " +
         wait +
         "add.s32 %r6, %r1, 1; and.b32 %r7, %r6, 31; mad.lo.s32 %r8, %r7, 16, %r39; ld.shared.u32 %r9, [%r8]; "
         "st.global.u32 [%rd3], %r9;";
}

TEST(PtxEmulator, AsynchronousCopiesMustBeWaitedFor) {
  std::vector<uint32_t> input(128);
  std::iota(input.begin(), input.end(), 7);
  const Outcome outcome = run_body(copy_input("cp.async.wait_group 0; bar.sync 0;"), 32, input);
  ASSERT_EQ(outcome.error, "");
  for (uint32_t t = 0; t < 32; ++t) EXPECT_EQ(outcome.out[t], t == 30 ? 0 : (t + 1) % 32 * 4 + 7);  // 31 copies zeros
  const char* too_early = "before its asynchronous copy was waited for";
  EXPECT_NE(run_body(copy_input("bar.sync 0;"), 32, input).error.find(too_early), std::string::npos);
  EXPECT_NE(run_body(copy_input("cp.async.wait_group 1; bar.sync 0;"), 32, input).error.find(too_early),
            std::string::npos);
  EXPECT_NE(run_body(copy_input("cp.async.wait_group 0;"), 32, input).error.find("a race"), std::string::npos);
}

TEST(PtxEmulator, ReportsWrongAddresses) {
  EXPECT_NE(run_body("st.global.u32 [%rd3+1024], %r1;").error.find("outside every allocation"), std::string::npos);
  EXPECT_NE(run_body("ld.global.v2.u32 {%r3, %r4}, [%rd1+4];").error.find("not aligned"), std::string::npos);
  EXPECT_NE(run_body("ld.shared.u32 %r3, [%r39+1280];").error.find("outside shared memory"), std::string::npos);
  EXPECT_NE(run_body("mov.u32 %r3, dynamic; ld.shared.u32 %r4, [%r3+256];").error.find("outside"), std::string::npos);
  EXPECT_NE(run_body("mov.u64 %rd5, __local_depot0; ld.local.u32 %r3, [%rd5+32];").error.find("local memory"),
            std::string::npos);
  EXPECT_NE(run_body("ld.param.u64 %rd5, [k_param_0+16];").error.find("parameters"), std::string::npos);
}

TEST(PtxEmulator, ReportsBarriersThatSomeThreadsDoNotReach) {
  const std::string half = "setp.lt.u32 %p1, %r1, 16; @%p1 bra $L_a; ";
  EXPECT_NE(run_body(half + "bar.sync 0; bra.uni $L_b; $L_a: bar.sync 0; $L_b:").error.find("wait for each other"),
            std::string::npos);
  EXPECT_NE(run_body("setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0;", 64).error.find("have ended"),
            std::string::npos);
  EXPECT_NE(
      run_body("setp.lt.u32 %p1, %r1, 16; @%p1 ret; shfl.sync.bfly.b32 %r3|%p2, %r1, 16, 31, -1;").error.find("ended"),
      std::string::npos);
  EXPECT_NE(run_body("$L_a: bra.uni $L_a;").error.find("does not end"), std::string::npos);
}

TEST(PtxEmulator, RefusesWhatItDoesNotHave) {
  EXPECT_EQ(run_body("lop3.b32 %r3, %r1, %r1, %r1, 7;").error,
            "line 27: lop3.b32: the emulator does not have this instruction");
  EXPECT_NE(run_body("add.s64 %rd5, %r1, 1;").error.find("'%r1' has 4 bytes and not 8"), std::string::npos);
  EXPECT_NE(run_body("add.s32 %r3, %r77, 1;").error.find("'%r77'"), std::string::npos);
  EXPECT_NE(run_body("mov.b32 %r3, 1; vote.sync.ballot.b32 %r4, %p1, %r3;").error.find("member mask"),
            std::string::npos);
}

// Lane l gives the address of row l of 32 rows of 8 elements, whose values are their numbers.
TEST(PtxEmulator, LdmatrixGivesEachLaneTwoElementsOfEachMatrix) {
  for (const bool transposed : {false, true}) {
    const Outcome outcome = run_body(std::string(R"(
	shl.b32 %r3, %r1, 4;
	add.s32 %r4, %r39, %r3;
	shl.b32 %r5, %r1, 3;
	mul.lo.s32 %r6, %r5, 65537;
	add.s32 %r7, %r6, 65536;
	add.s32 %r8, %r7, 131074;
	add.s32 %r9, %r8, 131074;
	add.s32 %r10, %r9, 131074;
	st.shared.v4.u32 [%r4], {%r7, %r8, %r9, %r10};
	bar.warp.sync -1;
	ldmatrix.sync.aligned.m8n8.x4)") +
                                     (transposed ? ".trans" : "") + R"(.shared.b16 {%r11, %r12, %r13, %r14}, [%r4];
	st.global.u32 [%rd3], %r11;
	st.global.u32 [%rd3+128], %r12;
	st.global.u32 [%rd3+256], %r13;
	st.global.u32 [%rd3+384], %r14;)");
    ASSERT_EQ(outcome.error, "");
    for (uint32_t matrix = 0; matrix < 4; ++matrix) {
      for (uint32_t lane = 0; lane < 32; ++lane) {
        const uint32_t i = lane / 4;
        const uint32_t j = lane % 4 * 2;
        const uint32_t first = matrix * 64 + (transposed ? j * 8 + i : i * 8 + j);
        EXPECT_EQ(outcome.out[matrix * 32 + lane], first | (first + (transposed ? 8 : 1)) << 16);
      }
    }
  }
}

// a[row][column] and b[row][column] of the fragments of m16n8k16 are small integers that bf16 holds.
TEST(PtxEmulator, MmaMultipliesTheMatricesOfItsFragments) {
  const auto a = [](int row, int column) { return static_cast<float>((row * 5 + column * 3) % 17 - 8); };
  const auto b = [](int row, int column) { return static_cast<float>((row * 7 + column * 2) % 13 - 6); };
  const auto code = [](float value) { return std::bit_cast<uint32_t>(value) >> 16; };
  std::vector<uint32_t> input;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2;  // as the document names them: groupID, threadID_in_group
    const int thread = lane % 4;
    for (int i = 0; i < 8; i += 2) {
      const int row = (i < 2 || (i >= 4 && i < 6)) ? group : group + 8;
      const int column = thread * 2 + (i < 4 ? 0 : 8);
      input.push_back(code(a(row, column)) | code(a(row, column + 1)) << 16);
    }
    for (int i = 0; i < 4; i += 2) {
      const int row = thread * 2 + (i < 2 ? 0 : 8);
      input.push_back(code(b(row, group)) | code(b(row + 1, group)) << 16);
    }
  }
  const Outcome outcome = run_body(R"(
	mul.wide.u32 %rd5, %r1, 24;
	add.s64 %rd6, %rd2, %rd5;
	ld.global.v2.u32 {%r10, %r11}, [%rd6];
	ld.global.v2.u32 {%r12, %r13}, [%rd6+8];
	ld.global.v2.u32 {%r14, %r15}, [%rd6+16];
	mov.f32 %f1, 0f3F000000;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f1, %f1, %f1};
	shl.b64 %rd7, %rd4, 1;
	add.s64 %rd8, %rd1, %rd7;
	st.global.v2.f32 [%rd8], {%f2, %f3};
	st.global.v2.f32 [%rd8+256], {%f4, %f5};)",
                                   32, input);
  ASSERT_EQ(outcome.error, "");
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float sum = 0.5F;
      for (int k = 0; k < 16; ++k) sum += a(row, k) * b(k, column);
      // Lane l stores columns 2 (l % 4) and following of row l / 4, and of row l / 4 + 8 in the second half.
      const auto at = size_t{8} * (row % 8) + column + size_t{64} * (row / 8);
      EXPECT_EQ(std::bit_cast<float>(outcome.out[at]), sum) << row << ' ' << column;
    }
  }
}

// A kernel that sums the 64 words of its input in floats, and that with a mistake.
constexpr const char* sum_body = R"(
	add.s64 %rd5, %rd2, %rd4;
	ld.global.f32 %f1, [%rd5];
	st.shared.f32 [%r2], %f1;
	bar.sync 0;
	setp.ne.s32 %p1, %r1, 0;
	@%p1 bra $L_end;
	mov.f32 %f2, 0f00000000;
	mov.b32 %r3, 0;
$L_loop:
	mad.lo.s32 %r4, %r3, 4, %r39;
	ld.shared.f32 %f3, [%r4];
	add.rn.f32 %f2, %f2, %f3;
	add.s32 %r3, %r3, 1;
	setp.lt.u32 %p2, %r3, 64;
	@%p2 bra $L_loop;
	st.global.f32 [%rd1], %f2;
$L_end:)";

TEST(PtxEmulator, FindsMistakesInAKernel) {
  std::vector<uint32_t> input(64);
  for (size_t i = 0; i < input.size(); ++i) input[i] = std::bit_cast<uint32_t>(static_cast<float>(i) + 0.25F);
  Recording recording;
  recording.base = base;
  recording.regions = {{{base, words * 4}, "f32", 1e-6}};
  recording.after.resize(words * 4);
  const float sum = 63 * 32 + 16;
  std::memcpy(recording.after.data(), &sum, sizeof sum);
  const auto difference = [&](const std::vector<uint32_t>& out) {
    std::vector<std::byte> memory(words * 4);
    std::memcpy(memory.data(), out.data(), memory.size());
    return compare(recording, memory);
  };
  const Outcome right = run_body(sum_body, 64, input);
  ASSERT_EQ(right.error, "");
  EXPECT_TRUE(difference(right.out).same);
  const std::pair<const char*, const char*> mistakes[] = {{"bar.sync 0;", ""},
                                                          {"%r3, 64", "%r3, 63"},
                                                          {"%r3, 64", "%r3, 65"},
                                                          {"add.rn.f32", "sub.rn.f32"},
                                                          {"%r4, %r3, 4", "%r4, %r3, 8"},
                                                          {"mov.b32 %r3, 0", "mov.b32 %r3, 1"},
                                                          {"st.global.f32 [%rd1]", "st.global.f32 [%rd1+4]"}};
  for (const auto& [text, mistake] : mistakes) {
    std::string body = sum_body;
    body.replace(body.find(text), std::strlen(text), mistake);
    const Outcome outcome = run_body(body, 64, input);
    EXPECT_TRUE(!outcome.error.empty() || !difference(outcome.out).within) << text;
  }
}

TEST(PtxEmulator, ComparesMemoryByTypeAndTolerance) {
  Recording recording;
  recording.base = base;
  recording.regions = {{{base, 8}, "f32", 1e-3}, {{base + 16, 4}, "i32", 0}, {{base + 24, 4}, "bf16", 1e-2}};
  recording.after.resize(32);
  const float values[2] = {100, std::nanf("")};
  std::memcpy(recording.after.data(), values, sizeof values);
  const auto changed = [&](size_t at, const auto& value) {
    std::vector<std::byte> memory = recording.after;
    std::memcpy(memory.data() + at, &value, sizeof value);
    return compare(recording, memory);
  };
  EXPECT_TRUE(changed(0, 100.0F).same);
  EXPECT_TRUE(changed(0, 100.05F).within);
  EXPECT_FALSE(changed(0, 100.05F).same);
  EXPECT_FALSE(changed(0, 101.0F).within);
  EXPECT_TRUE(changed(4, uint32_t{0x7fffffff}).within);  // another NaN
  EXPECT_FALSE(changed(4, INFINITY).within);
  EXPECT_FALSE(changed(16, 1).within);
  EXPECT_FALSE(changed(8, uint8_t{1}).within);  // outside
}

}  // namespace
}  // namespace ingot::ptx
