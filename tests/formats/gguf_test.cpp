#include "formats/gguf.h"

#include <numeric>

#include "formats/gguf_writer.h"
#include "tests/formats/bytes.h"

namespace ingot::formats {
namespace {

using testing::as_span;
using testing::as_string;
using testing::expect_error;
using testing::Folder;
using testing::golden;
using testing::raw;

std::string text(const std::string& value) { return raw<uint64_t>(value.size()) + value; }

std::string head(uint64_t num_tensors, uint64_t num_items) {
  return "GGUF" + raw<uint32_t>(3) + raw(num_tensors) + raw(num_items);
}

std::string item(const std::string& key, uint32_t type, const std::string& value) {
  return text(key) + raw(type) + value;
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  std::string out = text(name) + raw(static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) out += raw(dim);
  return out + raw(type) + raw(offset);
}

std::string padded(std::string bytes, size_t alignment = 32) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  return bytes;
}

GgufFile open(const std::string& bytes) { return GgufFile(as_span(bytes), "f"); }

void expect_kind(ErrorKind kind, const std::string& bytes, const std::string& part) {
  SCOPED_TRACE(part);
  expect_error(kind, part, [&] { open(bytes); });
}

void expect_corrupt(const std::string& bytes, const std::string& part) { expect_kind(ErrorKind::corrupt, bytes, part); }

// An example of the format (github.com/ggml-org/ggml, docs/gguf.md) with one tensor of four floats.
const std::string example_head = head(1, 2) + item("general.architecture", 8, text("llama")) +
                                 item("general.alignment", 4, raw(32U)) + tensor("output_norm.weight", {4}, 0, 0);
const std::string example = padded(example_head) + raw(0.0F) + raw(1.0F) + raw(2.0F) + raw(3.0F);

TEST(Gguf, ReadsTheWorkedExample) {
  ASSERT_EQ(example_head.size(), 152U);
  ASSERT_EQ(example.size(), 176U);
  const GgufFile file = open(example);
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.metadata().text("general.architecture"), "llama");
  EXPECT_EQ(file.metadata().integer("general.alignment"), 32);
  const GgufTensor& norm = file.at("output_norm.weight");
  EXPECT_EQ(norm.type, GgufType::f32);
  EXPECT_EQ(norm.dims, std::vector<int64_t>{4});
  EXPECT_EQ(as_string(norm.bytes), example.substr(160));
  EXPECT_EQ(file.find("output.weight"), nullptr);
  expect_error(ErrorKind::not_found, "f: no tensor 'output.weight'", [&] { file.at("output.weight"); });
}

TEST(Gguf, ReadsVersion2) {
  std::string bytes = example;
  bytes[4] = 2;
  EXPECT_EQ(open(bytes).version(), 2U);
}

