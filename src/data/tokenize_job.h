// Text files to a Megatron data set. A job that was stopped or killed goes on where it last noted how far it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/thread_pool.h"
#include "data/source.h"
#include "text/tokenizer.h"

namespace ingot::data {

struct TokenizeJob {
  std::vector<std::filesystem::path> inputs;  // of documents that are text, or tokens already
  Format format = Format::automatic;
  OnError on_error = OnError::stop;
  bool end_of_document = true;   // EOS behind each text
  std::filesystem::path prefix;  // PREFIX.bin and PREFIX.idx are written
  std::string tokenizer;         // what tells it from others, for a job that goes on
};

struct TokenizeTotals {
  int64_t num_files = 0;      // read to their end
  int64_t num_documents = 0;  // written
  int64_t num_tokens = 0;
  int64_t num_skipped = 0;  // bad lines left out in this process (on_error skip)
  std::string first_skipped;
  int64_t resumed_at = 0;  // documents that an earlier process had written
  bool finished = false;
};

// A document is one sequence: its tokens, BOS in front where the tokenizer puts it there, and EOS. The type is what
// Megatron takes for a vocabulary of this size. Records are parsed and tokenized on the pool's threads, which also read
// and write in turns; the result does not depend on their number. `go_on` is asked now and then, on any of them but
// never on two at once, and told how far the job is; when it says no,
// what is done is noted and kept: PREFIX.bin.partial, PREFIX.lengths.partial and PREFIX.progress, which the same job
// takes up again. It is the same when its settings and inputs are: a file of the same size, a remote one of the same
// size and version (ETag) where its server tells them. Errors: usage when the data set exists, or another job's notes
// are in the way; not_found for a remote input that is not there, before anything is read; unsupported for chats and
// instructions, of which a Megatron data set cannot say what counts, and for a tokenizer without EOS; else as
// DocumentReader and MegatronWriter, with file and line.
TokenizeTotals tokenize_files(const TokenizeJob& job, const text::Tokenizer& tokenizer, ThreadPool& pool,
                              FunctionRef<bool(const TokenizeTotals&)> go_on);

}  // namespace ingot::data
