#include "checkpoint/native.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <numeric>

#include "base/thread_pool.h"
#include "tests/checkpoint/fixtures.h"

namespace {

// Counts system calls that rename or remove files, in this program and its libraries. The process is killed at the call
// for which the counter is 0; a negative counter kills nothing.
std::atomic<int> renames_until_kill = -1;  // atomic: other threads rename files, too
std::atomic<bool> rename_exchange_works = true;

void count_rename() {
  if (renames_until_kill-- == 0) ::raise(SIGKILL);
}

}  // namespace

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  count_rename();
  if ((flags & RENAME_EXCHANGE) != 0 && !rename_exchange_works) {
    errno = EINVAL;  // as on NFS
    return -1;
  }
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}
extern "C" int unlinkat(int folder, const char* path, int flags) noexcept {
  count_rename();
  return static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

namespace ingot::checkpoint {
namespace {

struct State {
  std::vector<float> w = std::vector<float>(1000);
  std::vector<uint16_t> m = std::vector<uint16_t>(600);
  std::vector<int64_t> counters = {1, 2, 3};

  std::vector<NamedTensor> tensors() {
    return {{"weight", Tensor{w.data(), DType::f32, Shape{10, 100}, nullptr}},
            {"moment", Tensor{m.data(), DType::bf16, Shape{600}, nullptr}},
            {"counters", Tensor{counters.data(), DType::i64, Shape{3}, nullptr}}};
  }
};

class Native : public testing::Test {
 protected:
  void write(int64_t step, int64_t keep = 0) {
    state.w[7] = static_cast<float>(step);
    state.m[9] = static_cast<uint16_t>(step);
    write_checkpoint(folder, step, state.tensors(), R"({"step_seed": 12345678901234567, "lr": 0.1})", &device,
                     {.keep = keep, .shard_bytes = 3000, .model = "tiny"});
  }
  // Flips one bit of a file.
  void flip(const fs::path& file, std::streamoff at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 4));
  }

  Scratch scratch;
  HostDevice device{false};
  fs::path folder = scratch.path / "checkpoints";
  State state;
};

TEST_F(Native, RestoresWhatWasWritten) {
  write(3);
  write(20);
  const NativeCheckpoint latest = open_checkpoint(folder, std::nullopt, "tiny");
  EXPECT_EQ(latest.step, 20);
  EXPECT_EQ(nlohmann::json::parse(latest.metadata).at("step_seed"), 12345678901234567);
  State back;
  restore_tensors(latest, back.tensors(), device);
  EXPECT_EQ(back.w, state.w);
  EXPECT_EQ(back.m, state.m);
  EXPECT_EQ(back.counters, state.counters);
  const NativeCheckpoint earlier = open_checkpoint(folder, 3);
  restore_tensors(earlier, back.tensors(), device);
  EXPECT_EQ(back.w[7], 3.0F);
  expect_error(ErrorKind::corrupt, {"'weight'", "F32 [10, 100]", "[10, 99]"}, [&] {
    const NamedTensor other{"weight", Tensor{back.w.data(), DType::f32, Shape{10, 99}, nullptr}};
    restore_tensors(earlier, {&other, 1}, device);
  });
  expect_error(ErrorKind::not_found, {"nothing"}, [&] {
    const NamedTensor nothing{"nothing", Tensor{back.w.data(), DType::f32, Shape{1}, nullptr}};
    restore_tensors(earlier, {&nothing, 1}, device);
  });
}

TEST_F(Native, WritingAStepAgainReplacesIt) {
  write(5);
  state.w[0] = 4;
  write(5);
  State back;
  const std::vector<NamedTensor> weight{back.tensors()[0]};
  restore_tensors(open_checkpoint(folder, 5), weight, device);
  EXPECT_EQ(back.w[0], 4.0F);
  EXPECT_EQ(list_checkpoints(folder), std::vector<int64_t>{5});
}

TEST_F(Native, KeepsTheNewest) {
  for (int64_t step : {1, 2, 9, 10}) write(step, 2);
  EXPECT_EQ(list_checkpoints(folder), (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(remove_leftovers(folder), 0);
}

TEST_F(Native, ErrorsNameTheMissingFile) {
  expect_error(ErrorKind::not_found, {"no checkpoint"}, [&] { open_checkpoint(folder, std::nullopt); });
  write(4);
  expect_error(ErrorKind::not_found, {"step 7", "latest is step 4"}, [&] { open_checkpoint(folder, 7); });
  expect_error(ErrorKind::usage, {"tiny", "other"}, [&] { open_checkpoint(folder, 4, "other"); });
}

// A checkpoint that a killed run left incomplete is neither opened nor retained.
TEST_F(Native, LeftoversOfAKilledRunAreRemoved) {
  write(1);
  fs::copy(folder / "step-1", folder / "step-2.partial");
  fs::remove(folder / "step-2.partial" / "manifest.json");
  EXPECT_EQ(open_checkpoint(folder, std::nullopt).step, 1);
  EXPECT_EQ(remove_leftovers(folder), 1);
  EXPECT_FALSE(fs::exists(folder / "step-2.partial"));
  EXPECT_EQ(open_checkpoint(folder, std::nullopt).step, 1);
}

// The process is killed before each rename or removal in turn, while it replaces the checkpoint of a step.
TEST_F(Native, AReplacedStepIsNeverLost) {
  const auto first_weight = [&] {
    State back;
    const std::vector<NamedTensor> weight{back.tensors()[0]};
    restore_tensors(open_checkpoint(folder, 5), weight, device);
    return back.w[0];
  };
  fs::create_directories(scratch.path / "a");
  fs::create_directories(scratch.path / "b");
  const bool exchanges =
      ::renameat2(AT_FDCWD, (scratch.path / "a").c_str(), AT_FDCWD, (scratch.path / "b").c_str(), RENAME_EXCHANGE) == 0;
  for (const bool allowed : {true, false}) {
    bool replaced = false;
    int point = 0;
    for (bool killed = true; killed; ++point) {
      fs::remove_all(folder);
      state.w[0] = 1;
      write(5);
      const pid_t child = fork();
      if (child == 0) {
        rename_exchange_works = allowed;
        renames_until_kill = point;
        try {
          state.w[0] = 2;
          write(5, 1);
        } catch (...) {
          _exit(1);
        }
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      killed = WIFSIGNALED(status);
      EXPECT_TRUE(killed || status == 0) << point << ": status " << status;
      if (exchanges && allowed) EXPECT_EQ(list_checkpoints(folder), std::vector<int64_t>{5}) << point;
      remove_leftovers(folder);
      EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << point;
      const float found = first_weight();
      if (replaced || !killed) EXPECT_EQ(found, 2.0F) << "the replacement was lost again";
      if (killed) replaced = found == 2.0F;
    }
    EXPECT_TRUE(replaced) << "no kill came after the replacement";
    EXPECT_GT(point, 5);
  }
}

TEST_F(Native, DamageIsNamedAndNoEarlierStepIsUsed) {
  const auto damaged = [&](const std::vector<std::string>& words, const std::function<void(const fs::path&)>& damage) {
    fs::remove_all(folder);
    write(1);
    write(2);
    damage(folder / "step-2");
    expect_error(ErrorKind::corrupt, words, [&] { open_checkpoint(folder, std::nullopt); });
    EXPECT_EQ(open_checkpoint(folder, 1).step, 1);
  };
  const std::string shard = "model-00001-of-00002.safetensors";
  damaged({"step-2", "is incomplete", "step 1"}, [](const fs::path& at) { fs::remove(at / "manifest.json"); });
  damaged({"step-2", shard, "missing"}, [&](const fs::path& at) { fs::remove(at / shard); });
  damaged({"step-2", shard, "bytes"}, [&](const fs::path& at) { fs::resize_file(at / shard, 100); });
  damaged({"step-2", shard, "SHA-256"}, [&](const fs::path& at) { flip(at / shard, 400); });
  damaged({"step-2", "manifest.json"}, [&](const fs::path& at) {
    edit_json(at / "manifest.json", [](nlohmann::json& manifest) { manifest["metadata"]["lr"] = 0.2; });
  });
  damaged({"step-2", "manifest.json", "damaged"},
          [&](const fs::path& at) { fs::resize_file(at / "manifest.json", 9); });
}

TEST_F(Native, ANewerVersionIsRefusedWithTheFilesName) {
  write(1);
  edit_json(folder / "step-1" / "manifest.json",
            [](nlohmann::json& manifest) { manifest = {{"format", "ingot-checkpoint"}, {"version", 2}}; });
  expect_error(ErrorKind::unsupported, {"step-1/manifest.json", "format version 2", "up to 1"},
               [&] { open_checkpoint(folder, std::nullopt); });
}

TEST_F(Native, ASnapshotKeepsTheTensorsValues) {
  write(3);
  Snapshot snapshot;
  snapshot.take(state.tensors(), device);
  std::fill(state.w.begin(), state.w.end(), 0.0F);
  std::fill(state.m.begin(), state.m.end(), uint16_t{0});
  write_checkpoint(scratch.path / "other", 3, snapshot.tensors(), R"({"step_seed": 12345678901234567, "lr": 0.1})",
                   nullptr, {.shard_bytes = 3000, .model = "tiny"});
  for (const auto& file : fs::directory_iterator(folder / "step-3")) {
    EXPECT_EQ(read_file(scratch.path / "other" / "step-3" / file.path().filename()), read_file(file.path()))
        << file.path();
  }
  state.w[0] = 5;
  snapshot.take(state.tensors(), device);  // reuses the snapshot's memory
  EXPECT_EQ(static_cast<const float*>(snapshot.tensors().front().tensor.data)[0], 5);
}

TEST_F(Native, ASnapshotIsTheSameForAnyNumberOfThreads) {
  const int64_t elements = 3'000'001;  // several pieces, the last one short
  std::vector<float> large(static_cast<size_t>(elements));
  std::iota(large.begin(), large.end(), 0.0F);
  const NamedTensor tensor{"large", Tensor{large.data(), DType::f32, Shape{elements}, nullptr}};
  for (const bool visible : {true, false}) {
    HostDevice where{visible};
    ThreadPool threads(3);
    Snapshot snapshot;
    snapshot.take(std::span(&tensor, 1), where, &threads);
    const auto* copied = static_cast<const float*>(snapshot.tensors().front().tensor.data);
    EXPECT_TRUE(std::equal(large.begin(), large.end(), copied)) << visible;
  }
}

// A matrix [6, 8] and how ranks may have it.
struct Layout {
  std::vector<spec::Slice> slices;  // by rank; empty: flat parts
  int flat = 1;                     // each slice, or the whole, is divided into so many parts
};

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {{}, 1},
      {{}, 3},
      {{{{{0, 3}}, {0, 8}}, {{{3, 6}}, {0, 8}}}, 1},                                  // rows
      {{{{{0, 1}, {2, 3}, {4, 5}}, {0, 8}}, {{{1, 2}, {3, 4}, {5, 6}}, {0, 8}}}, 2},  // of three groups
      {{{{{0, 6}}, {0, 4}}, {{{0, 6}}, {4, 8}}}, 1},                                  // columns
      {{{{{0, 6}}, {0, 2}}, {{{0, 6}}, {2, 6}}, {{{0, 6}}, {6, 8}}}, 5},
  };
  return all;
}

// The parts of a matrix with the values 0, 1, ... in a layout; `memory` owns them.
std::vector<NamedTensor> parts_of(const Layout& layout, std::vector<std::vector<float>>& memory) {
  const Shape whole{6, 8};
  std::vector<NamedTensor> parts;
  const std::vector<spec::Slice> everything = {spec::whole_slice(6, 8)};
  for (const spec::Slice& slice : layout.slices.empty() ? everything : layout.slices) {
    std::vector<float> values;
    spec::for_runs(slice, 8, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(first + i));
    });
    const auto elements = std::ssize(values);
    for (int part = 0; part < layout.flat; ++part) {
      const int64_t begin = elements * part / layout.flat, end = elements * (part + 1) / layout.flat;
      std::vector<float>& own = memory.emplace_back(values.begin() + begin, values.begin() + end);
      PartOf of{whole, begin};
      if (!layout.slices.empty()) of.slice = slice;
      parts.push_back({"matrix", Tensor{own.data(), DType::f32, Shape{end - begin}, nullptr}, of});
    }
  }
  return parts;
}

