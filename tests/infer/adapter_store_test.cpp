#include "infer/adapter_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"
#include "checkpoint/adapter.h"
#include "tests/base/nobody.h"
#include "tests/infer/small_model.h"

namespace ingot::infer {
namespace {

namespace fs = std::filesystem;

class AdapterStoreTest : public testing::Test {
 protected:
  AdapterStoreTest()
      : root_(fs::path(testing::TempDir()) / fmt::format("adapter_store_{}_{}",
                                                         testing::UnitTest::GetInstance()->current_test_info()->name(),
                                                         ::getpid())) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~AdapterStoreTest() override { fs::remove_all(root_); }

  // Writes an adapter of q and v whose values depend on `seed`.
  void write(const fs::path& folder, int64_t rank, uint64_t seed) {
    const spec::LoraSpec lora{.rank = rank, .alpha = 3, .targets = {"q_proj", "v_proj"}};
    const auto weights = small_.adapter(rank, seed);
    std::vector<checkpoint::AdapterModule> modules;
    for (const spec::LoraParam& p : spec::lora_parameters(small_.spec(), lora)) {
      const nn::LoraWeights& layer = weights->adapter.layers[p.base];
      modules.push_back({p, static_cast<float>(lora.factor()), layer.a, layer.b, {}});
    }
    checkpoint::write_adapter(folder, small_.spec(), lora, "base", modules, small_.device);
    expected_ = weights->adapter.layers[modules.front().param.base].a.as<float>()[0];
    base_ = modules.front().param.base;
  }
  AdapterStore store(size_t budget = 1 << 20) {
    return AdapterStore(small_.spec(), {.root = root_, .activation = DType::f32, .budget = budget, .max_rank = 8});
  }
  static std::vector<std::string> names(const AdapterStore& store) {
    std::vector<std::string> names;
    for (const ListedAdapter& each : store.list()) names.push_back(each.name);
    return names;
  }
  static ErrorKind refused(AdapterStore& store, const std::string& name) {
    try {
      store.get(name);
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "'" << name << "' was found";
    return ErrorKind::internal;
  }

  SmallModel small_{"a"};
  fs::path root_;
  float expected_ = 0;
  size_t base_ = 0;
};

TEST_F(AdapterStoreTest, FindsFoldersAndRunsBeforeAndAfterAScan) {
  write(root_ / "one", 2, 1);
  fs::create_directories(root_ / "empty");
  AdapterStore s = store();
  EXPECT_EQ(names(s), std::vector<std::string>{"one"});
  const auto one = s.get("one");
  EXPECT_EQ(one->name, "one");
  EXPECT_EQ(one->rank, 2);
  EXPECT_FLOAT_EQ(one->weights.factor, 1.5F);
  EXPECT_EQ(one->weights.layers[base_].a.as<float>()[0], expected_);
  EXPECT_EQ(s.get("one"), one);
  write(root_ / "run" / "adapter", 3, 2);  // the layout that a fine-tuning run writes
  const auto run = s.get("run");
  EXPECT_EQ(run->rank, 3);
  EXPECT_EQ(run->weights.layers[base_].a.as<float>()[0], expected_);
  EXPECT_NE(run->identity, one->identity);
  fs::remove_all(root_ / "one");
  s.scan();
  EXPECT_EQ(names(s), std::vector<std::string>{"run"});
  EXPECT_EQ(refused(s, "one"), ErrorKind::not_found);
  EXPECT_EQ(s.counts().resident, 1);
  EXPECT_EQ(s.counts().bytes, run->bytes);
  EXPECT_EQ(one->weights.layers[base_].a.rows(), 2) << "a holder keeps its version";
}

TEST_F(AdapterStoreTest, ARemovedAdapterIsGoneUntilItIsAdded) {
  write(root_ / "one", 2, 1);
  AdapterStore s = store();
  EXPECT_EQ(s.list().front().rank, 0);
  EXPECT_FALSE(s.list().front().resident);
  EXPECT_GT(s.list().front().modified, 1'700'000'000);
  const auto one = s.get("one");
  EXPECT_EQ(s.list().front().rank, 2);
  EXPECT_TRUE(s.has("one"));
  EXPECT_EQ(s.counts().registered, 1);
  s.remove("one");
  EXPECT_FALSE(s.has("one"));
  EXPECT_TRUE(s.list().empty());
  EXPECT_EQ(s.counts().registered, 0);
  EXPECT_EQ(s.counts().bytes, 0U);
  EXPECT_EQ(refused(s, "one"), ErrorKind::not_found);
  s.scan();
  EXPECT_TRUE(s.list().empty()) << "a removed adapter is not listed although its files exist";
  EXPECT_THROW(s.remove("one"), Error);
  EXPECT_EQ(one->weights.layers[base_].a.rows(), 2) << "a holder keeps its version";
  s.add("one");
  EXPECT_TRUE(s.list().front().resident);
  EXPECT_EQ(s.get("one")->rank, 2);
}

// The owner of the root may place symbolic links in it. Clients send names, which must not be paths.
TEST_F(AdapterStoreTest, FoldersMayBeSymbolicLinks) {
  write(root_ / "outside", 2, 1);
  write(root_ / "store" / "inside", 3, 1);
  root_ /= "store";
  fs::create_directory_symlink(root_.parent_path() / "outside", root_ / "out");
  fs::create_directory_symlink(root_ / "inside", root_ / "alias");
  fs::create_directory_symlink(root_ / "nowhere", root_ / "dangling");
  fs::create_directory_symlink(root_ / "loop", root_ / "loop");
  AdapterStore s = store();
  EXPECT_EQ(names(s), (std::vector<std::string>{"alias", "inside", "out"}));
  EXPECT_TRUE(s.has("out"));
  EXPECT_EQ(s.get("out")->rank, 2);
  EXPECT_EQ(s.get("alias")->rank, 3);
  EXPECT_EQ(refused(s, "../outside"), ErrorKind::usage);
  root_ = root_.parent_path();
}

TEST_F(AdapterStoreTest, BrokenAdaptersAreNamedAndNotListedUntilRepaired) {
  for (const char* name : {"good", "config", "weights", "half"}) write(root_ / name, 2, 1);
  write(root_ / "wide", 9, 1);
  write(root_ / "two words", 2, 1);
  fs::create_directories(root_ / "no-adapter");
  std::ofstream(root_ / "config" / "adapter_config.json") << "{\"r\": 2, \"lora_alpha\": 1e308}";
  std::ofstream(root_ / "weights" / "adapter_model.safetensors") << "no";
  fs::remove(root_ / "half" / "adapter_model.safetensors");
  fs::create_directory_symlink(root_ / "loop", root_ / "loop");
  AdapterStore s = store();
  std::vector<std::string> broken;
  for (const BrokenAdapter& each : s.check()) {
    broken.push_back(each.name);
    EXPECT_FALSE(each.reason.empty());
  }
  EXPECT_EQ(broken, (std::vector<std::string>{"config", "half", "loop", "two words", "weights", "wide"}));
  EXPECT_EQ(names(s), std::vector<std::string>{"good"});
  EXPECT_EQ(s.counts().registered, 1);
  EXPECT_TRUE(s.has("weights")) << "a request for it must get the reason";
  EXPECT_EQ(refused(s, "weights"), ErrorKind::corrupt);
  write(root_ / "weights", 3, 1);
  s.scan();
  EXPECT_EQ(names(s), (std::vector<std::string>{"good", "weights"}));
  EXPECT_EQ(s.get("weights")->rank, 3);
}

TEST_F(AdapterStoreTest, AnAdapterThatFailedToLoadIsNotListed) {
  write(root_ / "good", 2, 1);
  AdapterStore s = store();
  write(root_ / "late", 2, 1);
  std::ofstream(root_ / "late" / "adapter_model.safetensors") << "no";
  EXPECT_THROW(s.add("late"), Error);
  s.scan();
  EXPECT_EQ(names(s), std::vector<std::string>{"good"});
  s.remove("good");
  fs::remove(root_ / "good" / "adapter_model.safetensors");
  EXPECT_THROW(s.add("good"), Error);
  EXPECT_TRUE(names(s).empty());
  write(root_ / "late", 2, 1);
  s.add("late");
  EXPECT_EQ(names(s), std::vector<std::string>{"late"});
}

TEST_F(AdapterStoreTest, ARootThatIsAFileIsRefused) {
  std::ofstream(root_ / "file") << "x";
  fs::create_directory_symlink(root_ / "loop", root_ / "loop");
  for (const char* name : {"none", "file", "loop"}) {
    try {
      const AdapterStore store(small_.spec(), {.root = root_ / name, .activation = DType::f32});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::not_found) << name;
      EXPECT_NE(error.message().find((root_ / name).string()), std::string::npos) << error.message();
    }
  }
}

TEST_F(AdapterStoreTest, AnUnreadableRootIsRefused) {
  const fs::path root = root_ / "locked";
  fs::create_directory(root);
  const Locked locked(root);
  const Nobody nobody;
  if (nobody.is_root()) return;  // root without the right to change its user
  try {
    const AdapterStore store(small_.spec(), {.root = root, .activation = DType::f32});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_NE(error.message().find(root.string()), std::string::npos) << error.message();
  }
}

TEST_F(AdapterStoreTest, ChangedFilesAreReadAgain) {
  write(root_ / "one", 2, 1);
  AdapterStore s = store();
  const auto before = s.get("one");
  fs::remove_all(root_ / "one");
  write(root_ / "one", 4, 9);
  const auto after = s.get("one");
  EXPECT_EQ(after->rank, 4);
  EXPECT_NE(after->identity, before->identity);
  EXPECT_EQ(s.counts().loads, 2);
}

// The file is overwritten in place repeatedly while the adapter is requested: a request gets a complete version or an
// error.
TEST_F(AdapterStoreTest, FilesOverwrittenInPlaceAreReadCompletelyOrRefused) {
  write(root_ / "one", 2, 1);
  const fs::path path = root_ / "one" / "adapter_model.safetensors";
  std::ifstream original(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(original), {}};
  AdapterStore s = store();
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    while (!ends) {
      std::ofstream out(path, std::ios::binary | std::ios::trunc);
      out << bytes.substr(0, bytes.size() / 2) << std::flush << bytes.substr(bytes.size() / 2);
    }
  });
  for (int round = 0; round < 300; ++round) {
    try {
      EXPECT_EQ(s.get("one")->weights.layers[base_].a.as<float>()[0], expected_);
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::unavailable) << error.message();
    }
  }
  ends = true;
  writer.join();
  EXPECT_EQ(s.get("one")->weights.layers[base_].a.as<float>()[0], expected_);
}