TEST(Gguf, ReadsTheGgufPackagesFile) {
  const GgufFile file(golden("official.gguf"));
  const GgufMetadata& metadata = file.metadata();
  EXPECT_EQ(metadata.at("t.u8"), GgufValue(uint8_t{200}));
  EXPECT_EQ(metadata.at("t.i8"), GgufValue(int8_t{-100}));
  EXPECT_EQ(metadata.at("t.u16"), GgufValue(uint16_t{60000}));
  EXPECT_EQ(metadata.at("t.i16"), GgufValue(int16_t{-30000}));
  EXPECT_EQ(metadata.at("t.u32"), GgufValue(uint32_t{4000000000}));
  EXPECT_EQ(metadata.at("t.i32"), GgufValue(int32_t{-2000000000}));
  EXPECT_EQ(metadata.at("t.f32"), GgufValue(0.5F));
  EXPECT_EQ(metadata.at("t.u64"), GgufValue(uint64_t{9223372036854775813U}));
  EXPECT_EQ(metadata.at("t.i64"), GgufValue(int64_t{-1099511627776}));
  EXPECT_EQ(metadata.at("t.f64"), GgufValue(1e-300));
  EXPECT_TRUE(metadata.boolean("t.bool"));
  EXPECT_EQ(metadata.text("t.string"), "d\xc3\xa9j\xc3\xa0 vu");
  EXPECT_EQ(metadata.texts("t.strings"), (std::vector<std::string>{"a", "", "bcd"}));
  EXPECT_EQ(metadata.integers("t.ints"), (std::vector<int64_t>{1, -2, 3}));
  EXPECT_EQ(metadata.reals("t.floats"), (std::vector<double>{0.25, -1.0}));
  EXPECT_EQ(metadata.at("t.bools"), GgufValue(GgufArray{std::vector<bool>{true, false, true}}));
  EXPECT_EQ(file.alignment(), 64U);

  EXPECT_EQ(file.tensors().size(), 4U);
  const GgufTensor& embedding = file.at("token_embd.weight");
  EXPECT_EQ(embedding.type, GgufType::f16);
  EXPECT_EQ(embedding.dims, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(embedding.shape(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(as_string(embedding.bytes), testing::hex("00 00 00 3c 00 40 00 42 00 44 00 45"));
  const GgufTensor& q = file.at("blk.0.attn_q.weight");
  EXPECT_EQ(q.type, GgufType::q8_0);
  EXPECT_EQ(q.dims, (std::vector<int64_t>{32, 2}));
  EXPECT_EQ(q.bytes.size(), 68U);
  EXPECT_EQ(file.at("cube").shape(), (std::vector<int64_t>{2, 3, 4}));

  EXPECT_TRUE(GgufFile(golden("vocabulary.gguf")).tensors().empty());
}

TEST(Gguf, RewritesTheGgufPackagesFileByteForByte) {
  const Folder folder;
  for (const std::string name : {"official.gguf", "vocabulary.gguf"}) {
    const GgufFile file(golden(name));
    std::vector<GgufDeclaration> declarations;
    for (const GgufTensor& tensor : file.tensors()) declarations.push_back({tensor.name, tensor.type, tensor.dims});
    GgufWriter writer(folder / name, file.metadata(), declarations);
    for (const GgufTensor& tensor : file.tensors()) {
      writer.write(tensor.name, tensor.bytes.subspan(0, 5));
      writer.write(tensor.name, tensor.bytes.subspan(5));
    }
    writer.finish();
    EXPECT_EQ(read_file(folder / name), read_file(golden(name)));
  }
}

TEST(Gguf, GettersConvertValuesThatFit) {
  GgufMetadata metadata("m");
  metadata.add("small", uint8_t{7});
  metadata.add("huge", ~uint64_t{0});
  metadata.add("real", 1.5F);
  metadata.add("flag", true);
  metadata.add("list", GgufArray{std::vector<uint64_t>{1, ~uint64_t{0}}});
  EXPECT_EQ(metadata.integer("small"), 7);
  EXPECT_EQ(metadata.real("small"), 7.0);
  EXPECT_EQ(metadata.integer("none", -3), -3);
  EXPECT_EQ(metadata.real("none", 0.5), 0.5);
  EXPECT_TRUE(metadata.boolean("none", true));
  EXPECT_EQ(metadata.text("none", "x"), "x");
  expect_error(ErrorKind::not_found, "m: no key 'none'", [&] { metadata.integer("none"); });
  expect_error(ErrorKind::corrupt, "m: key 'huge' holds u64, not an integer below 2^63",
               [&] { metadata.integer("huge"); });
  expect_error(ErrorKind::corrupt, "m: key 'real' holds f32, not an integer", [&] { metadata.integer("real", 1); });
  expect_error(ErrorKind::corrupt, "m: key 'flag' holds bool, not an integer", [&] { metadata.integer("flag"); });
  expect_error(ErrorKind::corrupt, "m: key 'flag' holds bool, not a number", [&] { metadata.real("flag"); });
  expect_error(ErrorKind::corrupt, "m: key 'small' holds u8, not a bool", [&] { metadata.boolean("small"); });
  expect_error(ErrorKind::corrupt, "m: key 'small' holds u8, not a string", [&] { metadata.text("small"); });
  expect_error(ErrorKind::corrupt, "m: key 'list' holds a list of u64, not a list of integers below",
               [&] { metadata.integers("list"); });
  expect_error(ErrorKind::corrupt, "m: key 'list' holds a list of u64, not a list of strings",
               [&] { metadata.texts("list"); });
  expect_error(ErrorKind::corrupt, "m: key 'small' holds u8, not a list of numbers", [&] { metadata.reals("small"); });
  expect_error(ErrorKind::corrupt, "m: duplicate key 'small'", [&] { metadata.add("small", 1.0F); });
}

TEST(Gguf, EveryTruncationIsRefused) {
  for (size_t size = 0; size < example.size(); ++size) {
    const std::string cut = example.substr(0, size);
    EXPECT_THROW(open(cut), Error) << size << " bytes";
  }
  const std::string official = read_file(golden("official.gguf"));
  const GgufFile whole(as_span(official), "f");
  const std::span<const std::byte> last = whole.tensors().back().bytes;
  const size_t end = static_cast<size_t>(last.data() - as_span(official).data()) + last.size();
  for (size_t size = 0; size < end; ++size) {
    const std::string cut = official.substr(0, size);
    EXPECT_THROW(open(cut), Error) << size << " bytes";
  }
}

TEST(Gguf, NoChangedByteReadsOutsideTheFile) {
  const std::string official = read_file(golden("official.gguf"));
  for (size_t place = 0; place < official.size(); ++place) {
    for (const char value : {'\0', '\1', '\x08', '\x09', '\x7f', '\x80', '\xff'}) {
      std::string changed = official;
      changed[place] = value;
      try {
        const GgufFile file = open(changed);
        for (const GgufTensor& entry : file.tensors()) {
          EXPECT_LE(entry.bytes.data() + entry.bytes.size(), as_span(changed).data() + changed.size());
        }
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::internal) << "byte " << place;
      }
    }
  }
}

TEST(Gguf, WrongMagicOrVersionIsRefused) {
  expect_corrupt("GGML" + example.substr(4), "f: not a GGUF file: it does not begin with GGUF");
  expect_corrupt("GG", "the magic needs 4 bytes");
  expect_kind(ErrorKind::unsupported, "GGUF" + raw(0x03000000U) + example.substr(8), "f: big-endian GGUF");
  expect_kind(ErrorKind::unsupported, "GGUF" + raw(1U) + example.substr(8), "f: GGUF version 1");
  expect_kind(ErrorKind::unsupported, "GGUF" + raw(4U) + example.substr(8), "f: GGUF version 4");
}

TEST(Gguf, CountsBeyondTheFileAreRefused) {
  expect_corrupt(head(~uint64_t{0}, 0), "the tensor count of 18446744073709551615 is impossible");
  expect_corrupt(head(1, 0), "the tensor count of 1 is impossible");
  expect_corrupt(head(0, uint64_t{1} << 60), "the key-value count of 1152921504606846976 is impossible");
  expect_corrupt(head(0, 1) + item("k", 9, raw(0U) + raw(~uint64_t{0})),
                 "key 'k' of 18446744073709551615 is impossible");
  expect_corrupt(head(0, 1) + item("k", 9, raw(8U) + raw<uint64_t>(1000) + std::string(100, '\0')), "key 'k' of 1000");
  expect_corrupt(head(0, 1) + raw(~uint64_t{0}) + std::string(64, 'k'), "a key needs 18446744073709551615 bytes");
  expect_corrupt(head(0, 1) + item("k", 8, raw(~uint64_t{0})), "key 'k' needs 18446744073709551615 bytes");
}

TEST(Gguf, InvalidValuesAreRefused) {
  expect_kind(ErrorKind::unsupported, head(0, 1) + item("k", 13, "x"), "key 'k' has unknown value type 13");
  expect_kind(ErrorKind::unsupported, head(0, 1) + item("k", 9, raw(13U) + raw<uint64_t>(0)),
              "key 'k' is a list of unknown value type 13");
  expect_kind(ErrorKind::unsupported, head(0, 1) + item("k", 9, raw(9U) + raw<uint64_t>(0)),
              "key 'k' is a list of lists");
  expect_corrupt(head(0, 1) + item("k", 7, "\2"), "key 'k' is a bool with the value 2");
  expect_corrupt(head(0, 1) + item("k", 9, raw(7U) + raw<uint64_t>(2) + "\1\3"), "key 'k' is a bool with the value 3");
  expect_corrupt(head(0, 2) + item("k", 0, "x") + item("k", 0, "x"), "duplicate key 'k'");
}

TEST(Gguf, InvalidAlignmentIsRefused) {
  const auto with = [](uint32_t type, const std::string& value) {
    return head(0, 1) + item("general.alignment", type, value);
  };
  expect_corrupt(with(4, raw(0U)), "general.alignment is 0");
  expect_corrupt(with(4, raw(12U)), "general.alignment is 12");
  expect_corrupt(with(4, raw(0xfffffff8U)), "general.alignment is 4294967288");
  expect_corrupt(with(10, raw<uint64_t>(32)), "general.alignment is u64, not u32");
}

TEST(Gguf, InvalidTensorsAreRefused) {
  const auto with = [](const std::string& info) { return padded(head(1, 0) + info) + std::string(64, 'x'); };
  EXPECT_EQ(open(with(tensor(std::string(64, 'n'), {16}, 0, 0))).tensors().size(), 1U);
  EXPECT_EQ(open(with(tensor("empty", {0, 3}, 0, 64))).at("empty").bytes.size(), 0U);
  expect_corrupt(with(tensor(std::string(65, 'n'), {16}, 0, 0)), "the name has 65 bytes, but the format allows 64");
  expect_corrupt(with(tensor("t", {}, 0, 0)), "f: tensor 't': 0 dimensions");
  expect_corrupt(with(tensor("t", {1, 1, 1, 1, 1}, 0, 0)), "f: tensor 't': 5 dimensions");
  expect_corrupt(with(text("t") + raw(0xffffffffU) + std::string(30, '\0')), "4294967295 dimensions");
  expect_corrupt(with(tensor("t", {uint64_t{1} << 63}, 0, 0)), "a dimension exceeds 2^63");
  expect_corrupt(with(tensor("t", {uint64_t{1} << 32, uint64_t{1} << 31}, 0, 0)),
                 "product of its dimensions overflows");
  expect_corrupt(with(tensor("t", {uint64_t{1} << 62}, 0, 0)), "product of its dimensions overflows");
  expect_kind(ErrorKind::unsupported, with(tensor("t", {16}, 4, 0)), "f: tensor 't': unknown tensor type 4");
  expect_kind(ErrorKind::unsupported, with(tensor("t", {16}, 1000, 0)), "f: tensor 't': unknown tensor type 1000");
  expect_corrupt(with(tensor("t", {33}, 8, 0)), "rows of 33 elements are not a multiple of the Q8_0 block size 32");
  expect_corrupt(with(tensor("t", {8}, 0, 16)), "offset 16 is not a multiple of the alignment 32");
  expect_corrupt(with(tensor("t", {17}, 0, 0)),
                 "tensor 't': needs 68 bytes at offset 0, but the file has 64 bytes of data");
  expect_corrupt(with(tensor("t", {16}, 0, 32)),
                 "tensor 't': needs 64 bytes at offset 32, but the file has 64 bytes of data");
  expect_corrupt(with(tensor("t", {16}, 0, ~uint64_t{31})),
                 "tensor 't': needs 64 bytes at offset 18446744073709551584, but the file has 64 bytes of data");
}

TEST(Gguf, GapsAndOverlapsOfTensorsAreRefused) {
  const auto two = [](const std::string& first, const std::string& second) {
    return padded(head(2, 0) + first + second) + std::string(64, 'x');
  };
  EXPECT_EQ(open(two(tensor("a", {8}, 0, 32), tensor("b", {8}, 0, 0))).tensors()[0].name, "a");
  expect_corrupt(two(tensor("a", {8}, 0, 0), tensor("b", {8}, 0, 0)), "tensors 'a' and 'b' overlap");
  expect_corrupt(two(tensor("a", {9}, 0, 0), tensor("b", {8}, 0, 32)), "tensors 'a' and 'b' overlap");
  expect_corrupt(two(tensor("a", {8}, 0, 0), tensor("a", {8}, 0, 32)), "duplicate tensor 'a'");
}

TEST(GgufType, HasTheFormatsBlockSizes) {
  EXPECT_EQ(gguf_types().size(), 34U);
  EXPECT_EQ(info(GgufType::iq2_xxs).name, "IQ2_XXS");
  EXPECT_EQ(find_gguf_type(4), nullptr);
  EXPECT_EQ(find_gguf_type(42), nullptr);
  EXPECT_EQ(gguf_size(info(GgufType::q6_k), std::vector<int64_t>{512, 3}, "t"), 1260U);
  EXPECT_EQ(gguf_size(info(GgufType::nvfp4), std::vector<int64_t>{64}, "t"), 36U);
}

TEST(GgufWriter, RefusesMisuse) {
  const Folder folder;
  const auto write = [&](std::vector<GgufDeclaration> tensors) {
    GgufWriter(folder / "out", GgufMetadata{}, std::move(tensors));
  };
  expect_error(ErrorKind::internal, "'a': declared twice",
               [&] { write({{"a", GgufType::f32, {1}}, {"a", GgufType::f32, {1}}}); });
  expect_error(ErrorKind::internal, "more than 64 bytes", [&] { write({{std::string(65, 'a'), GgufType::f32, {1}}}); });
  expect_error(ErrorKind::corrupt, "not a multiple of the Q4_K block size",
               [&] { write({{"a", GgufType::q4_k, {32}}}); });
  GgufMetadata odd;
  odd.add("general.alignment", uint32_t{7});
  expect_error(ErrorKind::internal, "general.alignment", [&] { GgufWriter(folder / "out", odd, {}); });

  GgufWriter writer(folder / "out", GgufMetadata{}, {{"a", GgufType::i8, {2}}, {"b", GgufType::i8, {1}}});
  expect_error(ErrorKind::internal, "tensor 'b' was written, but the next one is 'a'",
               [&] { writer.write("b", as_span("x")); });
  expect_error(ErrorKind::internal, "tensor 'a' has 2 bytes, but 1 more were written",
               [&] { writer.write("a", as_span("xyz")); });
  writer.write("a", as_span("xy"));
  expect_error(ErrorKind::internal, "tensor 'b' has only 0 of 1 bytes", [&] { writer.finish(); });
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

// Writes one part of a split model; its only tensor is named after the part.
void write_part(const std::filesystem::path& path, uint16_t part, uint16_t num_parts, const std::string& tensor,
                int32_t num_tensors) {
  GgufMetadata metadata;
  metadata.add("split.no", part);
  metadata.add("split.count", num_parts);
  metadata.add("split.tensors.count", num_tensors);
  GgufWriter writer(path, metadata, {{tensor, GgufType::i8, {1}}});
  writer.write(tensor, as_span(tensor));
  writer.finish();
}

TEST(GgufSet, OpensOneFileOrAllParts) {
  EXPECT_EQ(GgufSet(golden("official.gguf")).tensors().size(), 4U);
  const Folder folder;
  write_part(folder / "m-00001-of-00002.gguf", 0, 2, "b", 2);
  write_part(folder / "m-00002-of-00002.gguf", 1, 2, "a", 2);
  for (const std::string name : {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}) {
    const GgufSet set(folder / name);
    ASSERT_EQ(set.tensors().size(), 2U);
    EXPECT_EQ(set.tensors()[0]->name, "a");
    EXPECT_EQ(as_string(set.at("b").bytes), "b");
    EXPECT_EQ(set.metadata().integer("split.no"), 0);
    EXPECT_EQ(set.find("c"), nullptr);
  }
}

TEST(GgufSet, PartsOfDifferentModelsAreRefused) {
  const Folder folder;
  const std::filesystem::path first = folder / "m-00001-of-00002.gguf";
  const std::filesystem::path second = folder / "m-00002-of-00002.gguf";
  write_part(first, 0, 2, "a", 2);
  expect_error(ErrorKind::not_found, "part 2 of 2 is missing", [&] { GgufSet set(first); });
  write_part(second, 0, 2, "b", 2);
  expect_error(ErrorKind::corrupt, "split.no 0 of 2, expected part 2 of 2", [&] { GgufSet set(first); });
  write_part(second, 1, 2, "a", 2);
  expect_error(ErrorKind::corrupt, "tensor 'a' is in two parts", [&] { GgufSet set(first); });
  write_part(first, 0, 2, "b", 3);
  expect_error(ErrorKind::corrupt, "3 tensors are declared, but the parts hold 2", [&] { GgufSet set(first); });
  std::filesystem::rename(first, folder / "renamed.gguf");
  expect_error(ErrorKind::corrupt, "one of 2 parts, but its name does not end",
               [&] { GgufSet set(folder / "renamed.gguf"); });
}

}  // namespace
}  // namespace ingot::formats
