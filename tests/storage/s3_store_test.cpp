#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/philox.h"
#include "storage/s3_config.h"
#include "storage/s3_signature.h"
#include "storage/store.h"
#include "storage/uri.h"
#include "tests/base/error_of.h"
#include "tests/base/scratch.h"
#include "tests/locations.h"
#include "tests/storage/loopback_server.h"
#include "tests/storage/s3_server.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Fault = S3Server::Fault;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Compared with signatures by botocore (tools/reference/make_s3_golden.py).
TEST(S3Signature, EqualsBotocores) {
  const auto golden = nlohmann::json::parse(read_file(fs::path(test_data) / "base/s3_signatures.json"));
  ASSERT_EQ(golden["cases"].size(), 6U);
  for (const auto& c : golden["cases"]) {
    S3Request request;
    request.method = c["method"];
    request.host = c["host"];
    request.path = "/" + percent_encoded(c["key"].get<std::string>(), true);
    S3Query query;
    for (const auto& pair : c["query"]) query.emplace_back(pair[0], pair[1]);
    request.query = s3_query_text(query);
    for (const auto& [name, value] : c["headers"].items()) request.amz_headers.emplace_back(name, value);
    const std::string body = c["body"];
    request.payload_sha256 = sha256_hex(bytes_of(body));
    const auto lines = s3_signed_headers(request, {golden["access_key"], golden["secret_key"], c["token"]},
                                         golden["region"], golden["time"]);
    EXPECT_EQ(lines.back(), "Authorization: " + c["authorization"].get<std::string>()) << c["key"];
    EXPECT_NE(std::find(lines.begin(), lines.end(), "x-amz-date: " + c["date"].get<std::string>()), lines.end());
  }
}

class S3ConfigTest : public testing::Test {
 protected:
  S3Config read() {
    return read_s3_config([&](const char* name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    });
  }
  std::string refusal(ErrorKind kind) {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_EQ(name(error.kind()), std::string(name(kind)));
      return error.message() + " / " + error.hint();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }
  Scratch scratch_;
  std::map<std::string, std::string> environment_ = {{"HOME", scratch_.folder().string()}};
};

TEST_F(S3ConfigTest, WithoutCredentialsIsAnonymous) {
  const S3Config config = read();
  EXPECT_FALSE(config.credentials.has_value());
  EXPECT_EQ(config.region, "us-east-1");
  EXPECT_EQ(config.endpoint, "");
}

