#include "checkpoint/remote.h"

#include <atomic>
#include <thread>

#include "checkpoint/native.h"
#include "tests/base/s3_server.h"
#include "tests/checkpoint/fixtures.h"

namespace ingot::checkpoint {
namespace {

using Fault = S3Server::Fault;
using Request = S3Server::Request;

class Remote : public testing::Test {
 protected:
  Remote() {
    server.announce();
    options.attempts.first_wait_s = 0.001;
    options.attempts.max_attempts = 3;
    options.part_bytes = 1500;  // of shards of 4,000 bytes
  }
  // Writes folder/step-N: shards of `weights`, of which the first is the step.
  void write(int64_t step) {
    weights[0] = static_cast<float>(step);
    const NamedTensor tensors[] = {{"a", Tensor{weights.data(), DType::f32, Shape{1000}, nullptr}},
                                   {"b", Tensor{weights.data(), DType::f32, Shape{1000}, nullptr}}};
    write_checkpoint(folder, step, tensors, R"({"run": "this"})", &device, {.shard_bytes = 4000});
  }
  RemoteCheckpoints remote() const { return RemoteCheckpoints("s3://bucket/runs/tiny/checkpoints", options); }
  void upload(int64_t step, int64_t keep = 9) const {
    remote().upload(OpenFiles(folder, step), keep, [] { return true; });
  }
  std::optional<int64_t> bring() const {
    return remote().bring_newest(elsewhere, [](const std::string&, const std::string&) {}, [] { return true; });
  }
  static std::string key(int64_t step, const std::string& file) {
    return "bucket/runs/tiny/checkpoints/step-" + std::to_string(step) + "/" + file;
  }
  void expect_brought(int64_t step) {
    EXPECT_EQ(bring(), step);
    const NativeCheckpoint found = open_checkpoint(elsewhere, std::nullopt);
    EXPECT_EQ(found.step, step);
    std::vector<float> back(1000);
    const NamedTensor tensor{"b", Tensor{back.data(), DType::f32, Shape{1000}, nullptr}};
    restore_tensors(found, {&tensor, 1}, device);
    EXPECT_EQ(back[0], static_cast<float>(step));
    for (const auto& entry : fs::directory_iterator(folder / found.path.filename())) {
      EXPECT_EQ(read_file(entry.path()), read_file(found.path / entry.path().filename()));
    }
  }

