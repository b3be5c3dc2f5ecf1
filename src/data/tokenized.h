// Converts documents to tokens and loss masks.
//
//   text         the text and EOS; all tokens are in the loss
//   completion   the prompt, masked; then the completion and EOS, in the loss
//   instruction  with a chat template: a chat of one user message (the instruction, and the input below it after an
//                empty line) and one assistant message; without one: Alpaca's prompt (with the input's section only if
//                there is an input), masked; then the output and EOS, in the loss
//   tokens       as in the file; nothing is added
//   chat         the chat template's output. In the loss: the assistant's messages, including tool calls, and the
//                token that ends its turn, except for turns with "weight": 0. Tool results are not in the loss
//
// Text from the data (texts, prompts, completions and messages) is never parsed as special tokens; text from a chat
// template is. BOS is added at the start if the tokenizer adds it; in a chat, only the template determines where it is.
// A template that writes the current date gets a fixed date, so that the tokens do not depend on when a run starts.
// Prompt and answer are tokenized separately, as are the masked and unmasked spans of a chat: the tokens are then the
// same as when the model generates the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "data/corpus.h"
#include "data/source.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ingot::data {

// The date passed to templates that write the current date, in seconds since 1970: 26 July 2024 UTC, the default date
// of Llama 3's templates.
constexpr int64_t template_date = 1721952000;

// Encodes data text at the start of a document: with BOS if the tokenizer adds it, without EOS, and without parsing
// special tokens in the text.
std::vector<int32_t> encode_start(std::string_view text, const text::Tokenizer& tokenizer);

// Encodes a chat of one user message, up to where the assistant's answer begins. Errors: as ChatTemplate::render.
std::vector<int32_t> encode_question(std::string_view text, const text::Tokenizer& tokenizer,
                                     const text::ChatTemplate& chat_template);

// Errors: usage for a chat without a chat template; unsupported when EOS is needed and the tokenizer has none; corrupt
// for tokens outside the vocabulary and when the template rejects the messages; else as ChatTemplate::render_spans.
TokenizedDocument tokenize(const Document& document, const text::Tokenizer& tokenizer,
                           const text::ChatTemplate* chat_template);

struct TokenizeReport {
  int64_t num_documents = 0;  // added to the corpus
  int64_t num_skipped = 0;    // bad lines and rejected chats that were skipped (on_error skip)
  std::string first_skipped;  // why the first bad line, or else the first rejected chat, was skipped
};

// Adds all documents of `reader` to the corpus in order, tokenized on the pool's threads. Errors: as the reader and
// tokenize, the latter prefixed with file and line.
TokenizeReport tokenize_all(Corpus& corpus, DocumentReader& reader, const text::Tokenizer& tokenizer,
                            const text::ChatTemplate* chat_template, OnError on_error, ThreadPool& pool);

}  // namespace ingot::data
