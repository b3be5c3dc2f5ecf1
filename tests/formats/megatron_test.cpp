#include "formats/megatron.h"

#include "tests/formats/bytes.h"
#include "tests/locations.h"

namespace ingot::formats {
namespace {

using testing::as_span;
using testing::as_string;
using testing::expect_error;
using testing::Folder;
using testing::raw;

const std::vector<MegatronDtype> dtypes = {MegatronDtype::u8,  MegatronDtype::i8,  MegatronDtype::i16,
                                           MegatronDtype::i32, MegatronDtype::i64, MegatronDtype::f64,
                                           MegatronDtype::f32, MegatronDtype::u16};

// The documents of tools/reference/make_megatron_golden.py: lists of sequences.
const std::vector<std::vector<std::vector<int32_t>>> documents = {
    {{10, 11, 12, 0}, {20}}, {{}}, {}, {{30, 31, 127, 33, 34, 0}}, {{40, 0}}};

std::filesystem::path golden(const std::string& name) { return std::filesystem::path(test_data) / "megatron" / name; }

std::vector<int32_t> all(const MegatronFile& file, int64_t sequence) {
  std::vector<int32_t> tokens(static_cast<size_t>(file.length(sequence)));
  file.read(sequence, 0, tokens);
  return tokens;
}

TEST(Megatron, ReadsMegatronsFiles) {
  for (const MegatronDtype dtype : dtypes) {
    const MegatronFile file(golden(name(dtype)));
    EXPECT_EQ(file.dtype(), dtype);
    EXPECT_EQ(file.num_documents(), 5);
    EXPECT_EQ(file.num_sequences(), 5);
    EXPECT_EQ(file.num_tokens(), 13);
    int64_t sequence = 0;
    for (size_t d = 0; d < documents.size(); ++d) {
      EXPECT_EQ(file.first_sequence(static_cast<int64_t>(d)), sequence);
      for (const std::vector<int32_t>& tokens : documents[d]) {
        EXPECT_EQ(file.length(sequence), std::ssize(tokens));
        EXPECT_EQ(file.bytes(sequence).size(), tokens.size() * item_size(dtype));
        if (holds_tokens(dtype)) {
          EXPECT_EQ(all(file, sequence), tokens);
        }
        ++sequence;
      }
    }
  }
  expect_error(ErrorKind::unsupported, "holds float32 values", [] { all(MegatronFile(golden("float32")), 0); });
}

TEST(Megatron, WritesMegatronsFiles) {
  const Folder folder;
  for (const MegatronDtype dtype : dtypes) {
    const std::filesystem::path prefix = folder / name(dtype);
    if (!holds_tokens(dtype)) {
      expect_error(ErrorKind::internal, "tokens as float", [&] { MegatronWriter(prefix, dtype); });
      continue;
    }
    MegatronWriter writer(prefix, dtype);
    for (const auto& sequences : documents) {
      for (const std::vector<int32_t>& tokens : sequences) writer.add_sequence(tokens);
      writer.end_document();
    }
    EXPECT_FALSE(is_megatron(prefix));
    writer.finish();
    EXPECT_TRUE(is_megatron(prefix));
    for (const char* suffix : {".idx", ".bin"}) {
      EXPECT_EQ(read_file(prefix.string() + suffix), read_file(golden(name(dtype)).string() + suffix)) << name(dtype);
    }
  }
}

TEST(Megatron, ContinuesAPartialFile) {
  const Folder folder;
  const std::filesystem::path whole = folder / "whole", parts = folder / "parts";
  {
    MegatronWriter writer(whole, MegatronDtype::u16);
    for (const auto& tokens : {std::vector<int32_t>{1, 2, 3}, {4}, {65535, 6}}) {
      writer.add_sequence(tokens);
      writer.end_document();
    }
    expect_error(ErrorKind::corrupt, "token 0 of sequence 3 is 65536", [&] { writer.add_sequence(std::array{65536}); });
    writer.finish();
  }
  {
    MegatronWriter writer(parts, MegatronDtype::u16, {});
    writer.add_sequence(std::array{1, 2, 3});
    writer.end_document();
    writer.add_sequence(std::array{99});  // lost: it was written after the last progress note
  }
  expect_error(ErrorKind::corrupt, "has 8 of the 10 bytes", [&] { MegatronWriter(parts, MegatronDtype::u16, {3, 2}); });
  {
    MegatronWriter writer(parts, MegatronDtype::u16, {3});
    expect_error(ErrorKind::unavailable, "another process", [&] { MegatronWriter(parts, MegatronDtype::u16, {3}); });
    writer.add_sequence(std::array{4});
    writer.end_document();
    writer.add_sequence(std::array{65535, 6});
    expect_error(ErrorKind::internal, "not ended", [&] { writer.finish(); });
    writer.end_document();
    writer.finish();
  }
  for (const char* suffix : {".idx", ".bin"}) {
    EXPECT_EQ(read_file(parts.string() + suffix), read_file(whole.string() + suffix));
  }
}

TEST(Megatron, FindsFilesAndDtypesByName) {
  EXPECT_EQ(megatron_prefix("a/b.idx"), "a/b");
  EXPECT_EQ(megatron_prefix("a/b.bin"), "a/b");
  EXPECT_EQ(megatron_prefix("a/b.v1"), "a/b.v1");
  EXPECT_TRUE(is_megatron(golden("int32.idx")));
  EXPECT_FALSE(is_megatron(golden("order.json")));
  EXPECT_EQ(megatron_dtype(65499), MegatronDtype::u16);
  EXPECT_EQ(megatron_dtype(65500), MegatronDtype::i32);
}

// A worked example of the format: four documents of int32.
struct Example {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t code = 4;
  uint64_t sequences = 4, entries = 5;
  std::vector<int32_t> lengths = {4, 3, 6, 2};
  std::vector<int64_t> offsets = {0, 16, 28, 52}, documents = {0, 1, 2, 3, 4};
  std::string more;
  size_t tokens = 60;

