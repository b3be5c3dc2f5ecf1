#include "formats/safetensors.h"

#include <set>

#include "formats/safetensors_writer.h"
#include "tests/formats/bytes.h"

namespace ingot::formats {
namespace {

using testing::as_span;
using testing::as_string;
using testing::expect_error;
using testing::Folder;
using testing::golden;
using testing::raw;

// A file with this header (unpadded) and these data.
std::string file_of(const std::string& header, const std::string& data = "") {
  return raw<uint64_t>(header.size()) + header + data;
}

SafetensorsFile open(const std::string& bytes) { return SafetensorsFile(as_span(bytes), "f"); }

void expect_corrupt(const std::string& bytes, const std::string& part) {
  SCOPED_TRACE(part);
  expect_error(ErrorKind::corrupt, part, [&] { open(bytes); });
}

// A worked example of the format, byte by byte.
const std::string example_header =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]}}  )";
const std::string example_data = raw(1.0F) + raw(-2.0F) + std::string("\x01\x02\x03\x04\x05\x06");
const std::string example = testing::hex("90 00 00 00 00 00 00 00") + example_header + example_data;

TEST(Safetensors, ReadsTheWorkedExample) {
  ASSERT_EQ(example.size(), 166U);
  const SafetensorsFile file = open(example);
  ASSERT_EQ(file.entries().size(), 2U);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  const TensorEntry& b = file.at("b");
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_EQ(b.shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(as_string(b.bytes), "\x01\x02\x03\x04\x05\x06");
  EXPECT_EQ(as_string(file.at("a").bytes), raw(1.0F) + raw(-2.0F));
  EXPECT_EQ(file.find("c"), nullptr);
  expect_error(ErrorKind::not_found, "f: no tensor 'c'", [&] { file.at("c"); });
}

TEST(Safetensors, WritesTheWorkedExample) {
  const Folder folder;
  SafetensorsWriter writer(folder / "out", {{"b", "BF16", {1, 3}}, {"a", "F32", {2}}});
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  writer.write("a", as_span(raw(1.0F)));
  writer.write("a", as_span(raw(-2.0F)));
  writer.write("b", as_span("\x01\x02\x03\x04\x05\x06"));
  writer.finish();
  EXPECT_EQ(read_file(folder / "out"), example);
}

TEST(Safetensors, RewritesTheOfficialFileByteForByte) {
  const SafetensorsFile file(golden("official.safetensors"));
  EXPECT_EQ(file.entries().size(), 19U);
  EXPECT_EQ(file.at("a.scalar").shape, std::vector<int64_t>{});
  EXPECT_EQ(as_string(file.at("a.scalar").bytes), raw(3.0F));
  EXPECT_EQ(file.at("empty").shape, (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(file.at("empty").bytes.empty());
  EXPECT_EQ(as_string(file.at("quote \" and \xc3\xa9 \t").bytes), "\x07");
  EXPECT_EQ(file.at("z.float8_e4m3fn").dtype, "F8_E4M3");

  std::vector<TensorDeclaration> declarations;
  for (const TensorEntry& entry : file.entries()) declarations.push_back({entry.name, entry.dtype, entry.shape});
  std::reverse(declarations.begin(), declarations.end());
  const Folder folder;
  SafetensorsWriter writer(folder / "out", declarations, file.metadata());
  for (const TensorDeclaration& tensor : writer.layout()) writer.write(tensor.name, file.at(tensor.name).bytes);
  writer.finish();
  EXPECT_EQ(read_file(folder / "out"), read_file(golden("official.safetensors")));
}

TEST(Safetensors, ReadsAFileWithoutTensorsOrMetadata) {
  EXPECT_TRUE(SafetensorsFile(golden("no_tensors.safetensors")).entries().empty());
  const Folder folder;
  SafetensorsWriter writer(folder / "out", {}, {});
  writer.finish();
  EXPECT_EQ(read_file(folder / "out"), read_file(golden("no_tensors.safetensors")));
}

TEST(Safetensors, KnowsTheFormatsDtypes) {
  EXPECT_EQ(safetensors_bits("F32"), 32);
  EXPECT_EQ(safetensors_bits("C64"), 64);
  EXPECT_EQ(safetensors_bits("F6_E2M3"), 6);
  EXPECT_EQ(safetensors_bits("f32"), 0);
  const std::vector<int64_t> four = {4};
  const std::vector<int64_t> three = {3};
  EXPECT_EQ(safetensors_size("F6_E2M3", four, "t"), 3U);
  expect_error(ErrorKind::corrupt, "t: its 18 bits are not a whole number of bytes",
               [&] { safetensors_size("F6_E2M3", three, "t"); });
}

TEST(Safetensors, EveryTruncationIsRefused) {
  for (size_t size = 0; size < example.size(); ++size) {
    const std::string cut = example.substr(0, size);
    EXPECT_THROW(open(cut), Error) << size << " bytes";
  }
  expect_corrupt("", "f: 0 bytes are too few");
  expect_corrupt(example.substr(0, 100), "header of 144 bytes in a file of 100");
  expect_corrupt(example.substr(0, 160), "f: tensor 'b': ends at byte 14, but the file has 8 bytes of data");
}

TEST(Safetensors, NoChangedByteOfTheHeaderReadsOutsideTheFile) {
  for (size_t place = 0; place < 8 + example_header.size(); ++place) {
    for (const char value : {'\0', '\1', '"', '9', '{', '}', '[', ',', '\x7f', '\x80', '\xff'}) {
      std::string changed = example;
      changed[place] = value;
      try {
        const SafetensorsFile file = open(changed);
        size_t total = 0;
        for (const TensorEntry& entry : file.entries()) total += entry.bytes.size();
        EXPECT_EQ(total, example_data.size());
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::internal);
      }
    }
  }
}

TEST(Safetensors, AbsurdHeaderSizesAreRefused) {
  expect_corrupt(raw<uint64_t>(100'000'001) + "{}", "header of 100000001 bytes, more than the 100000000");
  expect_corrupt(raw<uint64_t>(~uint64_t{0}) + "{}", "more than the 100000000");
  expect_corrupt(raw<uint64_t>(3) + "{}", "header of 3 bytes in a file of 10");
  expect_corrupt(raw<uint64_t>(0), "does not begin with '{'");
}

TEST(Safetensors, HeadersThatAreNotJsonAreRefused) {
  expect_corrupt(file_of(" {}"), "does not begin with '{'");
  expect_corrupt(file_of("[]"), "does not begin with '{'");
  expect_corrupt(file_of("{"), "not valid UTF-8 JSON");
  expect_corrupt(file_of("{}}"), "not valid UTF-8 JSON");
  expect_corrupt(file_of("{} x"), "not valid UTF-8 JSON");
  expect_corrupt(file_of(std::string("{}\0\0", 4)), "zero byte");
  expect_corrupt(file_of("{\"\xff\":{}}"), "not valid UTF-8 JSON");
  expect_corrupt(file_of("{\"a\": //\n{}}"), "not valid UTF-8 JSON");
  expect_corrupt(file_of("{" + std::string(100'000, '[')), "not valid UTF-8 JSON");
  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  expect_corrupt(file_of(deep), "unknown key 'a'");
}

TEST(Safetensors, WrongJsonTypesAreRefused) {
  expect_corrupt(file_of(R"({"a":1})"), "'a' is a number, not an object");
  expect_corrupt(file_of(R"({"a":null})"), "'a' is null, not an object");
  expect_corrupt(file_of(R"({"a":[]})"), "'a' is a list, not an object");
  expect_corrupt(file_of(R"({"__metadata__":{"k":1}})"), "'k' in __metadata__ is a number, not a string");
  expect_corrupt(file_of(R"({"__metadata__":"k"})"), "'__metadata__' is a string, not an object");
  expect_corrupt(file_of(R"({"a":{"dtype":1}})"), "tensor 'a': dtype is a number, not a string");
  expect_corrupt(file_of(R"({"a":{"shape":"x"}})"), "tensor 'a': shape is a string, not a list");
  expect_corrupt(file_of(R"({"a":{"shape":[1.0]}})"), "tensor 'a': shape holds a number that is not a 64-bit integer");
  expect_corrupt(file_of(R"({"a":{"shape":[-1]}})"), "tensor 'a': shape holds a negative number");
  expect_corrupt(file_of(R"({"a":{"shape":[true]}})"), "tensor 'a': shape holds a boolean");
  expect_corrupt(file_of(R"({"a":{"shape":[[1]]}})"), "tensor 'a': shape holds a list");
  expect_corrupt(file_of(R"({"a":{"shape":[18446744073709551615]}})"), "dimension 18446744073709551615 is too large");
  expect_corrupt(file_of(R"({"a":{"shape":[18446744073709551616]}})"), "not a 64-bit integer");
  expect_corrupt(file_of(R"({"a":{"data_offsets":[0]}})"), "data_offsets has fewer than two numbers");
  expect_corrupt(file_of(R"({"a":{"data_offsets":[0,1,2]}})"), "data_offsets has more than two numbers");
  expect_corrupt(file_of(R"({"a":{"stride":[1]}})"), "tensor 'a': unknown key 'stride'");
  expect_corrupt(file_of(R"({"a":{"dtype":"F32","shape":[0]}})"), "tensor 'a': no data_offsets");
  expect_corrupt(file_of(R"({"a":{"dtype":"F32","data_offsets":[0,0]}})"), "tensor 'a': no shape");
  expect_corrupt(file_of(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"), "tensor 'a': no dtype");
}

TEST(Safetensors, DuplicateKeysAreRefused) {
  const std::string empty = R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  expect_corrupt(file_of("{\"a\":" + empty + ",\"a\":" + empty + "}"), "duplicate key 'a' in the header");
  expect_corrupt(file_of("{\"a\":" + empty + ",\"\\u0061\":" + empty + "}"), "duplicate key 'a' in the header");
  expect_corrupt(file_of(R"({"__metadata__":{},"__metadata__":{}})"), "duplicate key '__metadata__'");
  expect_corrupt(file_of(R"({"__metadata__":{"k":"1","k":"1"}})"), "duplicate key 'k' in __metadata__");
  expect_corrupt(file_of(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "tensor 'a': duplicate key dtype");
}

TEST(Safetensors, OffsetsMustCoverTheData) {
  const auto two = [](const std::string& a, const std::string& b) {
    return file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                       R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                   "01234567");
  };
  EXPECT_EQ(as_string(open(two("[4,8]", "[0,4]")).at("a").bytes).size(), 4U);
  expect_corrupt(two("[0,4]", "[3,7]"), "tensor 'b': begins at 3 and overlaps");
  expect_corrupt(two("[0,4]", "[0,4]"), "overlaps");
  expect_corrupt(two("[0,4]", "[5,9]"), "tensor 'b': begins at 5, leaving a gap after byte 4");
  expect_corrupt(two("[1,5]", "[5,9]"), "tensor 'a': begins at 1, leaving a gap after byte 0");
  expect_corrupt(two("[4,0]", "[0,4]"), "tensor 'a': data_offsets [4, 0] are descending");
  expect_corrupt(two("[0,4]", "[4,9]"), "tensor 'b': ends at byte 9, but the file has 8 bytes of data");
  expect_corrupt(two("[0,4]", "[4,18446744073709551615]"),
                 "tensor 'b': ends at byte 18446744073709551615, but the file has 8 bytes of data");
  expect_corrupt(two("[0,4]", "[4,7]"), "tensor 'b': dtype and shape need 4 bytes, data_offsets give 3");
  expect_corrupt(two("[0,4]", "[4,8]") + "x", "1 bytes of data after the last tensor");
  expect_corrupt(file_of("{}", "x"), "1 bytes of data after the last tensor");
}

TEST(Safetensors, UnknownDtypesAndOverflowingShapesAreRefused) {
  expect_error(ErrorKind::unsupported, "f: tensor 'a': unknown dtype 'F128'",
               [] { open(file_of(R"({"a":{"dtype":"F128","shape":[0],"data_offsets":[0,0]}})")); });
  expect_corrupt(file_of(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"),
                 "tensor 'a': the product of its dimensions overflows");
  expect_corrupt(file_of(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,0]}})"),
                 "are not a whole number of bytes");
}

TEST(Safetensors, HostileNamesAreMadePrintable) {
  const std::string long_name(5000, 'n');
  expect_corrupt(file_of("{\"" + long_name + "\":1}"), "'" + long_name.substr(0, 80) + "...' is a number");
  expect_corrupt(file_of("{\"\\n\\u001b[2J\":1}"), "'\\x0a\\x1b[2J' is a number");
}

TEST(Safetensors, WriterRefusesMisuse) {
  const Folder folder;
  const auto write = [&](std::vector<TensorDeclaration> tensors) {
    SafetensorsWriter(folder / "out", std::move(tensors));
  };
  expect_error(ErrorKind::internal, "tensor 'a': declared twice", [&] { write({{"a", "F32", {}}, {"a", "U8", {}}}); });
  expect_error(ErrorKind::internal, "reserved", [&] { write({{"__metadata__", "F32", {}}}); });
  expect_error(ErrorKind::internal, "not UTF-8", [&] { write({{"\xff", "F32", {}}}); });
  expect_error(ErrorKind::unsupported, "unknown dtype 'F33'", [&] { write({{"a", "F33", {}}}); });

  SafetensorsWriter writer(folder / "out", {{"a", "U8", {2}}, {"b", "U8", {1}}});
  expect_error(ErrorKind::internal, "tensor 'b' was written, but the next one is 'a'",
               [&] { writer.write("b", as_span("x")); });
  expect_error(ErrorKind::internal, "tensor 'a' has 2 bytes, but 1 more were written",
               [&] { writer.write("a", as_span("xyz")); });
  writer.write("a", as_span("xy"));
  expect_error(ErrorKind::internal, "tensor 'b' has only 0 of 1 bytes", [&] { writer.finish(); });
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
}

TEST(Safetensors, AMissingFileIsNamed) {
  const Folder folder;
  expect_error(ErrorKind::not_found, "none.safetensors", [&] { SafetensorsFile(folder / "none.safetensors"); });
}

}  // namespace
}  // namespace ingot::formats