// The file is invalid and still growing: it may be valid once it is complete.
TEST_F(AdapterStoreTest, AFileStillBeingWrittenIsNotCorrupt) {
  write(root_ / "one", 2, 1);
  const fs::path path = root_ / "one" / "adapter_model.safetensors";
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "no";
  AdapterStore s = store();
  EXPECT_EQ(refused(s, "one"), ErrorKind::corrupt);
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    std::ofstream out(path, std::ios::binary | std::ios::app);
    while (!ends) out << "no" << std::flush;
  });
  ErrorKind kind = ErrorKind::corrupt;
  for (int round = 0; round < 100'000 && kind == ErrorKind::corrupt; ++round) kind = refused(s, "one");
  ends = true;
  writer.join();
  EXPECT_EQ(kind, ErrorKind::unavailable);
  EXPECT_EQ(refused(s, "one"), ErrorKind::corrupt) << "the file has stopped growing";
}

TEST_F(AdapterStoreTest, PathsAndMismatchedAdaptersAreRefused) {
  write(root_ / "store" / "wide", 9, 1);
  write(root_ / "outside", 2, 1);
  root_ /= "store";
  AdapterStore s = store();
  for (const char* name :
       {"", ".", "..", "../outside", "/etc", "a/b", "a\\b", ".hidden", "new\nline", "two words", "caf\xC3\xA9"}) {
    EXPECT_EQ(refused(s, name), ErrorKind::usage) << name;
  }
  EXPECT_EQ(refused(s, std::string(129, 'x')), ErrorKind::usage);
  EXPECT_EQ(refused(s, "nobody"), ErrorKind::not_found);
  EXPECT_EQ(refused(s, "wide"), ErrorKind::unsupported);
  write(root_ / "large", 8, 1);
  AdapterStore small = store(100);
  EXPECT_EQ(refused(small, "large"), ErrorKind::resource);
  fs::create_directories(root_ / "broken");
  std::ofstream(root_ / "broken" / "adapter_config.json") << "{";
  std::ofstream(root_ / "broken" / "adapter_model.safetensors") << "no";
  EXPECT_EQ(refused(s, "broken"), ErrorKind::corrupt);
  EXPECT_EQ(refused(s, "broken"), ErrorKind::corrupt) << "a failure is not cached";
  root_ = root_.parent_path();
}

