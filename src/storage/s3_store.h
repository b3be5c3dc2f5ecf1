// An object store that speaks Amazon's S3 protocol.
#pragma once

#include <functional>
#include <string>

#include "storage/http_attempts.h"
#include "storage/http_transfer.h"
#include "storage/s3_config.h"
#include "storage/store.h"

namespace ingot {

// Makes requests for one bucket. Copyable; callable from any thread.
class S3Bucket {
 public:
  S3Bucket(S3Config config, std::string bucket) : config_(std::move(config)), bucket_(std::move(bucket)) {}

  // Sets the address and headers of `request`, whose method and body are set already; signed with the current time.
  void address(HttpRequest& request, const std::string& key, const S3Query& query = {},
               std::vector<std::pair<std::string, std::string>> amz_headers = {}) const;
  // Throws as throw_http, with what S3 reports about a wrong region or key and what to do.
  [[noreturn]] void fail(const std::string& shown, const AttemptsResult& failed) const;

 private:
  S3Config config_;
  std::string bucket_;
};

class S3Store : public Store {
 public:
  S3Store(const S3Config& config, std::string bucket, std::string prefix, StoreOptions options);

  std::string uri(const std::string& key) const override;
  std::optional<StoredObject> find(const std::string& key) const override;
  std::string get(const std::string& key, uint64_t first, uint64_t bytes) const override;
  void get_file(const std::string& key, const std::filesystem::path& out) const override;
  void put(const std::string& key, std::span<const std::byte> bytes) override;
  void put_file(const std::string& key, const std::filesystem::path& file) override;
  std::vector<StoredObject> list(const std::string& prefix) const override;
  void remove(const std::string& key) override;
  int64_t abort_unfinished_uploads(const std::string& prefix) override;

 private:
  struct Answer {
    AttemptsResult attempts;
    std::string body;
    const HttpResult& result() const { return attempts.result; }
    bool done() const { return attempts.result.outcome == HttpOutcome::done; }
  };
  struct Call {
    std::string method;
    std::string key;  // below the prefix
    S3Query query;
    std::span<const std::byte> body;
    uint64_t first = 0, bytes = 0;  // range of the object; 0: all
    std::vector<std::pair<std::string, std::string>> amz_headers;
    bool best_effort = false;  // best effort: one attempt, made even after progress has asked to stop
  };
  Answer call(const Call& call) const;
  Answer call_or_throw(const Call& call) const;  // throws unless done
  void put_parts(const std::string& key, std::span<const std::byte> bytes);

  S3Bucket bucket_;
  std::string name_, prefix_;  // prefix with a '/' at its end, or empty
  StoreOptions options_;
};

}  // namespace ingot