TEST_F(Native, AnyPartsAreReadFromAnyParts) {
  HostDevice hidden(false);
  for (const Layout& written : layouts()) {
    std::vector<std::vector<float>> memory;
    memory.reserve(100);
    write_checkpoint(folder, 1, parts_of(written, memory), "{}", &device);
    const NativeCheckpoint found = open_checkpoint(folder, 1);
    for (const Layout& read : layouts()) {
      for (HostDevice* to : {&device, &hidden}) {
        std::vector<std::vector<float>> expected;
        expected.reserve(100);
        std::vector<NamedTensor> parts = parts_of(read, expected);
        for (size_t i = 0; i < parts.size(); ++i) {
          std::vector<float> values(expected[i].size(), -1);
          parts[i].tensor.data = values.data();
          restore_tensors(found, {&parts[i], 1}, *to);
          EXPECT_EQ(values, expected[i]) << "written in " << written.slices.size() << ", read in "
                                         << read.slices.size();
        }
      }
    }
  }
}

TEST_F(Native, MissingAndImpossiblePartsAreNamed) {
  std::vector<std::vector<float>> memory;
  memory.reserve(100);
  std::vector<NamedTensor> parts = parts_of(layouts()[4], memory);
  std::vector<float> values(48);
  const NamedTensor whole{"matrix", Tensor{values.data(), DType::f32, Shape{6, 8}, nullptr}};
  write_checkpoint(folder, 1, std::span(parts).last(1), "{}", &device);  // the right half
  expect_error(ErrorKind::corrupt, {"'matrix' is incomplete", "from 0 on"},
               [&] { restore_tensors(open_checkpoint(folder, 1), {&whole, 1}, device); });
  parts[1].part->slice->columns = {5, 9};  // of 8
  parts[1].part->whole = Shape{6, 9};
  write_checkpoint(folder, 2, parts, "{}", &device);
  expect_error(ErrorKind::corrupt, {"'matrix[0:6,5:9]'", "expected f32 [6, 8]"},
               [&] { restore_tensors(open_checkpoint(folder, 2), {&whole, 1}, device); });
}