  S3Server server;
  Scratch scratch;
  HostDevice device{true};
  fs::path folder = scratch.path / "checkpoints", elsewhere = scratch.path / "elsewhere";
  StoreOptions options;
  std::vector<float> weights = std::vector<float>(1000, 0.5F);
  const std::string shard = "model-00002-of-00002.safetensors";
};

TEST_F(Remote, WhatWasUploadedComesBack) {
  EXPECT_TRUE(remote().list().empty());
  EXPECT_EQ(bring(), std::nullopt);
  remote().require_writable();
  EXPECT_TRUE(remote().list().empty());
  write(3);
  upload(3);
  // The manifest when all else is there, and behind it the word that says so.
  std::vector<std::string> written;
  for (const Request& request : server.requests()) {
    if (request.method == "PUT" && !request.args.contains("partNumber")) written.push_back(request.key);
  }
  ASSERT_GE(written.size(), 3U);
  EXPECT_EQ(written[written.size() - 2], key(3, "manifest.json"));
  EXPECT_EQ(written.back(), "bucket/runs/tiny/checkpoints/latest");
  EXPECT_EQ(server.object(written.back()), "step-3\n");
  expect_brought(3);
  EXPECT_EQ(bring(), std::nullopt);  // it is here
  write(12);
  upload(12);
  expect_brought(12);
  upload(3);  // again
  EXPECT_EQ(remote().list(), (std::vector<int64_t>{3, 12}));
  EXPECT_EQ(server.unfinished_uploads(), 0U);
  EXPECT_EQ(server.problem(), "");
}

TEST_F(Remote, AFolderWillDo) {
  const RemoteCheckpoints disk((scratch.path / "disk").string(), options);
  disk.require_writable();
  for (const int64_t step : {1, 2}) {
    write(step);
    disk.upload(OpenFiles(folder, step), 1, [] { return true; });
  }
  EXPECT_EQ(list_checkpoints(scratch.path / "disk"), std::vector<int64_t>{2});
  EXPECT_EQ(disk.bring_newest(elsewhere, [](const std::string&, const std::string&) {}, [] { return true; }), 2);
  EXPECT_EQ(open_checkpoint(elsewhere, std::nullopt).step, 2);
}

TEST_F(Remote, KeepsTheNewest) {
  for (const int64_t step : {1, 2, 9, 10}) {
    write(step);
    upload(step, 2);
  }
  EXPECT_EQ(remote().list(), (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(server.object("bucket/runs/tiny/checkpoints/latest"), "step-10\n");
  EXPECT_EQ(remote().remove_leftovers(), 0);
  EXPECT_EQ(server.object(key(2, shard)), "");
}

// A process that died in the middle of an upload: what it wrote is no checkpoint, and goes.
TEST_F(Remote, HalfAnUploadIsNone) {
  for (const int64_t step : {1, 2}) write(step);
  upload(1);
  std::atomic<int> left = 9;  // requests until it is gone
  server.fault = [&](const Request&, size_t) { return --left < 0 ? Fault::denied : Fault::none; };
  expect_error(ErrorKind::unavailable, {"403"}, [&] { upload(2); });
  left = 1 << 20;
  EXPECT_NE(server.object(key(2, "model-00001-of-00002.safetensors")), "");
  EXPECT_GT(server.unfinished_uploads(), 0U);
  EXPECT_EQ(remote().list(), std::vector<int64_t>{1});
  EXPECT_EQ(remote().remove_leftovers(), 2);  // an object and an upload
  EXPECT_EQ(server.unfinished_uploads(), 0U);
  EXPECT_EQ(server.object(key(2, "model-00001-of-00002.safetensors")), "");
  expect_brought(1);
  upload(2);
  expect_brought(2);
}

TEST_F(Remote, DamageIsNamedAndAnEarlierOneNotTaken) {
  for (const int64_t step : {1, 2}) write(step);
  const auto damaged = [&](const std::vector<std::string>& words, const std::function<void()>& damage) {
    for (const int64_t step : {1, 2}) upload(step);
    damage();
    std::vector<std::string> all = {"s3://bucket/runs/tiny/checkpoints/step-2", "remove the folder", "step 1"};
    all.insert(all.end(), words.begin(), words.end());
    expect_error(ErrorKind::corrupt, all, [&] { bring(); });
    EXPECT_TRUE(list_checkpoints(elsewhere).empty());
    EXPECT_EQ(remove_leftovers(elsewhere), 0);
  };
  const auto change = [&](const std::string& file, const std::function<void(std::string&)>& edit) {
    std::string bytes = server.object(key(2, file));
    edit(bytes);
    server.put(key(2, file), bytes);
  };
  const auto remove = [&](const std::string& file) {
    open_store("s3://bucket/runs/tiny/checkpoints/step-2")->remove(file);
  };
  damaged({shard, "SHA-256"}, [&] { change(shard, [](std::string& bytes) { bytes[2000] ^= 1; }); });
  damaged({shard, "3000 bytes"}, [&] { change(shard, [](std::string& bytes) { bytes.resize(3000); }); });
  damaged({shard, "is missing"}, [&] { remove(shard); });
  damaged({"manifest.json", "SHA-256"},
          [&] { change("manifest.json", [](std::string& text) { text.replace(text.find("this"), 4, "that"); }); });
  damaged({"manifest.json is damaged"}, [&] { change("manifest.json", [](std::string& text) { text.resize(99); }); });
  damaged({"half-written"}, [&] { remove("manifest.json"); });
  EXPECT_GT(server.object(key(2, shard)).size(), 0U);
  EXPECT_EQ(remote().remove_leftovers(), 0);  // what is damaged is the user's to remove
  for (const StoredObject& object : open_store("s3://bucket/runs/tiny/checkpoints/step-2")->list("")) {
    remove(object.key);
  }
  expect_brought(1);
}

TEST_F(Remote, FaultsThatPass) {
  server.fault = [](const Request&, size_t number) {
    return number % 8 == 1   ? Fault::busy
           : number % 8 == 3 ? Fault::reset
           : number % 8 == 6 ? Fault::truncate
                             : Fault::none;
  };
  write(7);
  upload(7);
  expect_brought(7);
  EXPECT_EQ(server.problem(), "");
}

// What comes damaged is fetched once more.
TEST_F(Remote, AFlippedBitOnTheWay) {
  write(7);
  upload(7);
  std::atomic<int> flips = 0;
  server.fault = [&](const Request& request, size_t) {
    const bool first = request.key == key(7, shard) && request.method == "GET" && flips.fetch_add(1) == 0;
    return first ? Fault::flip : Fault::none;
  };
  expect_brought(7);
  EXPECT_EQ(flips, 2);
}

TEST_F(Remote, AnotherRunsIsRefusedBeforeItIsFetched) {
  write(7);
  upload(7);
  expect_error(ErrorKind::usage, {"s3://bucket/runs/tiny/checkpoints/step-7", "this"}, [&] {
    remote().bring_newest(
        elsewhere,
        [](const std::string& shown, const std::string& metadata) {
          throw_error(ErrorKind::usage, "{} is of {}", shown, metadata);
        },
        [] { return true; });
  });
  for (const Request& request : server.requests()) {
    EXPECT_FALSE(request.method == "GET" && request.key == key(7, shard));
  }
  EXPECT_TRUE(list_checkpoints(elsewhere).empty());
}

TEST_F(Remote, WhatCannotBeWrittenIsSaidAtOnce) {
  server.fault = [](const Request& request, size_t) {
    return request.method == "PUT" || request.method == "POST" ? Fault::denied : Fault::none;
  };
  expect_error(ErrorKind::unavailable, {"s3://bucket/runs/tiny/checkpoints", "403"},
               [&] { remote().require_writable(); });
}

// The newest waits for its turn; one that waited when it came is left out. A folder that is removed meanwhile is
// uploaded all the same.
TEST_F(Remote, OneUploadAtATime) {
  std::atomic<bool> blocked = true;
  server.fault = [&](const Request& request, size_t) {
    while (blocked && request.key.starts_with(key(3, ""))) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Fault::none;
  };
  for (const int64_t step : {3, 6, 9}) write(step);
  const RemoteCheckpoints to = remote();
  BackgroundUpload uploads(to, folder, 9);
  EXPECT_FALSE(uploads.busy());
  EXPECT_EQ(uploads.add(3), std::nullopt);
  fs::remove_all(folder / "step-3");
  EXPECT_EQ(uploads.add(6), std::nullopt);
  EXPECT_EQ(uploads.ended(0), std::nullopt);
  EXPECT_EQ(uploads.add(9), 6);
  blocked = false;
  std::vector<int64_t> steps;
  while (uploads.busy()) {
    const auto ended = uploads.ended(1);
    if (!ended) continue;
    EXPECT_EQ(ended->fault, "");
    EXPECT_GT(ended->bytes, 8000U);
    steps.push_back(ended->step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 9}));
  EXPECT_EQ(to.list(), (std::vector<int64_t>{3, 9}));
}

TEST_F(Remote, AnUploadThatFailsSaysWhyAndTheNextIsTried) {
  std::atomic<bool> broken = true;
  server.fault = [&](const Request& request, size_t) {
    return broken && request.method != "GET" ? Fault::busy : Fault::none;
  };
  for (const int64_t step : {3, 6}) write(step);
  const RemoteCheckpoints to = remote();
  BackgroundUpload uploads(to, folder, 9);
  const auto end_of = [&](int64_t step) {
    uploads.add(step);
    std::optional<BackgroundUpload::Ended> ended;
    while (!ended) ended = uploads.ended(1);
    EXPECT_EQ(ended->step, step);
    return ended->fault;
  };
  EXPECT_NE(end_of(3).find("503"), std::string::npos);
  EXPECT_NE(end_of(4).find("step-4"), std::string::npos);  // there is none
  broken = false;
  EXPECT_EQ(end_of(6), "");
  EXPECT_EQ(to.list(), std::vector<int64_t>{6});
}

// The end of a run that failed does not wait for a server that does not come back.
TEST_F(Remote, WhatIsUnderWayIsStopped) {
  std::atomic<bool> asked = false;
  server.fault = [&](const Request&, size_t) {
    asked = true;
    return Fault::busy;
  };
  options.attempts.first_wait_s = 30;
  options.attempts.max_attempts = 1000;
  write(3);
  const RemoteCheckpoints to = remote();
  BackgroundUpload uploads(to, folder, 9);
  uploads.add(3);
  while (!asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace ingot::checkpoint
