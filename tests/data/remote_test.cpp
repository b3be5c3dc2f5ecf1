// Sources in an object store and on a web server: the bytes read are those stored, whatever the network does.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "data/packed_dataset.h"
#include "data/source.h"
#include "formats/mds.h"
#include "formats/megatron.h"
#include "storage/uri.h"
#include "tests/data/megatron_source.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"
#include "tests/storage/loopback_server.h"
#include "tests/storage/s3_server.h"

namespace ingot::data {
namespace {

namespace fs = std::filesystem;
using Fault = S3Server::Fault;

class Remote : public testing::Test {
 protected:
  Remote() {
    server_.announce();
    ::setenv("INGOT_CACHE", (folder_.path() / "cache").c_str(), 1);
    ::unsetenv("INGOT_CACHE_BYTES");
  }
  ~Remote() override {
    ::unsetenv("INGOT_CACHE");
    ::unsetenv("INGOT_CACHE_BYTES");
  }

  // A folder of shards of about `size_limit` bytes, stored below bucket/set. Returns its texts.
  std::vector<std::string> shards(const std::string& compression = "",
                                  const std::vector<std::string>& hashes = {"sha1", "xxh64"}) {
    std::vector<std::string> texts;
    formats::MdsWriter writer(folder_.path() / "set", {{"text", formats::parse_mds_encoding("str")}},
                              {compression, hashes, 300});
    for (int i = 0; i < 60; ++i) {
      texts.push_back("text number " + std::to_string(i));
      writer.write(std::array<std::string_view, 1>{texts.back()});
    }
    writer.finish();
    upload(folder_.path() / "set", "bucket/set");
    return texts;
  }
  void upload(const fs::path& from, const std::string& key) {
    for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
      server_.put(key + "/" + entry.path().filename().string(), read_file(entry.path()));
    }
  }
  static std::vector<std::string> read(const std::string& uri) {
    DocumentReader reader(uri, Format::automatic, OnError::stop);
    std::vector<std::string> texts;
    for (Document document; reader.next(document);) texts.push_back(document.text);
    return texts;
  }
  static Error error_of(const std::string& uri) {
    try {
      read(uri);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {ErrorKind::internal, ""};
  }
  uintmax_t cached() const {
    uintmax_t bytes = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path() / "cache"))
      bytes += entry.file_size();
    return bytes;
  }

  TempFolder folder_;
  S3Server server_;
};

TEST_F(Remote, ShardsAreFetchedOnceAndCached) {
  for (const char* compression : {"", "zstd"}) {
    fs::remove_all(folder_.path() / "set");
    const std::vector<std::string> texts = shards(compression);
    EXPECT_EQ(read("s3://bucket/set"), texts);
    const size_t asked = server_.requests().size();
    EXPECT_EQ(read("s3://bucket/set/"), texts);
    EXPECT_EQ(server_.requests().size(), asked + 2);  // the existence check and the index
  }
  EXPECT_EQ(server_.problem(), "");
}

// For shards without hashes the server is asked for their version once a run. A rewritten shard is detected even when
// its size is the same.
TEST_F(Remote, RewrittenShardsWithoutHashesAreDetected) {
  std::vector<std::string> texts = shards("", {});
  const std::string key = "bucket/set/shard.00001.mds";
  const auto asked = [&](const std::string& method) {
    const std::vector<S3Server::Request> all = server_.requests();
    return std::ranges::count_if(all, [&](const auto& r) { return r.method == method && r.key == key; });
  };
  EXPECT_EQ(read("s3://bucket/set"), texts);
  EXPECT_EQ(read("s3://bucket/set"), texts);
  EXPECT_EQ(asked("GET"), 1);
  EXPECT_EQ(asked("HEAD"), 2);
  std::string shard = server_.object(key);
  const size_t at = shard.find("number");
  ASSERT_NE(at, std::string::npos);
  server_.put(key, shard.replace(at, 6, "letter"));
  const std::vector<std::string> now = read("s3://bucket/set");
  EXPECT_NE(now, texts);
  EXPECT_EQ(std::ranges::count_if(now, [](const std::string& text) { return text.starts_with("text letter"); }), 1);
  const formats::MdsFolder folder("s3://bucket/set");
  const auto before = asked("HEAD");
  for (int i = 0; i < 3; ++i) EXPECT_GT(folder.open(1).num_samples(), 0);
  EXPECT_EQ(asked("HEAD"), before + 1);
}

