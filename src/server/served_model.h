// What is served: a model, its adapters, and what makes masks. The application hands these to the routes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "infer/host_adapter.h"
#include "infer/token_mask.h"
#include "server/constraint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::server {

struct ServedModel {
  std::string id;
  int64_t created = 0;  // Unix seconds
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat = nullptr;  // null: it has none
  bool allow_special_tokens = false;         // special tokens are found in the contents of messages too
  bool tool_call_tags = false;               // its template writes calls as <tool_call>{...}</tool_call>
  std::string bos_text, eos_text;
  std::vector<int32_t> eos;
  int64_t context = 0;  // most tokens of prompt and output
  int64_t vocab = 0;
  int64_t longest_token = 0;  // bytes of text that the longest one stands for: longest_token_of(tokenizer)
  int64_t hidden = 0;
  std::string fingerprint;  // what the text depends on besides the request
};

// Bytes of text that no token stands for more of.
int64_t longest_token_of(const text::Tokenizer& tokenizer);

struct AdapterEntry {
  std::string name;
  int64_t created = 0;    // Unix seconds
  int64_t rank = 0;       // 0: not read yet
  bool resident = false;  // in host memory
};

// The adapters that may be asked for by name. Thread-safe.
class AdapterList {
 public:
  virtual ~AdapterList() = default;
  virtual std::vector<AdapterEntry> entries() const = 0;  // by name
  virtual bool has(const std::string& name) const = 0;
  // May read files. Errors: not_found, and those of checkpoint::read_adapter.
  virtual std::shared_ptr<const infer::HostAdapter> get(const std::string& name) = 0;
  // Makes the folder of that name below the root servable, and reads it. Errors: as `get`; usage for a bad name.
  virtual void add(const std::string& name) = 0;
  // Requests that have it keep it. Errors: not_found.
  virtual void remove(const std::string& name) = 0;
};

// Thread-safe.
class MaskFactory {
 public:
  virtual ~MaskFactory() = default;
  // One for one output. Errors: unsupported, naming the keyword; usage for a schema, grammar or expression that is
  // wrong; resource for one too large. REQUIRES another kind than none.
  virtual std::shared_ptr<infer::TokenMask> mask(const Constraint& constraint) = 0;
};

}  // namespace ingot::server
