// The jsonl fuzz target, also used by the corpus test: it reads documents and tokenizes them, once skipping bad lines
// and once stopping at the first.
#pragma once

#include "base/error.h"
#include "data/tokenized.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/fuzz/memory_file.h"

namespace ingot::data::fuzz {

inline void read_documents(const std::filesystem::path& path, Format format, OnError on_error) {
  static const auto tokenizer = byte_tokenizer();
  static const auto chat = chat_template();
  DocumentReader reader(path, format, on_error);
  for (Document document; reader.next(document);) {
    try {
      tokenize(document, *tokenizer, &chat);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal || on_error == OnError::stop) throw;
    }
  }
}

// True when every line was accepted.
inline bool read_jsonl(std::span<const std::byte> bytes) {
  const ingot::fuzz::MemoryFile file(bytes);
  bool accepted = false;
  for (const Format format : {Format::automatic, Format::text}) {
    for (const OnError on_error : {OnError::skip, OnError::stop}) {
      try {
        read_documents(file.path(), format, on_error);
        accepted = accepted || (format == Format::automatic && on_error == OnError::stop);
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::internal) throw;
      }
    }
  }
  return accepted;
}

}  // namespace ingot::data::fuzz