TEST_F(AdapterStoreTest, CachesTheMostRecentlyUsedWithinTheBudget) {
  for (const char* name : {"a", "b", "c", "d"}) write(root_ / name, 2, 1);
  const size_t each = store().get("a")->bytes;
  AdapterStore s = store(2 * each + each / 2);
  s.pin("a", true);
  s.get("b");
  s.get("c");
  EXPECT_EQ(s.counts().resident, 2);
  EXPECT_LE(s.counts().bytes, 2 * each);
  EXPECT_EQ(s.counts().loads, 3);
  s.get("a");
  s.get("c");
  EXPECT_EQ(s.counts().loads, 3);
  const auto held = s.get("b");  // c is evicted; a is pinned
  EXPECT_EQ(s.counts().loads, 4);
  s.get("a");
  EXPECT_EQ(s.counts().loads, 4);
  s.pin("a", false);
  s.get("d");
  EXPECT_EQ(s.counts().loads, 5);
  s.get("b");
  EXPECT_EQ(s.counts().loads, 5) << "an adapter in use is not read again";
}

TEST_F(AdapterStoreTest, AdaptersInUseAreBoundedToo) {
  for (const char* name : {"a", "b", "c"}) write(root_ / name, 2, 1);
  const size_t each = store().get("a")->bytes;
  AdapterStore s = store(each);
  const auto a = s.get("a");
  auto b = s.get("b");
  EXPECT_EQ(refused(s, "c"), ErrorKind::unavailable);
  EXPECT_EQ(s.get("a"), a) << "a cached adapter is available";
  b.reset();
  EXPECT_NE(s.get("c"), nullptr);
}

TEST_F(AdapterStoreTest, ThreadsShareOneLoad) {
  constexpr int names = 6;
  for (int i = 0; i < names; ++i) write(root_ / fmt::format("n{}", i), 2, static_cast<uint64_t>(i));
  const size_t each = store().get("n0")->bytes;
  AdapterStore s = store(names * each);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 30; ++round) {
        const std::string name = fmt::format("n{}", (round + static_cast<int>(t)) % names);
        if (s.get(name)->name != name) ++wrong[t];
        if (round % 10 == 0) s.scan();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
  EXPECT_EQ(s.counts().loads, names);
}

}  // namespace
}  // namespace ingot::infer
