#include "text/sentencepiece_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace ingot::text {
namespace {

// Field numbers and defaults of ModelProto and its parts.
enum ModelField : uint32_t { field_piece = 1, field_trainer = 2, field_normalizer = 3 };
enum PieceField : uint32_t { piece_text = 1, piece_score = 2, piece_type = 3 };
enum TrainerField : uint32_t {
  trainer_model_type = 3,
  trainer_space_suffix = 24,
  trainer_byte_fallback = 35,
  trainer_unk_piece = 45,
  trainer_bos_piece = 46,
  trainer_eos_piece = 47,
  trainer_pad_piece = 48,
};
enum NormalizerField : uint32_t {
  normalizer_charsmap = 2,
  normalizer_dummy_prefix = 3,
  normalizer_remove_extra = 4,
  normalizer_escape = 5,
};
enum ModelType : uint64_t { type_unigram = 1, type_bpe = 2, type_word = 3, type_char = 4 };

// One field of a message. Groups (wire types 3 and 4) are obsolete.
struct Field {
  uint32_t number = 0;
  uint32_t wire = 0;       // 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes
  uint64_t value = 0;      // of wire type 0
  std::string_view bytes;  // of the other wire types
};

class MessageReader {
 public:
  MessageReader(std::string_view bytes, std::string_view name) : rest_(bytes), name_(name) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t tag = varint();
    field.number = static_cast<uint32_t>(tag >> 3);
    field.wire = static_cast<uint32_t>(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 > (1u << 29)) bad();
    switch (field.wire) {
      case 0: field.value = varint(); break;
      case 1: field.bytes = take(8); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.bytes = take(4); break;
      default: bad();
    }
    return true;
  }

  [[noreturn]] void bad() const {
    throw_hint(ErrorKind::corrupt, "the file may be truncated, or not a SentencePiece model",
               "{}: this is not a SentencePiece model", name_);
  }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    bad();
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) bad();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
  std::string_view name_;
};

uint64_t varint_of(const Field& field, const MessageReader& reader) {
  if (field.wire != 0) reader.bad();
  return field.value;
}

std::string_view bytes_of(const Field& field, const MessageReader& reader) {
  if (field.wire != 2) reader.bad();
  return field.bytes;
}

void read_piece(std::string_view bytes, VocabularySpec& vocabulary) {
  std::string text;
  float score = 0;
  uint64_t type = 1;
  MessageReader reader(bytes, vocabulary.name);
  for (Field field; reader.next(field);) {
    if (field.number == piece_text) text = bytes_of(field, reader);
    if (field.number == piece_type) type = varint_of(field, reader);
    if (field.number == piece_score) {
      if (field.wire != 5) reader.bad();
      std::memcpy(&score, field.bytes.data(), sizeof(score));
    }
  }
  vocabulary.tokens.push_back(std::move(text));
  vocabulary.scores.push_back(score);
  vocabulary.token_types.push_back(static_cast<int32_t>(std::min<uint64_t>(type, INT32_MAX)));
}

struct TrainerSettings {
  uint64_t model_type = type_unigram;
  bool space_suffix = false;
  std::string bos = "<s>", eos = "</s>", pad = "<pad>";
};

TrainerSettings read_trainer(std::string_view bytes, std::string_view name) {
  TrainerSettings settings;
  MessageReader reader(bytes, name);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case trainer_model_type: settings.model_type = varint_of(field, reader); break;
      case trainer_space_suffix: settings.space_suffix = varint_of(field, reader) != 0; break;
      case trainer_bos_piece: settings.bos = bytes_of(field, reader); break;
      case trainer_eos_piece: settings.eos = bytes_of(field, reader); break;
      case trainer_pad_piece: settings.pad = bytes_of(field, reader); break;
      default: break;
    }
  }
  return settings;
}

void read_normalizer(std::string_view bytes, VocabularySpec& vocabulary) {
  MessageReader reader(bytes, vocabulary.name);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case normalizer_charsmap: vocabulary.charsmap = bytes_of(field, reader); break;
      case normalizer_dummy_prefix: vocabulary.add_space_prefix = varint_of(field, reader) != 0; break;
      case normalizer_remove_extra: vocabulary.remove_extra_whitespaces = varint_of(field, reader) != 0; break;
      case normalizer_escape:
        if (varint_of(field, reader) != 0) break;
        throw_error(ErrorKind::unsupported, "{}: a SentencePiece model that does not escape spaces is not supported",
                    vocabulary.name);
      default: break;
    }
  }
}