TEST_F(S3ConfigTest, ReadsProfilesOfAwsFiles) {
  fs::create_directories(scratch_ / ".aws");
  write_file(scratch_ / ".aws/credentials",
             "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=B\n\n[other]\naws_access_key_id=C\n"
             "aws_secret_access_key = D\naws_session_token = E=\n[half]\naws_access_key_id = F\n");
  write_file(
      scratch_ / ".aws/config",
      "[default]\nregion = eu-west-1\n[profile other]\nregion = eu-north-1\nendpoint_url = "
      "https://store.example.org:9000/\n"
      "s3 =\n  max_concurrent_requests = 3\n[profile role]\nrole_arn = arn:x\n[profile odd]\nsecret without equals\n");
  EXPECT_EQ(read().credentials->access_key, "A");
  EXPECT_EQ(read().region, "eu-west-1");
  environment_["AWS_PROFILE"] = "other";
  S3Config config = read();
  EXPECT_EQ(config.credentials->secret_key, "D");
  EXPECT_EQ(config.credentials->session_token, "E=");
  EXPECT_EQ(config.region, "eu-north-1");
  EXPECT_EQ(config.endpoint, "https://store.example.org:9000");
  environment_["AWS_REGION"] = "x";
  environment_["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1";
  environment_["AWS_ACCESS_KEY_ID"] = "G";
  environment_["AWS_SECRET_ACCESS_KEY"] = "H";
  config = read();
  EXPECT_EQ(config.credentials->access_key, "G");
  EXPECT_EQ(config.credentials->session_token, "");
  EXPECT_EQ(config.region, "x");
  EXPECT_EQ(config.endpoint, "http://127.0.0.1:1");
  environment_.erase("AWS_SECRET_ACCESS_KEY");
  EXPECT_NE(refusal(ErrorKind::usage).find("no secret access key"), std::string::npos);
  environment_.erase("AWS_ACCESS_KEY_ID");
  environment_["AWS_PROFILE"] = "half";
  EXPECT_NE(refusal(ErrorKind::usage).find("profile 'half'"), std::string::npos);
  environment_["AWS_PROFILE"] = "role";
  EXPECT_NE(refusal(ErrorKind::unsupported).find("export-credentials"), std::string::npos);
  environment_["AWS_PROFILE"] = "none";
  EXPECT_NE(refusal(ErrorKind::usage).find("profile 'none'"), std::string::npos);
  environment_["AWS_PROFILE"] = "odd";
  const std::string odd = refusal(ErrorKind::corrupt);
  EXPECT_NE(odd.find("config line 11"), std::string::npos) << odd;
  EXPECT_EQ(odd.find("secret without"), std::string::npos);  // the malformed line may contain a secret
  environment_["AWS_PROFILE"] = "default";
  environment_["AWS_ENDPOINT_URL"] = "https://user:password@host/x";
  EXPECT_EQ(refusal(ErrorKind::usage).find("password"), std::string::npos);
}

Error error_of(const std::function<void()>& action) {
  Error error = ingot::error_of(action);
  for (const char* secret : {"aVery/Secret+Key", "token/of+session", "AKIDLOOPBACK", "Signature="}) {
    EXPECT_EQ((error.message() + error.hint()).find(secret), std::string::npos) << error.message();
  }
  return error;
}

class S3StoreTest : public testing::Test {
 protected:
  S3StoreTest() {
    server_.token = "token/of+session==";
    server_.announce();
    options_.attempts.first_wait_s = 0.001;
    options_.attempts.max_attempts = 3;
    options_.part_bytes = 1000;
  }
  std::unique_ptr<Store> store(const std::string& uri = "s3://bucket/runs/") { return open_store(uri, options_); }
  static std::string noise(size_t size) {
    RandomStream random(7);
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>(random.next_u32());
    return text;
  }
  S3Server server_;
  Scratch scratch_;
  StoreOptions options_;
};

// Names with all characters that must be encoded in paths and queries.
TEST_F(S3StoreTest, StoredObjectsCanBeReadAndListed) {
  const auto store = this->store();
  const std::vector<std::string> keys = {"plain", "a b+c/%41&=?#.mds", "\xC3\xA9~(1)'!*", "a//b", "a/../c/./d"};
  for (const std::string& key : keys) {
    store->put(key, bytes_of("bytes of " + key));
    EXPECT_EQ(server_.object("bucket/runs/" + key), "bytes of " + key) << server_.problem();
    EXPECT_EQ(store->get(key, 0, 1000), "bytes of " + key);
    EXPECT_EQ(store->get(key, 6, 2), "of");
    EXPECT_EQ(store->get(key, 1000, 2), "");
    EXPECT_EQ(store->find(key)->bytes, key.size() + 9);
    store->get_file(key, scratch_ / "out");
    EXPECT_EQ(read_file(scratch_ / "out"), "bytes of " + key);
    EXPECT_EQ(fetch_text(store->uri(key), 1000), "bytes of " + key);
  }
  server_.put("bucket/elsewhere", "");
  std::vector<std::string> listed;
  for (const StoredObject& object : store->list("")) listed.push_back(object.key);
  std::vector<std::string> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(listed, sorted);  // a listing of several pages
  EXPECT_EQ(store->list("a b+c/%").size(), 1U);
  EXPECT_FALSE(store->find("other").has_value());
  for (const std::string& key : keys) store->remove(key);
  store->remove("plain");
  EXPECT_TRUE(store->list("").empty());
  EXPECT_EQ(server_.problem(), "");
}

TEST_F(S3StoreTest, LargeFilesAreUploadedInParts) {
  const std::string body = noise(4567);
  write_file(scratch_ / "in", body);
  store()->put_file("large", scratch_ / "in");
  EXPECT_EQ(server_.object("bucket/runs/large"), body) << server_.problem();
  EXPECT_EQ(server_.requests().size(), 7U);      // initiate, five parts, complete
  store()->put("large", bytes_of(noise(2001)));  // also from memory
  EXPECT_EQ(server_.object("bucket/runs/large"), noise(2001));
  EXPECT_EQ(server_.requests().size(), 12U);
  write_file(scratch_ / "in", body.substr(0, 1000));
  store()->put_file("small", scratch_ / "in");
  EXPECT_EQ(server_.object("bucket/runs/small"), body.substr(0, 1000));
  EXPECT_EQ(server_.requests().size(), 13U);
}

// Every request first fails in each transient way: nothing is lost or duplicated.
TEST_F(S3StoreTest, TransientFaultsAreRetried) {
  const std::string body = noise(4567);
  write_file(scratch_ / "in", body);
  for (const Fault fault : {Fault::busy, Fault::reset, Fault::truncate, Fault::late}) {
    server_.fault = [fault](const S3Server::Request& request, size_t number) {
      if (fault == Fault::late) {
        return request.method == "POST" && !request.args.contains("uploads") && number % 2 == 0 ? fault : Fault::none;
      }
      // A truncated answer without a body is complete.
      return number % 2 == 0 ? fault : Fault::none;
    };
    if (server_.requests().size() % 2 == 1) store()->find("x");
    const std::string small = body.substr(0, 1000);  // in one part
    store()->put("small", bytes_of(small));
    EXPECT_EQ(server_.object("bucket/runs/small"), small);
    EXPECT_EQ(store()->get("small", 100, 700), small.substr(100, 700));
    store()->get_file("small", scratch_ / "out");
    EXPECT_EQ(read_file(scratch_ / "out"), small);
    EXPECT_EQ(store()->list("").size(), 1U);
    options_.parallel_parts = 1;
    store()->put_file("large", scratch_ / "in");
    EXPECT_EQ(server_.object("bucket/runs/large"), body);
    store()->remove("large");
  }
  EXPECT_EQ(server_.problem(), "");
}

// The object was stored, but the answer that confirms it was lost.
TEST_F(S3StoreTest, ALostConfirmationIsResolved) {
  write_file(scratch_ / "in", noise(4567));
  std::atomic<bool> first = true;
  server_.fault = [&](const S3Server::Request& request, size_t) {
    const bool end = request.method == "POST" && request.args.contains("uploadId");
    return end && first.exchange(false) ? Fault::truncate : Fault::none;
  };
  store()->put_file("large", scratch_ / "in");
  EXPECT_FALSE(first);
  EXPECT_EQ(server_.object("bucket/runs/large"), noise(4567));
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
}

TEST_F(S3StoreTest, PermanentFaultsHaveAHint) {
  server_.put("bucket/runs/a", noise(1000));
  server_.fault = [](const S3Server::Request&, size_t) { return Fault::busy; };
  Error error = error_of([&] { store()->get("a", 0, 10); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_EQ(error.message(), "s3://bucket/runs/a: the server answered 503: SlowDown: as the test wants");
  EXPECT_NE(error.hint().find("3 attempts"), std::string::npos);
  EXPECT_EQ(server_.requests().size(), 3U);
  server_.fault = [](const S3Server::Request&, size_t) { return Fault::truncate; };
  EXPECT_EQ(error_of([&] { store()->get("a", 0, 100); }).kind(), ErrorKind::unavailable);
  server_.fault = nullptr;
  error = error_of([&] { store()->get_file("gone", scratch_ / "out"); });
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_NE(error.message().find("s3://bucket/runs/gone"), std::string::npos);
  EXPECT_FALSE(fs::exists(scratch_ / "out"));
  // A failed upload leaves no parts behind.
  write_file(scratch_ / "in", noise(4567));
  server_.fault = [](const S3Server::Request& request, size_t) {
    return request.args.contains("partNumber") && request.args.at("partNumber") == "3" ? Fault::busy : Fault::none;
  };
  EXPECT_EQ(error_of([&] { store()->put_file("large", scratch_ / "in"); }).kind(), ErrorKind::unavailable);
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
  EXPECT_FALSE(store()->find("large").has_value());
  EXPECT_EQ(server_.problem(), "");
}

// An upload that is stopped by request is aborted, too.
TEST_F(S3StoreTest, AStoppedUploadLeavesNothing) {
  write_file(scratch_ / "in", noise(4567));
  options_.attempts.progress = [this](uint64_t, uint64_t) {
    const auto requests = server_.requests();
    return std::none_of(requests.begin(), requests.end(), [](const S3Server::Request& request) {
      return request.args.contains("partNumber") && request.args.at("partNumber") == "3";
    });
  };
  const Error error = error_of([&] { store()->put_file("large", scratch_ / "in"); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_NE(error.message().find("large: stopped"), std::string::npos) << error.message();
  EXPECT_EQ(server_.unfinished_uploads(), 0U);
  // The abort is not always the server's last request: an abandoned part may arrive after it.
  const auto requests = server_.requests();
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [](const S3Server::Request& request) {
    return request.method == "DELETE" && request.args.contains("uploadId");
  }));
}

// Uploads of a process that died: only the server's paged list of uploads shows them.
TEST_F(S3StoreTest, UnfinishedUploadsAreAborted) {
  const auto other = store();
  server_.fault = [](const S3Server::Request& request, size_t) {
    const bool last = request.args.contains("uploadId") && request.method != "PUT";  // also the process's own clean-up
    return last && request.key.find("dead") != std::string::npos ? Fault::denied : Fault::none;
  };
  write_file(scratch_ / "in", noise(2500));
  for (const char* key : {"a/dead 1", "a/dead&2", "a/dead3", "b/dead4", "a/dead3"}) {
    error_of([&] { other->put_file(key, scratch_ / "in"); });
  }
  EXPECT_EQ(server_.unfinished_uploads(), 5U);
  server_.fault = nullptr;
  EXPECT_EQ(store()->abort_unfinished_uploads("a/"), 4);
  EXPECT_EQ(server_.unfinished_uploads(), 1U);
  EXPECT_EQ(store()->abort_unfinished_uploads("a/"), 0);
  EXPECT_EQ(store("s3://bucket/other")->abort_unfinished_uploads(""), 0);
  EXPECT_EQ(store()->abort_unfinished_uploads(""), 1);
  EXPECT_EQ(server_.problem(), "");
}

TEST_F(S3StoreTest, AnAnswerWithAnotherRangeIsRejected) {
  LoopbackServer server([](const std::string&, int) {
    return std::string("HTTP/1.1 206 X\r\nContent-Range: bytes 5-9/300\r\nContent-Length: 5\r\n\r\nabcde");
  });
  ::setenv("AWS_ENDPOINT_URL", server.url("").c_str(), 1);
  EXPECT_EQ(error_of([&] { store()->get("a", 7, 5); }).kind(), ErrorKind::unavailable);
  EXPECT_EQ(store()->get("a", 5, 5), "abcde");
}

TEST_F(S3StoreTest, InvalidKeysAreRejected) {
  server_.put("bucket/runs/a", "x");
  ::setenv("AWS_SECRET_ACCESS_KEY", "another", 1);
  Error error = error_of([&] { store()->get("a", 0, 10); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_EQ(server_.problem(), "SignatureDoesNotMatch");
  EXPECT_NE(error.hint().find("secret access key"), std::string::npos);
  ::unsetenv("AWS_SECRET_ACCESS_KEY");
  ::unsetenv("AWS_ACCESS_KEY_ID");
  error = error_of([&] { store()->get("a", 0, 10); });
  EXPECT_NE(error.hint().find("no credentials were found"), std::string::npos);
}

TEST(Store, AFolderBehavesLikeAStore) {
  Scratch scratch;
  const auto store = open_store((scratch / "store").string());
  store->put("a/b", bytes_of("text"));
  EXPECT_EQ(store->get("a/b", 1, 2), "ex");
  EXPECT_EQ(store->get("a/b", 9, 2), "");
  EXPECT_EQ(store->find("a/b")->bytes, 4U);
  EXPECT_FALSE(store->find("a").has_value());
  store->get_file("a/b", scratch / "out");
  store->put_file("c", scratch / "out");
  ASSERT_EQ(store->list("").size(), 2U);
  EXPECT_EQ(store->list("a/")[0].key, "a/b");
  store->remove("c");
  store->remove("c");
  EXPECT_EQ(store->list("").size(), 1U);
  write_file(scratch / "store/a/d.partial", "");
  EXPECT_EQ(store->abort_unfinished_uploads("b/"), 0);
  EXPECT_EQ(store->abort_unfinished_uploads("a/"), 1);
  store->remove("a/b");
  EXPECT_FALSE(fs::exists(scratch / "store/a"));  // a prefix without keys does not exist
  EXPECT_TRUE(fs::exists(scratch / "store"));
  EXPECT_THROW(store->put("../x", {}), Error);
  fs::remove_all(scratch / "store");
  EXPECT_EQ(error_of([&] { store->list(""); }).kind(), ErrorKind::unavailable);
  StoreOptions stopping;
  stopping.attempts.progress = [](uint64_t, uint64_t) { return false; };
  const auto stopped = open_store((scratch / "store").string(), stopping);
  EXPECT_NE(error_of([&] { stopped->put("a", bytes_of("text")); }).message().find("stopped"), std::string::npos);
  EXPECT_TRUE(stopped->list("").empty());
  EXPECT_THROW(open_store("https://example.org/x"), Error);
}

TEST(Uri, OfS3AreNotDecoded) {
  const Uri uri = parse_uri("s3://bucket/a b/c?d#e%41");
  EXPECT_EQ(uri.bucket, "bucket");
  EXPECT_EQ(uri.key, "a b/c?d#e%41");
  EXPECT_EQ(uri.file_name, "c?d#e%41");
  EXPECT_EQ(uri_below("s3://bucket/x/", "a/b"), "s3://bucket/x/a/b");
  EXPECT_EQ(uri_below("https://host/x?token=1", "index.json"), "https://host/x/index.json?token=1");
  EXPECT_EQ(uri_below("https://host/x/?token=1", "a b/c#%.mds"), "https://host/x/a%20b/c%23%25.mds?token=1");
  EXPECT_EQ(parse_uri(uri_below("https://host/x", "c#?%41.mds")).file_name, "c#?%41.mds");
  EXPECT_EQ(uri_below("s3://bucket/x", "a b#"), "s3://bucket/x/a b#");
  EXPECT_THROW(parse_uri("s3:///key"), Error);
  EXPECT_THROW(parse_uri("s3://key:secret@bucket/x"), Error);
  EXPECT_TRUE(is_remote("https://host/x"));
  EXPECT_FALSE(is_remote("file:///x"));
  EXPECT_FALSE(is_remote("a/b"));
}

}  // namespace
}  // namespace ingot