  std::string index() const {
    std::string text = magic + raw(version) + raw(code) + raw(sequences) + raw(entries);
    for (const int32_t length : lengths) text += raw(length);
    for (const int64_t offset : offsets) text += raw(offset);
    for (const int64_t document : documents) text += raw(document);
    return text + more;
  }
};

void refused(ErrorKind kind, const std::string& part, const Example& example) {
  const std::string index = example.index(), tokens(example.tokens, '\0');
  expect_error(kind, part, [&] { MegatronFile(as_span(index), as_span(tokens), "x"); });
}

TEST(Megatron, RefusesIncompleteFiles) {
  const std::string whole = Example{}.index();
  EXPECT_EQ(whole.size(), 122U);
  const std::string tokens(60, '\0');
  EXPECT_EQ(MegatronFile(as_span(whole), as_span(tokens), "x").num_documents(), 4);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    expect_error(ErrorKind::corrupt, "x.idx: ", [&] { MegatronFile(as_span(cut), as_span(tokens), "x"); });
  }
  refused(ErrorKind::corrupt, "not a Megatron index", {.magic = std::string("MMIDIDX\1\0", 9)});
  refused(ErrorKind::unsupported, "TNTIDX", {.magic = std::string("TNTIDX\0\0\0", 9)});
  refused(ErrorKind::unsupported, "version 2", {.version = 2});
  refused(ErrorKind::corrupt, "dtype code 0", {.code = 0});
  refused(ErrorKind::corrupt, "dtype code 9", {.code = 9});
  refused(ErrorKind::corrupt, "sequences of 18446744073709551615 is impossible", {.sequences = UINT64_MAX});
  refused(ErrorKind::corrupt, "entries of 2305843009213693952 is impossible", {.entries = uint64_t{1} << 61});
  refused(ErrorKind::corrupt, "sequence 1 has a length of -1", {.lengths = {4, -1, 6, 2}});
  refused(ErrorKind::corrupt, "sequence 2 begins at byte 27, but those before it end at 28",
          {.offsets = {0, 16, 27, 52}});
  refused(ErrorKind::corrupt, "sequence 0 begins at byte -9", {.offsets = {-9, 16, 28, 52}});
  refused(ErrorKind::corrupt, "document entry 0 is 1", {.documents = {1, 1, 2, 3, 4}});
  refused(ErrorKind::corrupt, "document entry 2 is 0 after 1", {.documents = {0, 1, 0, 3, 4}});
  refused(ErrorKind::corrupt, "have 3 sequences, but there are 4", {.documents = {0, 1, 2, 3, 3}});
  refused(ErrorKind::corrupt, "have 5 sequences, but there are 4", {.documents = {0, 1, 2, 3, 5}});
  refused(ErrorKind::corrupt, "1 unexpected bytes after the documents", {.more = "x"});
  refused(ErrorKind::unsupported, "is multimodal", {.more = "xxxx"});
  refused(ErrorKind::corrupt, "x.bin: has 59 bytes, but sequence 3 ends at 60", {.tokens = 59});
  refused(ErrorKind::corrupt, "x.bin: has 61 bytes, but the 4 sequences", {.tokens = 61});
  refused(ErrorKind::corrupt, "no document entries",
          {.sequences = 0, .entries = 0, .lengths = {}, .offsets = {}, .documents = {}});
  expect_error(ErrorKind::unsupported, "is multimodal", [] { MegatronFile(golden("multimodal")); });
  expect_error(ErrorKind::not_found, "none.idx", [] { MegatronFile(golden("none.bin")); });
}

TEST(Megatron, RefusesValuesThatAreNoTokens) {
  const std::string index = Example{}.index();
  std::string tokens;
  for (int32_t i = 0; i < 15; ++i) tokens += raw(i == 6 ? -7 : i);
  const MegatronFile file(as_span(index), as_span(tokens), "x");
  EXPECT_EQ(all(file, 0), (std::vector<int32_t>{0, 1, 2, 3}));
  expect_error(ErrorKind::corrupt, "x.bin: token 2 of sequence 1 is -7", [&] { all(file, 1); });
  EXPECT_EQ(as_string(file.bytes(3)), raw(13) + raw(14));
}

TEST(Megatron, AnEmptyDataSetIsValid) {
  const Folder folder;
  MegatronWriter(folder / "none", MegatronDtype::i32).finish();
  const MegatronFile file(folder / "none.idx");
  EXPECT_EQ(file.num_sequences(), 0);
  EXPECT_EQ(file.num_documents(), 0);
  EXPECT_EQ(file.num_tokens(), 0);
}

}  // namespace
}  // namespace ingot::formats
