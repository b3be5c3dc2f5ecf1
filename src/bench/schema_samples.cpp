#include "bench/schema_samples.h"

#include <array>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "grammar/matcher.h"

namespace ingot::bench {

namespace {

// Generates a text from tokens that the masks allow, with each allowed first byte equally likely; absent when it does
// not end within a limit.
std::optional<std::string> sample(const std::shared_ptr<const grammar::TokenGrammar>& tokens,
                                  const grammar::Vocabulary& vocabulary, std::mt19937_64& random) {
  grammar::Matcher matcher(tokens);
  std::vector<uint32_t> mask(vocabulary.num_words());
  std::string text;
  for (int step = 0; step < 400; ++step) {
    if (matcher.finished() || (matcher.may_end() && random() % 3 == 0)) return text;
    matcher.fill_mask(mask);
    std::array<std::vector<int32_t>, 256> by_byte;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const bool in_mask = (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
      if (in_mask && !vocabulary.is_end(id)) by_byte[static_cast<uint8_t>(vocabulary.bytes(id)[0])].push_back(id);
    }
    std::vector<const std::vector<int32_t>*> choices;
    for (const auto& ids : by_byte) {
      if (ids.empty()) continue;
      const bool is_end_of_text =
          ids[0] >= 0 && std::string_view("\"]}").find(vocabulary.bytes(ids[0])[0]) != std::string_view::npos;
      choices.insert(choices.end(), is_end_of_text ? 1 + static_cast<size_t>(step) : 1, &ids);
    }
    if (choices.empty() && matcher.may_end()) return text;
    if (choices.empty()) throw_error(ErrorKind::internal, "the mask allows no token after '{}'", text);
    const std::vector<int32_t>& ids = *choices[random() % choices.size()];
    const int32_t id = ids[random() % ids.size()];
    matcher.accept(id);
    text += vocabulary.bytes(id);
  }
  return std::nullopt;
}

}  // namespace

void sample_schemas(const std::string& file, const std::shared_ptr<const grammar::Vocabulary>& vocabulary,
                    int64_t count, const std::function<void(const SchemaSamples&)>& report) {
  std::istringstream lines(read_file(file));
  std::mt19937_64 random(1);
  for (std::string line; std::getline(lines, line);) {
    SchemaSamples samples;
    try {
      const auto tokens = std::make_shared<const grammar::TokenGrammar>(grammar::compile_json_schema(line), vocabulary);
      samples.texts.emplace();
      for (int64_t i = 0; i < count; ++i) {
        if (const auto text = sample(tokens, *vocabulary, random)) samples.texts->push_back(*text);
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::internal) throw;
      samples.error = std::string(ingot::name(error.kind())) + ": " + error.message();
    }
    report(samples);
  }
}

}  // namespace ingot::bench
