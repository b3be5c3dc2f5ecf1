// Token masks for the server's requests: schemas, grammars and regular expressions are compiled once and cached.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "grammar/matcher.h"
#include "server/served_model.h"

namespace ingot::server {

// Thread-safe. Least-recently-used cache of compiled constraints, limited in number and bytes.
class GrammarMasks : public MaskFactory {
 public:
  static constexpr size_t max_cached = 256;
  static constexpr size_t max_bytes = size_t{512} << 20;  // of the cache; running answers retain their own

  explicit GrammarMasks(std::shared_ptr<const grammar::Vocabulary> vocabulary) : vocabulary_(std::move(vocabulary)) {}

  std::shared_ptr<infer::TokenMask> mask(const Constraint& constraint) override;

 private:
  struct Entry {
    Constraint constraint;
    size_t bytes = 0;  // of its source texts
    std::shared_ptr<const grammar::TokenGrammar> grammar;
  };

  std::shared_ptr<const grammar::TokenGrammar> cached(const Constraint& constraint);
  void insert(Entry entry);

  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  Guarded<std::list<Entry>> cache_;  // most recently used first
};

}  // namespace ingot::server
