#include "checkpoint/remote.h"

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/background_upload.h"
#include "checkpoint/manifest.h"
#include "checkpoint/native.h"
#include "tests/checkpoint/fixtures.h"
#include "tests/storage/s3_server.h"

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
    options.part_bytes = 1500;  // smaller than the shards of 4,000 bytes
  }
  // Writes folder/step-N: shards of `weights`; the step is the first value.
  void write(int64_t step) {
    weights[0] = static_cast<float>(step);
    const NamedTensor tensors[] = {{"a", Tensor{weights.data(), DType::f32, Shape{1000}, nullptr}},
                                   {"b", Tensor{weights.data(), DType::f32, Shape{1000}, nullptr}}};
    write_checkpoint(folder, step, tensors, R"({"run": "this"})", &device, {.shard_bytes = 4000});
  }
  RemoteCheckpoints remote() const { return RemoteCheckpoints("s3://bucket/runs/tiny/checkpoints", options); }
  void upload(int64_t step, int64_t keep = 9) const {
    EXPECT_EQ(remote().upload(OpenFiles(folder, step), keep, [] { return true; }), "");
  }
  int64_t remove_remote_leftovers() const { return remote().abort_unfinished_uploads() + remote().remove_incomplete(); }
  void TearDown() override { blocked = false; }
  std::optional<int64_t> bring() const {
    return remote()
        .download_newest(
            elsewhere, [](const std::string&, const std::string&) {}, [] { return true; })
        .downloaded;
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

  // Used by the fault handler. Declared before the server, so that it outlives the server's threads also when a test
  // fails.
  std::atomic<bool> blocked = false, asked = false;
  std::atomic<int> left = 0;
  S3Server server;
  Scratch scratch;
  HostDevice device{true};
  fs::path folder = scratch.path / "checkpoints", elsewhere = scratch.path / "elsewhere";
  StoreOptions options;
  std::vector<float> weights = std::vector<float>(1000, 0.5F);
  const std::string shard = "model-00002-of-00002.safetensors";
};

TEST_F(Remote, AnUploadedCheckpointIsDownloaded) {
  EXPECT_TRUE(remote().list().empty());
  EXPECT_EQ(bring(), std::nullopt);
  remote().require_writable();
  EXPECT_TRUE(remote().list().empty());
  write(3);
  upload(3);
  // The manifest is uploaded after all other files, and the completion marker after it.
  std::vector<std::string> written;
  for (const Request& request : server.requests()) {
    if (request.method == "PUT" && !request.args.contains("partNumber")) written.push_back(request.key);
  }
  ASSERT_GE(written.size(), 3U);
  EXPECT_EQ(written[written.size() - 2], key(3, "manifest.json"));
  EXPECT_EQ(written.back(), "bucket/runs/tiny/checkpoints/latest");
  EXPECT_EQ(server.object(written.back()), "step-3\n");
  expect_brought(3);
  EXPECT_EQ(bring(), std::nullopt);  // it exists locally
  write(12);
  upload(12);
  expect_brought(12);
  upload(3);  // a second upload of the same step
  EXPECT_EQ(remote().list(), (std::vector<int64_t>{3, 12}));
  EXPECT_EQ(server.unfinished_uploads(), 0U);
  EXPECT_EQ(server.problem(), "");
}

TEST_F(Remote, ALocalFolderMayBeTheStore) {
  const RemoteCheckpoints disk((scratch.path / "disk").string(), options);
  disk.require_writable();
  for (const int64_t step : {1, 2}) {
    write(step);
    disk.upload(OpenFiles(folder, step), 1, [] { return true; });
  }
  EXPECT_EQ(list_checkpoints(scratch.path / "disk"), std::vector<int64_t>{2});
  EXPECT_EQ(disk.download_newest(
                    elsewhere, [](const std::string&, const std::string&) {}, [] { return true; })
                .downloaded,
            2);
  EXPECT_EQ(open_checkpoint(elsewhere, std::nullopt).step, 2);
}