// Of a matrix [6, 8] with whole lines of 8 in files; a name that says nothing sensible is no part.
TEST_F(Native, NamesOfPartsAreChecked) {
  std::vector<float> memory(96), values(48);
  const NamedTensor whole{"m", Tensor{values.data(), DType::f32, Shape{6, 8}, nullptr}};
  struct Case {
    std::vector<std::pair<const char*, int64_t>> parts;  // name and elements
    const char* word;                                    // of the error
  };
  int64_t step = 0;
  for (const Case& c : std::vector<Case>{
           {{{"m[0:24]", 24}, {"m[20:48]", 28}}, "'m[20:48]' is"},                     // overlap
           {{{"m[0:20]", 20}, {"m[24:48]", 24}}, "from 20 on are missing"},            // gap
           {{{"m[0:24]", 24}, {"m[24:48]", 23}}, "'m[24:48]' is"},                     // fewer elements than named
           {{{"m[0:6,0:4]", 24}, {"m[0:6,4:9]", 30}}, "'m[0:6,4:9]' is"},              // columns beyond the width
           {{{"m[0:7,0:8]", 56}}, "'m[0:7,0:8]' is"},                                  // rows beyond the height
           {{{"m[0:6,0:4]", 24}, {"m[0:6,3:8]", 30}}, "is F32"},                       // columns that overlap
           {{{"m[0:6,0:4][0:30]", 30}, {"m[0:6,4:8]", 24}}, "'m[0:6,0:4][0:30]' is"},  // beyond the slice
           {{{"m[3:6+0:3,0:8]", 48}}, "'m'"},                                          // descending rows
           {{{"m[0:4+3:6,0:8]", 48}}, "'m'"},                                          // rows that overlap
           {{{"m[-1:48]", 49}}, "'m'"},
           {{{"m[0:99999999999999999999]", 48}}, "'m'"},
           {{{"m[0:48", 48}}, "'m'"},
           {{{"m[junk][0:48]", 48}}, "'m'"},
           {{{"m[0:6,0:8", 48}}, "'m'"},
       }) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, elements] : c.parts)
      tensors.push_back({name, Tensor{memory.data(), DType::f32, Shape{elements}, nullptr}});
    write_checkpoint(folder, ++step, tensors, "{}", &device);
    const NativeCheckpoint found = open_checkpoint(folder, step);
    try {
      restore_tensors(found, {&whole, 1}, device);
      ADD_FAILURE() << c.parts.front().first << " was read";
    } catch (const Error& error) {
      const bool no_part = std::string_view(c.word) == "'m'";  // so the tensor is not there at all
      EXPECT_EQ(error.kind(), no_part ? ErrorKind::not_found : ErrorKind::corrupt) << error.message();
      EXPECT_NE(error.message().find(c.word), std::string::npos) << c.parts.front().first << ": " << error.message();
    }
  }
}

// A file size limit stands for a full disk.
TEST_F(Native, AFullDiskLeavesEarlierCheckpoints) {
  write(1);
  std::vector<float> large(1 << 16);
  const NamedTensor tensor{"large", Tensor{large.data(), DType::f32, Shape{1 << 16}, nullptr}};
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 14, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::optional<Error> caught;
  try {
    write_checkpoint(folder, 2, std::span(&tensor, 1), "{}", &device, {.keep = 1});
  } catch (const Error& error) {
    caught = error;
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_TRUE(caught.has_value());
  EXPECT_EQ(caught->kind(), ErrorKind::resource) << caught->message();
  EXPECT_EQ(remove_leftovers(folder), 0);
  EXPECT_EQ(open_checkpoint(folder, std::nullopt).step, 1);
}

}  // namespace
}  // namespace ingot::checkpoint
