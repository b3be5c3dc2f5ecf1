// What is served: a model, its adapters, and a factory of token masks. The application passes these to the routes.
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
  const text::ChatTemplate* chat = nullptr;  // null: no chat template
  bool allow_special_tokens = false;         // special tokens are recognised in the contents of messages too
  bool tool_call_tags = false;               // its template writes tool calls as <tool_call>{...}</tool_call>
  std::string bos_text, eos_text;
  std::vector<int32_t> eos;
  int64_t context = 0;  // max tokens of prompt and output
  int64_t vocab = 0;
  int64_t longest_token = 0;  // max bytes of text of one token: longest_token_of(tokenizer)
  int64_t hidden = 0;
  std::string fingerprint;  // system_fingerprint: what the output depends on besides the request
};

// Max bytes of text that one token stands for.
int64_t longest_token_of(const text::Tokenizer& tokenizer);

struct AdapterEntry {
  std::string name;
  int64_t created = 0;    // Unix seconds
  int64_t rank = 0;       // 0: not read yet
  bool resident = false;  // in host memory
};

// The adapters that can be requested by name. Thread-safe.
class AdapterList {
 public:
  virtual ~AdapterList() = default;
  virtual std::vector<AdapterEntry> entries() const = 0;  // by name
  virtual bool has(const std::string& name) const = 0;
  // May read files. Errors: not_found, and those of checkpoint::read_adapter.
  virtual std::shared_ptr<const infer::HostAdapter> get(const std::string& name) = 0;
  // Makes the folder of that name below the root available, and reads it. Errors: as `get`; usage for an invalid name.
  virtual void add(const std::string& name) = 0;
  // Requests in flight keep it. Errors: not_found.
  virtual void remove(const std::string& name) = 0;
};

// Makes token masks for guided decoding. Thread-safe.
class MaskFactory {
 public:
  virtual ~MaskFactory() = default;
  // A mask for one output. Errors: unsupported, naming the keyword; usage for an invalid schema, grammar or expression;
  // resource for one that is too large. REQUIRES a kind other than none.
  virtual std::shared_ptr<infer::TokenMask> mask(const Constraint& constraint) = 0;
};

}  // namespace ingot::server