TEST_F(Remote, KeepsTheNewest) {
  for (const int64_t step : {1, 2, 9, 10}) {
    write(step);
    upload(step, 2);
  }
  EXPECT_EQ(remote().list(), (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(server.object("bucket/runs/tiny/checkpoints/latest"), "step-10\n");
  EXPECT_EQ(remove_remote_leftovers(), 0);
  EXPECT_EQ(server.object(key(2, shard)), "");
}

// A process died during an upload: its files form no checkpoint and are removed.
TEST_F(Remote, AnIncompleteUploadIsNoCheckpoint) {
  for (const int64_t step : {1, 2}) write(step);
  upload(1);
  left = 9;  // requests until the process dies
  server.fault = [&](const Request&, size_t) { return --left < 0 ? Fault::denied : Fault::none; };
  expect_error(ErrorKind::unavailable, {"403"}, [&] { upload(2); });
  left = 1 << 20;
  EXPECT_NE(server.object(key(2, "model-00001-of-00002.safetensors")), "");
  EXPECT_GT(server.unfinished_uploads(), 0U);
  EXPECT_EQ(remote().list(), std::vector<int64_t>{1});
  EXPECT_EQ(remove_remote_leftovers(), 2);  // one object and one multipart upload
  EXPECT_EQ(server.unfinished_uploads(), 0U);
  EXPECT_EQ(server.object(key(2, "model-00001-of-00002.safetensors")), "");
  expect_brought(1);
  upload(2);
  expect_brought(2);
}

TEST_F(Remote, DamageIsNamedAndNoEarlierStepIsUsed) {
  for (const int64_t step : {1, 2}) write(step);
  const auto damaged = [&](const std::vector<std::string>& words, const std::function<void()>& damage) {
    for (const int64_t step : {1, 2}) upload(step);
    damage();
    std::vector<std::string> all = {"remove it (s3://bucket/runs/tiny/checkpoints/step-2)", "step 1"};
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
  // The manifest's own hash is right, but a file name leads out of the folder or is empty.
  for (const std::string name : {"../x", "..", ".", "", "a/b", "/x"}) {
    damaged({"manifest.json is damaged", "'" + name + "'"}, [&] {
      change("manifest.json", [&](std::string& text) {
        auto manifest = nlohmann::json::parse(text);
        manifest["files"][0]["name"] = name;
        manifest.erase("sha256");
        const std::string rest = manifest.dump();
        manifest["sha256"] = sha256_hex(std::as_bytes(std::span(rest)));
        text = manifest.dump();
      });
    });
  }
  damaged({"is incomplete"}, [&] { remove("manifest.json"); });
  EXPECT_GT(server.object(key(2, shard)).size(), 0U);
  EXPECT_EQ(remove_remote_leftovers(), 0);  // damaged checkpoints are left for the user to remove
  for (const StoredObject& object : open_store("s3://bucket/runs/tiny/checkpoints/step-2")->list("")) {
    remove(object.key);
  }
  expect_brought(1);
}

// Remote files that need not be downloaded may be damaged.
TEST_F(Remote, ALocalCheckpointNeedsNoDownload) {
  for (const int64_t step : {1, 2}) {
    write(step);
    upload(step);
  }
  fs::create_directory(elsewhere);
  fs::copy(folder / "step-2", elsewhere / "step-2");
  server.put(key(2, "manifest.json"), "{");
  EXPECT_EQ(bring(), std::nullopt);
  open_store("s3://bucket/runs/tiny/checkpoints/step-2")->remove("manifest.json");
  EXPECT_EQ(bring(), std::nullopt);
  EXPECT_EQ(remote().list(), std::vector<int64_t>{1});
  // After a crash, the start first restores the folder's name.
  fs::rename(elsewhere / "step-2", elsewhere / "step-2.replaced.partial");
  EXPECT_EQ(bring(), std::nullopt);
  EXPECT_EQ(list_checkpoints(elsewhere), std::vector<int64_t>{2});
  EXPECT_TRUE(remote().any());
}

// This run's checkpoints would mix with another run's there, and retention would remove those.
TEST_F(Remote, OlderRemoteCheckpointsAreCheckedForTheirRunToo) {
  write(1);
  upload(1);
  write(2);
  std::string shown;
  const auto newest = remote().download_newest(
      folder, [&](const std::string& address, const std::string&) { shown = address; }, [] { return true; });
  EXPECT_EQ(newest.stored, 1);
  EXPECT_EQ(newest.downloaded, std::nullopt);
  EXPECT_EQ(shown, remote().uri(1));
  const auto refuses = [](const std::string&, const std::string&) { throw_error(ErrorKind::usage, "another run's"); };
  const auto refused = [&] {
    expect_error(ErrorKind::usage, {"another run's"},
                 [&] { remote().download_newest(folder, refuses, [] { return true; }); });
  };
  refused();
  upload(2);
  open_store("s3://bucket/runs/tiny/checkpoints/step-2")->remove("manifest.json");  // step 1 is the newest complete one
  refused();
}

// Exactly the files that the manifest names are uploaded: a missing one is an error, and others are ignored.
TEST_F(Remote, OnlyCompleteCheckpointsAreUploaded) {
  for (const int64_t step : {1, 2, 3}) write(step);
  upload(1, 1);
  fs::remove(folder / "step-2" / shard);
  expect_error(ErrorKind::not_found, {shard}, [&] { upload(2, 1); });
  fs::resize_file(folder / "step-3" / shard, 99);
  expect_error(ErrorKind::corrupt, {"step-3", shard, "99 bytes"}, [&] { upload(3, 1); });
  EXPECT_EQ(remote().list(), std::vector<int64_t>{1});
  write(4);
  fs::create_directory(folder / "step-4/stray");
  write_file(folder / "step-4/.nfs0001", "removed and still open");
  upload(4, 1);
  EXPECT_EQ(remote().list(), std::vector<int64_t>{4});
  for (const StoredObject& object : open_store("s3://bucket/runs/tiny/checkpoints")->list("")) {
    EXPECT_EQ(object.key.find("nfs"), std::string::npos) << object.key;
  }
}

TEST_F(Remote, AConcurrentWriterIsDetected) {
  write(1);
  upload(1);
  write(2);
  server.fault = [&](const Request& request, size_t) {
    if (request.method == "POST" && request.key == key(2, shard))
      server.put(key(2, "model-00001-of-00002.safetensors"), "its");
    return Fault::none;
  };
  expect_error(ErrorKind::unavailable, {"step-2/model-00001-of-00002.safetensors", "another process writes"},
               [&] { upload(2, 1); });
  EXPECT_EQ(remote().list(), std::vector<int64_t>{1});
}

// A checkpoint is complete once its manifest is stored, even if the clean-up after it fails. The next start cleans up.
TEST_F(Remote, AFailedCleanUpIsRepeatedAtTheNextStart) {
  for (const int64_t step : {1, 2}) write(step);
  upload(1);
  server.fault = [](const Request& request, size_t) {
    return request.method == "PUT" && request.key.ends_with("/latest") ? Fault::denied : Fault::none;
  };
  const RemoteCheckpoints to = remote();
  BackgroundUpload uploads(to, folder, 1);
  uploads.add(2);
  std::optional<BackgroundUpload::Result> ended;
  while (!ended) ended = uploads.poll(1);
  EXPECT_EQ(ended->fault, "");
  EXPECT_NE(ended->cleanup_error.find("403"), std::string::npos) << ended->cleanup_error;
  EXPECT_EQ(to.list(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(server.object("bucket/runs/tiny/checkpoints/latest"), "step-1\n");
  server.fault = nullptr;
  EXPECT_EQ(remove_remote_leftovers(), 0);
  EXPECT_EQ(server.object("bucket/runs/tiny/checkpoints/latest"), "step-2\n");
}

TEST_F(Remote, TransientFaultsAreRetried) {
  server.fault = S3Server::passing([](size_t number) {
    return number % 8 == 1   ? Fault::busy
           : number % 8 == 3 ? Fault::reset
           : number % 8 == 6 ? Fault::truncate
                             : Fault::none;
  });
  write(7);
  upload(7);
  expect_brought(7);
  EXPECT_EQ(server.problem(), "");
}

// A damaged download is repeated once.
TEST_F(Remote, AFlippedBitInTransferIsRepaired) {
  write(7);
  upload(7);
  server.fault = [&](const Request& request, size_t) {
    const bool first = request.key == key(7, shard) && request.method == "GET" && left.fetch_add(1) == 0;
    return first ? Fault::flip : Fault::none;
  };
  expect_brought(7);
  EXPECT_EQ(left, 2);
}

TEST_F(Remote, AnotherRunsCheckpointIsRefusedBeforeDownload) {
  write(7);
  upload(7);
  expect_error(ErrorKind::usage, {"s3://bucket/runs/tiny/checkpoints/step-7", "this"}, [&] {
    remote().download_newest(
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

TEST_F(Remote, AnUnwritableStoreIsReportedImmediately) {
  server.fault = [](const Request& request, size_t) {
    return request.method == "PUT" || request.method == "POST" ? Fault::denied : Fault::none;
  };
  expect_error(ErrorKind::unavailable, {"s3://bucket/runs/tiny/checkpoints", "403"},
               [&] { remote().require_writable(); });
}

// The newest checkpoint waits for its turn and replaces one that was waiting. Local folders that are removed in the
// meantime are uploaded all the same, even before their turn.
TEST_F(Remote, OnlyOneUploadRunsAtATime) {
  blocked = true;
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
  EXPECT_EQ(uploads.poll(0), std::nullopt);
  EXPECT_EQ(uploads.add(9), 6);
  fs::remove_all(folder / "step-9");
  blocked = false;
  std::vector<int64_t> steps;
  while (uploads.busy()) {
    const auto ended = uploads.poll(1);
    if (!ended) continue;
    EXPECT_EQ(ended->fault, "");
    EXPECT_GT(ended->bytes, 8000U);
    steps.push_back(ended->step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{3, 9}));
  EXPECT_EQ(to.list(), (std::vector<int64_t>{3, 9}));
}

TEST_F(Remote, AFailedUploadIsReportedAndTheNextIsTried) {
  blocked = true;
  server.fault = [&](const Request& request, size_t) {
    return blocked && request.method != "GET" ? Fault::busy : Fault::none;
  };
  for (const int64_t step : {3, 6}) write(step);
  const RemoteCheckpoints to = remote();
  BackgroundUpload uploads(to, folder, 9);
  const auto end_of = [&](int64_t step) {
    uploads.add(step);
    std::optional<BackgroundUpload::Result> ended;
    while (!ended) ended = uploads.poll(1);
    EXPECT_EQ(ended->step, step);
    return ended->fault;
  };
  EXPECT_NE(end_of(3).find("503"), std::string::npos);
  EXPECT_NE(end_of(4).find("step-4"), std::string::npos);  // there is no such step
  blocked = false;
  EXPECT_EQ(end_of(6), "");
  EXPECT_EQ(to.list(), std::vector<int64_t>{6});
}

// The end of a failed run does not wait for a server that stays down: the multipart upload is aborted once and not
// retried.
TEST_F(Remote, AnUploadInProgressIsAborted) {
  server.fault = [&](const Request& request, size_t) {
    if (request.args.contains("partNumber")) asked = true;
    return asked ? Fault::busy : Fault::none;
  };
  options.attempts.first_wait_s = 30;
  options.attempts.max_attempts = 1000;
  write(3);
  const RemoteCheckpoints to = remote();
  {
    BackgroundUpload uploads(to, folder, 9);
    uploads.add(3);
    while (!asked) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<Request> requests = server.requests();
  EXPECT_LE(std::ranges::count(requests, "DELETE", &Request::method), 1);
  EXPECT_EQ(server.object(key(3, "manifest.json")), "");
}

}  // namespace
}  // namespace ingot::checkpoint
