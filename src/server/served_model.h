// What is served: a model, its adapters, and what makes masks. The application hands these to the routes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "infer/host_adapter.h"
#include "infer/token_mask.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::server {

struct ServedModel {
  std::string id;
  int64_t created = 0;  // Unix seconds
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat = nullptr;  // null: it has none
  bool tool_call_tags = false;               // its template writes calls as <tool_call>{...}</tool_call>
  std::string bos_text, eos_text;
  std::vector<int32_t> eos;
  int64_t context = 0;  // most tokens of prompt and output
  int64_t vocab = 0;
  int64_t hidden = 0;
  std::string fingerprint;  // what the text depends on besides the request
};

struct AdapterEntry {
  std::string name;
  int64_t created = 0;  // Unix seconds
  int64_t rank = 0;     // 0: not read yet
};

// The adapters that may be asked for by name. Thread-safe.
class AdapterList {
 public:
  virtual ~AdapterList() = default;
  virtual std::vector<AdapterEntry> entries() const = 0;  // by name
  virtual bool has(const std::string& name) const = 0;
  // May read files. Errors: not_found, and those of checkpoint::read_adapter.
  virtual std::shared_ptr<const infer::HostAdapter> get(const std::string& name) = 0;
  // Makes what has that name servable, and reads it. Errors: as `get`; usage for a bad name.
  virtual void add(const std::string& name) = 0;
  // Requests that have it keep it. Errors: not_found.
  virtual void remove(const std::string& name) = 0;
};

// Thread-safe. Errors: unsupported, naming the keyword; usage for a schema that is wrong; resource for one too large.
class MaskFactory {
 public:
  virtual ~MaskFactory() = default;
  virtual std::shared_ptr<infer::TokenMask> json_schema(std::string_view schema) = 0;
  virtual std::shared_ptr<infer::TokenMask> any_json_object() = 0;
};

}  // namespace ingot::server
