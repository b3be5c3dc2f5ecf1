// Documents to tokens and loss marks.
//
//   text         the text; every token counts, and the document's end token (EOS) is added and counts
//   completion   the prompt, masked; then the completion and EOS, which count
//   instruction  with a chat template: a chat of one user message (the instruction, and the input below it after an
//                empty line) and one assistant message; without: Alpaca's prompt (the input's section only when there
//                is one), masked; then the output and EOS, which count
//   tokens       as the file has them; none is added
//   chat         the chat template's output; what assistants say, their tool calls included, and the token that ends
//                their turn count, in every turn but those with "weight": 0; what tools answer does not
//
// What people wrote, in texts, prompts, completions and messages, is never read as special tokens; what a chat template
// writes is.
// BOS comes in front where the tokenizer puts it there; in a chat the template alone says where it stands. A template
// that writes today's date gets one fixed date, so that the tokens do not depend on when a run starts.
// Prompt and answer are tokenized apart, and so are the counted and the other stretches of a chat: as they are when the
// model generates the answer.
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

// What a template that writes today's date is given, in seconds since 1970: 26 July 2024 UTC, the day that Llama 3's
// templates fall back to.
constexpr int64_t template_date = 1721952000;

// What people wrote, at the start of a document: BOS where the tokenizer wants it, no EOS, and no special tokens found
// in the text.
std::vector<int32_t> encode_start(std::string_view text, const text::Tokenizer& tokenizer);

// A chat of one user message, up to where the assistant's answer begins. Errors: as ChatTemplate::render.
std::vector<int32_t> encode_question(std::string_view text, const text::Tokenizer& tokenizer,
                                     const text::ChatTemplate& chat_template);

// Errors: usage for a chat without a chat template; unsupported when the tokenizer has no EOS and one is needed;
// corrupt for tokens that are not in the vocabulary and when the template refuses the messages; else as
// ChatTemplate::render_spans.
TokenizedDocument tokenize(const Document& document, const text::Tokenizer& tokenizer,
                           const text::ChatTemplate* chat_template);

struct TokenizeReport {
  int64_t num_documents = 0;  // added
  int64_t num_skipped = 0;    // bad lines and refused chats left out (on_error skip)
  std::string first_skipped;  // why the first bad line was, or else the first refused chat
};

// Adds all documents of `reader` to the corpus, in their order, tokenized on the pool's threads.
// Errors: as the reader and tokenize, the latter with file and line in front.
TokenizeReport tokenize_all(Corpus& corpus, DocumentReader& reader, const text::Tokenizer& tokenizer,
                            const text::ChatTemplate* chat_template, OnError on_error, ThreadPool& pool);

}  // namespace ingot::data