TEST_F(Remote, CacheSizeIsBounded) {
  const std::vector<std::string> texts = shards();
  ::setenv("INGOT_CACHE_BYTES", "1200", 1);
  EXPECT_EQ(read("s3://bucket/set"), texts);
  EXPECT_LE(cached(), 1200U);
  ::setenv("INGOT_CACHE_BYTES", "100", 1);
  const Error error = error_of("s3://bucket/set");
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_NE(error.hint().find("INGOT_CACHE_BYTES"), std::string::npos);
}

TEST_F(Remote, TransientFaultsAreRetried) {
  const std::vector<std::string> texts = shards();
  for (const Fault fault : {Fault::busy, Fault::reset, Fault::truncate}) {
    fs::remove_all(folder_.path() / "cache");
    std::atomic<int> left = 3;
    server_.fault = [&](const S3Server::Request&, size_t number) {
      return number % 2 == 0 && left-- > 0 ? fault : Fault::none;
    };
    EXPECT_EQ(read("s3://bucket/set"), texts);
  }
}

// A shard damaged in transfer is fetched again; a shard damaged in the store is named.
TEST_F(Remote, DamagedShardsAreFetchedAgainOrNamed) {
  const std::vector<std::string> texts = shards();
  const std::string third = "bucket/set/shard.00002.mds";
  std::atomic<bool> once = true;
  server_.fault = [&](const S3Server::Request& request, size_t) {
    return request.key == third && once.exchange(false) ? Fault::flip : Fault::none;
  };
  EXPECT_EQ(read("s3://bucket/set"), texts);
  EXPECT_FALSE(once);
  server_.fault = nullptr;
  fs::remove_all(folder_.path() / "cache");
  std::string damaged = server_.object(third);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  server_.put(third, damaged);
  Error error = error_of("s3://bucket/set");
  EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  EXPECT_NE(error.message().find("s3://bucket/set/shard.00002.mds: its sha1 is"), std::string::npos) << error.message();
  EXPECT_NE(error.hint().find("fetched twice"), std::string::npos) << error.hint();
  server_.put(third, damaged.substr(1));
  error = error_of("s3://bucket/set");
  EXPECT_EQ(error.kind(), ErrorKind::corrupt);
  EXPECT_NE(error.message().find("shard.00002.mds: downloaded"), std::string::npos) << error.message();
}

TEST_F(Remote, MissingFilesAreNamed) {
  formats::MdsWriter writer(folder_.path() / "set", {{"text", formats::parse_mds_encoding("str")}}, {"", {}, 300});
  writer.write(std::array<std::string_view, 1>{"a text"});
  writer.finish();
  server_.put("bucket/set/index.json", read_file(folder_.path() / "set/index.json"));
  Error error = error_of("s3://bucket/set");
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_NE(error.message().find("s3://bucket/set/shard.00000.mds"), std::string::npos) << error.message();
  EXPECT_NE(error.hint().find("the index lists this shard"), std::string::npos);
  error = error_of("s3://bucket/gone.jsonl");
  EXPECT_EQ(error.kind(), ErrorKind::not_found);
  EXPECT_EQ(error.message(), "s3://bucket/gone.jsonl: there is no such file");
}

TEST_F(Remote, ReadsTextAndTokenFiles) {
  server_.put("bucket/a b.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  EXPECT_EQ(read("s3://bucket/a b.jsonl"), (std::vector<std::string>{"one", "two"}));
  server_.put("bucket/a b.jsonl", "{\"text\": \"another\"}\nnothing\n");  // a new version
  const Error error = error_of("s3://bucket/a b.jsonl");
  EXPECT_TRUE(error.message().starts_with("s3://bucket/a b.jsonl line 2: ")) << error.message();
  const fs::path golden = fs::path(test_data) / "formats/npy/govreport.npy";
  server_.put("bucket/govreport.npy", read_file(golden));
  DocumentReader here(golden, Format::automatic, OnError::stop),
      there("s3://bucket/govreport.npy", Format::automatic, OnError::stop);
  for (Document a, b; here.next(a);) {
    ASSERT_TRUE(there.next(b));
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.loss_mask, b.loss_mask);
  }
}