class MessageWriter {
 public:
  void put(uint32_t number, uint64_t value) {
    varint(number << 3);
    varint(value);
  }
  void put(uint32_t number, float value) {
    varint(number << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void put(uint32_t number, std::string_view value) {
    varint(number << 3 | 2);
    varint(value.size());
    bytes_.append(value);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

}  // namespace

VocabularySpec parse_sentencepiece(std::string_view bytes, std::string_view name) {
  VocabularySpec vocabulary;
  vocabulary.name = name;
  vocabulary.user_defined_inside = true;
  vocabulary.add_space_prefix = true;
  vocabulary.remove_extra_whitespaces = true;
  TrainerSettings trainer;
  MessageReader reader(bytes, name);
  for (Field field; reader.next(field);) {
    switch (field.number) {
      case field_piece: read_piece(bytes_of(field, reader), vocabulary); break;
      case field_trainer: trainer = read_trainer(bytes_of(field, reader), name); break;
      case field_normalizer: read_normalizer(bytes_of(field, reader), vocabulary); break;
      default: break;
    }
  }
  if (vocabulary.tokens.empty()) reader.bad();
  if (trainer.model_type != type_unigram && trainer.model_type != type_bpe) {
    throw_hint(ErrorKind::unsupported, "supported: unigram and BPE", "{}: the SentencePiece model type {} is not known",
               name,
               trainer.model_type == type_word   ? "WORD"
               : trainer.model_type == type_char ? "CHAR"
                                                 : std::to_string(trainer.model_type));
  }
  if (trainer.space_suffix) {
    throw_error(ErrorKind::unsupported, "{}: a SentencePiece model with white space after words is not supported",
                name);
  }
  vocabulary.model = trainer.model_type == type_bpe ? "llama" : "t5";
  const auto id_of = [&](const std::string& token) -> std::optional<int32_t> {
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
    if (found == vocabulary.tokens.end()) return std::nullopt;
    return static_cast<int32_t>(found - vocabulary.tokens.begin());
  };
  vocabulary.bos_id = id_of(trainer.bos);
  vocabulary.eos_id = id_of(trainer.eos);
  vocabulary.pad_id = id_of(trainer.pad);
  const auto unknown = std::find(vocabulary.token_types.begin(), vocabulary.token_types.end(), token_unknown);
  if (unknown != vocabulary.token_types.end()) {
    vocabulary.unk_id = static_cast<int32_t>(unknown - vocabulary.token_types.begin());
  }
  return vocabulary;
}

std::string write_sentencepiece(const VocabularySpec& vocabulary) {
  const auto has_type = [&](int32_t type) {
    return std::find(vocabulary.token_types.begin(), vocabulary.token_types.end(), type) !=
           vocabulary.token_types.end();
  };
  MessageWriter trainer, normalizer, model;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    MessageWriter piece;
    piece.put(piece_text, vocabulary.tokens[id]);
    piece.put(piece_score, vocabulary.scores[id]);
    piece.put(piece_type, static_cast<uint64_t>(vocabulary.token_types[id]));
    model.put(field_piece, piece.bytes());
    if (vocabulary.token_types[id] == token_unknown) trainer.put(trainer_unk_piece, vocabulary.tokens[id]);
  }
  const bool bpe = vocabulary.model == "llama";
  trainer.put(trainer_model_type, uint64_t{bpe ? type_bpe : type_unigram});
  trainer.put(trainer_byte_fallback, uint64_t{has_type(token_byte)});
  normalizer.put(normalizer_charsmap, vocabulary.charsmap);
  normalizer.put(normalizer_dummy_prefix, uint64_t{vocabulary.add_space_prefix.value_or(true)});
  normalizer.put(normalizer_remove_extra, uint64_t{vocabulary.remove_extra_whitespaces.value_or(!bpe)});
  model.put(field_trainer, trainer.bytes());
  model.put(field_normalizer, normalizer.bytes());
  return model.bytes();
}

}  // namespace ingot::text