TEST_F(Remote, ReadsMegatronFiles) {
  write_source(folder_.path() / "m", {5, 7, 3}, 1);
  for (const char* suffix : {".idx", ".bin"}) {
    server_.put(std::string("bucket/x/m") + suffix, read_file(folder_.path() / (std::string("m") + suffix)));
  }
  EXPECT_TRUE(formats::is_megatron("s3://bucket/x/m"));
  EXPECT_TRUE(formats::is_megatron("s3://bucket/x/m.idx"));
  EXPECT_FALSE(formats::is_megatron("s3://bucket/x/other"));
  const formats::MegatronFile here(folder_.path() / "m"), there("s3://bucket/x/m");
  EXPECT_EQ(there.source(), "s3://bucket/x/m");
  EXPECT_TRUE(std::ranges::equal(here.token_bytes(), there.token_bytes()));
  EXPECT_TRUE(std::ranges::equal(here.index_bytes(), there.index_bytes()));
}

// The file suffixes are inserted before the query of a URL. No message shows the query.
TEST_F(Remote, ReadsMegatronFilesFromSignedUrls) {
  write_source(folder_.path() / "m", {5, 7, 3}, 1);
  LoopbackServer web([&](const std::string& head, int) {
    const auto answer = [&](int status, const std::string& body) {
      return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) +
             "\r\nETag: \"1\"\r\nConnection: close\r\n\r\n" + (head.starts_with("HEAD") ? "" : body);
    };
    for (const char* suffix : {".idx", ".bin"}) {
      if (head.find(std::string(" /x.y/m") + suffix + "?sig=a.b/c&n=1 ") != std::string::npos) {
        return answer(200, read_file(folder_.path() / (std::string("m") + suffix)));
      }
    }
    return answer(404, "");
  });
  for (const char* suffix : {"", ".idx", ".bin"}) {
    const std::string uri = web.url(std::string("/x.y/m") + suffix + "?sig=a.b/c&n=1");
    EXPECT_TRUE(is_megatron(uri));
    const formats::MegatronFile file(uri);
    EXPECT_EQ(file.num_sequences(), 3);
    EXPECT_EQ(file.source(), web.url("/x.y/m"));
  }
}

// For a name with a known suffix only that file is requested, so a store that refuses to list or to report missing
// files suffices.
TEST_F(Remote, NamesWithKnownSuffixesNeedOneRequest) {
  for (const char* name : {"x.jsonl", "x.json.gz", "x.txt.zst", "x.npy"}) {
    const std::string uri = std::string("s3://bucket/") + name;
    EXPECT_TRUE(is_remote_file(uri));
    EXPECT_FALSE(is_megatron(uri));
    EXPECT_FALSE(is_mds_folder(uri));
    EXPECT_FALSE(is_packed(uri));
  }
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_FALSE(is_remote_file("s3://bucket/x"));
  EXPECT_FALSE(is_remote_file("x.jsonl"));
}

// A web server without HEAD. The URL contains a secret, which no message shows.
TEST_F(Remote, ReadsFromAWebServer) {
  LoopbackServer web([](const std::string& head, int) -> std::string {
    const auto answer = [](int status, const std::string& body) {
      return "HTTP/1.1 " + std::to_string(status) + " X\r\nContent-Length: " + std::to_string(body.size()) +
             "\r\nConnection: close\r\n\r\n" + body;
    };
    if (head.starts_with("HEAD ")) return answer(403, "");
    if (head.starts_with("GET /a.jsonl?key=secret ")) return answer(200, "{\"text\": \"one\"}\nnothing\n");
    return answer(404, "");
  });
  const Error error = error_of(web.url("/a.jsonl?key=secret"));
  EXPECT_TRUE(error.message().starts_with(web.url("/a.jsonl") + " line 2: ")) << error.message();
  EXPECT_EQ((error.message() + error.hint()).find("secret"), std::string::npos);
  EXPECT_EQ(error_of(web.url("/b.jsonl")).kind(), ErrorKind::not_found);
}

}  // namespace
}  // namespace ingot::data
