// MDS folders written by MosaicML Streaming (tools/reference/make_mds_golden.py) are read, and written again byte for
// byte.
#include "formats/mds.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/compression.h"
#include "formats/digest.h"
#include "formats/npy_dtype.h"
#include "tests/formats/bytes.h"

namespace ingot::formats {
namespace {

using Json = nlohmann::json;
using testing::expect_error;
using testing::Folder;

constexpr std::array<const char*, 10> folders = {"everything", "text", "br",     "bz2",          "gz",
                                                 "snappy",     "zstd", "tokens", "tokens_bytes", "numbers_and_words"};

std::filesystem::path folder(const std::string& name) { return testing::golden("mds") / name; }

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// Expects the samples of all shards, in order, to be those of the script.
void expect_samples(const MdsFolder& data, const Json& expected) {
  size_t next = 0;
  for (size_t s = 0; s < data.shards().size(); ++s) {
    const MdsShard shard = data.open(s);
    for (int64_t i = 0; i < shard.num_samples(); ++i, ++next) {
      const std::vector<std::string_view> values = shard.sample(i);
      const Json& sample = expected.at(next);
      ASSERT_EQ(values.size(), sample.at("bytes").size());
      for (size_t c = 0; c < values.size(); ++c) {
        const MdsColumn& column = data.columns()[c];
        EXPECT_EQ(to_hex(values[c]), sample.at("bytes").at(column.name).get<std::string>())
            << column.name << " of sample " << next;
        EXPECT_NO_THROW(check_mds_value(column.encoding, values[c])) << column.name << " of sample " << next;
        const auto array = sample.at("arrays").find(column.name);
        if (array == sample.at("arrays").end()) continue;
        if (column.encoding.kind == MdsEncoding::Kind::bytes) {
          EXPECT_EQ(npy_integers("i8", values[c]), array->at(2).get<std::vector<int64_t>>());
          continue;
        }
        const MdsArray found = read_mds_array(column.encoding, values[c]);
        EXPECT_EQ(found.dtype, array->at(0).get<std::string>());
        EXPECT_EQ(found.shape, array->at(1).get<std::vector<int64_t>>());
        for (size_t k = 0; k < array->at(2).size(); ++k) {
          const std::string_view item = found.bytes.substr(k * npy_item_size(found.dtype));
          const double value = found.dtype[0] == 'f' ? npy_real(found.dtype, item)
                                                     : static_cast<double>(*npy_integer(found.dtype, item));
          EXPECT_EQ(value, array->at(2).at(k).get<double>());
        }
        EXPECT_EQ(mds_array_value(column.encoding, found), values[c]);
      }
    }
  }
  EXPECT_EQ(next, expected.size());
  EXPECT_EQ(data.num_samples(), static_cast<int64_t>(next));
}

TEST(Mds, ReadsStreamingsFolders) {
  for (const std::string name : folders) {
    SCOPED_TRACE(name);
    expect_samples(MdsFolder(folder(name)), Json::parse(read_file(folder(name) / "values.json")));
  }
}

// Uncompressed folders are compared byte for byte. Compressed ones are compared after reading, as compressor versions
// differ.
TEST(Mds, WritesStreamingsFolders) {
  const Folder root;
  for (const std::string name : folders) {
    SCOPED_TRACE(name);
    const MdsFolder official(folder(name));
    const MdsShardInfo& info = official.shards().front();
    const Json samples = Json::parse(read_file(folder(name) / "values.json"));
    std::vector<MdsColumn> columns(info.columns.rbegin(), info.columns.rend());  // the writer sorts them
    MdsWriter writer(root / name, columns,
                     {info.compression, {info.hashes.rbegin(), info.hashes.rend()}, info.size_limit});
    for (const Json& sample : samples) {
      std::vector<std::string> bytes;
      for (const MdsColumn& column : writer.columns()) {
        bytes.push_back(from_hex(sample.at("bytes").at(column.name).get<std::string>()));
      }
      writer.write(std::vector<std::string_view>(bytes.begin(), bytes.end()));
    }
    writer.finish();
    const MdsFolder ours(root / name);
    ASSERT_EQ(ours.shards().size(), official.shards().size());
    for (size_t s = 0; s < ours.shards().size(); ++s) {
      const MdsFileInfo &raw = ours.shards()[s].raw, &expected = official.shards()[s].raw;
      EXPECT_EQ(raw.bytes, expected.bytes);
      EXPECT_EQ(raw.hashes, expected.hashes);
      EXPECT_EQ(raw.basename, expected.basename);
      if (info.compression.empty()) {
        EXPECT_EQ(read_file(root / name / raw.basename), read_file(folder(name) / raw.basename));
      }
    }
    if (info.compression.empty() || name == "bz2") {
      EXPECT_EQ(read_file(root / name / "index.json"), read_file(folder(name) / "index.json"));
    }
    expect_samples(ours, samples);
  }
}

// A shard in bytes: number of samples and offsets (u32), column configuration, samples (github.com/mosaicml/streaming,
// streaming/base/format/mds).
TEST(Mds, WritesTheDocumentedBytes) {
  const std::string shard = read_file(folder("numbers_and_words") / "shard.00000.mds");
  ASSERT_EQ(shard.size(), 233U);
  EXPECT_EQ(to_hex(shard.substr(0, 16)), "02000000ce000000db000000e9000000");
  EXPECT_EQ(to_hex(shard.substr(206)), "010000000500000000000000610200000006000000000000006263");
}

TEST(Mds, DecompressedShardsAreUsedInPlace) {
  const Folder root;
  const MdsFolder zipped(folder("zstd"));
  std::filesystem::copy(folder("zstd"), root / "both");
  for (const MdsShardInfo& shard : zipped.shards()) {
    std::filesystem::copy(folder("text") / shard.raw.basename, root / "both" / shard.raw.basename);
    std::filesystem::remove(root / "both" / shard.zip->basename);
  }
  // The configuration inside a shard differs, and therefore its hashes; all else is equal.
  Json index = Json::parse(read_file(root / "both" / "index.json"));
  for (size_t s = 0; s < zipped.shards().size(); ++s) {
    index["shards"][s]["raw_data"] = Json::parse(read_file(folder("text") / "index.json"))["shards"][s]["raw_data"];
    index["shards"][s]["samples"] = Json::parse(read_file(folder("text") / "index.json"))["shards"][s]["samples"];
  }
  write_file(root / "both" / "index.json", index.dump());
  expect_samples(MdsFolder(root / "both"), Json::parse(read_file(folder("text") / "values.json")));
}

TEST(Mds, MergedFoldersListShardsOfSubfolders) {
  const Folder root;
  std::filesystem::create_directories(root / "sub");
  std::filesystem::copy(folder("tokens_bytes"), root / "sub");
  Json index = Json::parse(read_file(folder("tokens_bytes") / "index.json"));
  for (Json& shard : index["shards"]) {
    shard["raw_data"]["basename"] = "sub/" + shard["raw_data"]["basename"].get<std::string>();
  }
  write_file(root / "index.json", index.dump());
  expect_samples(MdsFolder(root.path()), Json::parse(read_file(folder("tokens_bytes") / "values.json")));
}

TEST(Mds, ATruncatedOrChangedShardIsNamed) {
  const Folder root;
  for (const std::string name : folders) {
    SCOPED_TRACE(name);
    const MdsShardInfo info = MdsFolder(folder(name)).shards().front();
    const std::string file = info.zip ? info.zip->basename : info.raw.basename;
    const std::string bytes = read_file(folder(name) / file);
    std::filesystem::copy(folder(name), root / name);
    const auto open = [&] { MdsFolder(root / name).open(0); };
    write_file(root / name / file, bytes.substr(0, bytes.size() - 1));
    expect_error(ErrorKind::corrupt, file, open);
    std::string flipped = bytes;
    flipped.back() = static_cast<char>(flipped.back() ^ 1);
    write_file(root / name / file, flipped);
    if (!info.hashes.empty()) expect_error(ErrorKind::corrupt, info.hashes.front(), open);
    std::filesystem::remove(root / name / file);
    expect_error(ErrorKind::not_found, file, open);
  }
}

Json index_of(const std::string& name) { return Json::parse(read_file(folder(name) / "index.json")); }

TEST(Mds, InvalidIndexesAreRefused) {
  const Json good = index_of("zstd");
  const auto refuse = [&](ErrorKind kind, const std::string& part, const std::function<void(Json&)>& change) {
    Json index = good;
    change(index["shards"][1]);
    SCOPED_TRACE(part);
    expect_error(kind, part, [&] { parse_mds_index(index.dump(), "index.json"); });
  };
  const auto corrupt = ErrorKind::corrupt;
  const auto unsupported = ErrorKind::unsupported;
  refuse(unsupported, "index.json: shard 1: version is '1'", [](Json& s) { s["version"] = 1; });
  refuse(unsupported, "format", [](Json& s) { s["format"] = "csv"; });
  refuse(unsupported, "'pkl' holds pickles", [](Json& s) { s["column_encodings"][0] = "pkl"; });
  refuse(unsupported, "'jpeg2000'", [](Json& s) { s["column_encodings"][0] = "jpeg2000"; });
  refuse(corrupt, "dtype", [](Json& s) { s["column_encodings"][0] = "ndarray:int33"; });
  refuse(corrupt, "shape", [](Json& s) { s["column_encodings"][0] = "ndarray:int32:0"; });
  refuse(corrupt, "shape", [](Json& s) { s["column_encodings"][0] = "ndarray:int32:2,"; });
  refuse(corrupt, "too large", [](Json& s) { s["column_encodings"][0] = "ndarray:int32:65536,65536"; });
  refuse(corrupt, "column_sizes entry for 'text'", [](Json& s) { s["column_sizes"][0] = 4; });
  refuse(corrupt, "column_sizes entry for 'text'", [](Json& s) { s["column_encodings"][0] = "int"; });
  refuse(corrupt, "0 column_names", [](Json& s) { s["column_names"] = Json::array(); });
  refuse(corrupt, "not sorted by name", [](Json& s) {
    s["column_names"] = {"b", "a"};
    s["column_encodings"] = {"str", "str"};
    s["column_sizes"] = {nullptr, nullptr};
  });
  refuse(corrupt, "unknown key 'shuffle'", [](Json& s) { s["shuffle"] = true; });
  refuse(corrupt, "has no samples", [](Json& s) { s.erase("samples"); });
  refuse(corrupt, "samples", [](Json& s) { s["samples"] = -1; });
  refuse(corrupt, "samples", [](Json& s) { s["samples"] = uint64_t{1} << 32; });
  refuse(corrupt, "zip_data", [](Json& s) { s["zip_data"] = nullptr; });
  refuse(corrupt, "zip_data", [](Json& s) { s["compression"] = nullptr; });
  refuse(unsupported, "'lz4'", [](Json& s) { s["compression"] = "lz4"; });
  refuse(unsupported, "level", [](Json& s) { s["compression"] = "zstd:23"; });
  refuse(unsupported, "level", [](Json& s) { s["compression"] = "snappy:1"; });
  refuse(unsupported, "'shake_128'", [](Json& s) { s["hashes"] = {"shake_128"}; });
  refuse(corrupt, "raw_data.hashes", [](Json& s) { s["raw_data"]["hashes"]["md5"] = "00"; });
  for (const char* name : {"", "..", "../x", "/etc/passwd", "a/../../b", "a/", "a\\b"}) {
    refuse(corrupt, "not inside its folder", [&](Json& s) { s["raw_data"]["basename"] = name; });
  }
  expect_error(corrupt, "index.json: not an MDS index", [] { parse_mds_index("[]", "index.json"); });
  expect_error(corrupt, "duplicate key", [] { parse_mds_index(R"({"version": 2, "version": 2})", "index.json"); });
  expect_error(corrupt, "JSON", [] { parse_mds_index("{", "index.json"); });
  expect_error(unsupported, "version", [] { parse_mds_index(R"({"version": 3, "shards": []})", "index.json"); });
}

// A hand-written shard with one column "x" of `encoding`.
MdsShardInfo one_column(const std::string& encoding, int64_t samples) {
  MdsShardInfo info;
  info.columns = {{"x", parse_mds_encoding(encoding)}};
  info.samples = samples;
  return info;
}

TEST(Mds, ShardsWithWrongOffsetsAreRefused) {
  using testing::raw;
  const auto shard = [](std::initializer_list<uint32_t> numbers, const std::string& rest) {
    std::string bytes;
    for (const uint32_t number : numbers) bytes += raw(number);
    return bytes + rest;
  };
  const auto open = [](const std::string& bytes, int64_t samples) {
    MdsShard(testing::as_span(bytes), one_column("str", samples), "s.mds");
  };
  open(shard({2, 16, 21, 25}, std::string("\1\0\0\0a\0\0\0\0", 9)), 2);
  const auto corrupt = ErrorKind::corrupt;
  expect_error(corrupt, "s.mds: holds 2 samples, but the index says 3", [&] { open(shard({2, 16, 16, 16}, ""), 3); });
  expect_error(corrupt, "s.mds", [&] { open(std::string(2, '\1'), 1); });
  expect_error(corrupt, "offsets", [&] { open(shard({2, 12}, ""), 2); });
  expect_error(corrupt, "sample 0 begins at 11", [&] { open(shard({1, 11, 12}, ""), 1); });
  expect_error(corrupt, "sample 1 begins at 13", [&] { open(shard({1, 12, 13}, ""), 1); });
  expect_error(corrupt, "end at 12", [&] { open(shard({1, 12, 12}, "x"), 1); });
}

TEST(Mds, SamplesOfWrongSizeAreRefused) {
  using testing::raw;
  const auto sample = [](const std::string& encoding, const std::string& bytes) {
    const std::string file =
        raw(uint32_t{1}) + raw(uint32_t{12}) + raw(static_cast<uint32_t>(12 + bytes.size())) + bytes;
    const MdsShard shard(testing::as_span(file), one_column(encoding, 1), "s.mds");
    return std::string(shard.sample(0).at(0));
  };
  EXPECT_EQ(sample("str", raw(uint32_t{2}) + "ab"), "ab");
  const auto corrupt = ErrorKind::corrupt;
  expect_error(corrupt, "s.mds: sample 0", [&] { sample("str", raw(uint32_t{3}) + "ab"); });
  expect_error(corrupt, "s.mds: sample 0 has 1 extra bytes", [&] { sample("str", raw(uint32_t{1}) + "ab"); });
  expect_error(corrupt, "a size", [&] { sample("str", "ab"); });
  expect_error(corrupt, "s.mds: sample 0", [&] { sample("int32", "abc"); });
}

TEST(Mds, InvalidValuesAreRefused) {
  const auto check = [](const std::string& encoding, const std::string& value) {
    check_mds_value(parse_mds_encoding(encoding), value);
  };
  for (const auto& [encoding, value] :
       std::vector<std::pair<std::string, std::string>>{{"str", "\xff"},
                                                        {"json", "{"},
                                                        {"str_int", ""},
                                                        {"str_int", "1.0"},
                                                        {"str_int", "-"},
                                                        {"str_float", ""},
                                                        {"str_float", "."},
                                                        {"str_float", "1e"},
                                                        {"str_float", "x"},
                                                        {"str_decimal", "infinite"},
                                                        {"int", "1234567"},
                                                        {"ndarray", ""},
                                                        {"ndarray", "\x22"},
                                                        {"ndarray", "\x08\x00"},
                                                        {"ndarray", std::string("\x08\x04\x00", 3)},
                                                        {"ndarray", "\x07\x04\x01z"},
                                                        {"ndarray:uint8", "\x04\x02z"},
                                                        {"ndarray:uint8", "\x07\xff"},
                                                        {"ndarray:uint8:3", "ab"}}) {
    expect_error(ErrorKind::corrupt, "", [&] { check(encoding, value); });
  }
  for (const char* value : {"0.5", "-1e-07", "1E+5", "inf", "-Infinity", "NaN", "7.", ".5"})
    check("str_decimal", value);
  const int64_t seven = 7;
  const std::string_view bytes(reinterpret_cast<const char*>(&seven), 8);
  const MdsEncoding ints = parse_mds_encoding("ndarray:int64");
  EXPECT_EQ(to_hex(mds_array_value(ints, {"i8", {1}, bytes})), "04010700000000000000");
  expect_error(ErrorKind::usage, "", [&] { mds_array_value(ints, {"u8", {1}, bytes}); });
  expect_error(ErrorKind::usage, "", [&] { mds_array_value(ints, {"i8", {2}, bytes}); });
  expect_error(ErrorKind::usage, "", [&] { mds_array_value(ints, {"i8", {}, bytes}); });
  expect_error(ErrorKind::usage, "", [&] { mds_array_value(ints, {"i8", {0}, ""}); });
  expect_error(ErrorKind::usage, "",
               [&] { mds_array_value(parse_mds_encoding("ndarray:int64:2"), {"i8", {1}, bytes}); });
}

TEST(Mds, WriterRejectsInvalidCalls) {
  const Folder root;
  const MdsColumn text{"text", parse_mds_encoding("str")};
  expect_error(ErrorKind::usage, "unique column names", [&] { MdsWriter(root / "a", {}, {}); });
  expect_error(ErrorKind::usage, "unique column names", [&] { MdsWriter(root / "a", {text, text}, {}); });
  expect_error(ErrorKind::unsupported, "lz4", [&] { MdsWriter(root / "a", {text}, {"lz4", {}, {}}); });
  expect_error(ErrorKind::unsupported, "crc", [&] { MdsWriter(root / "a", {text}, {"", {"crc"}, {}}); });
  expect_error(ErrorKind::usage, "4 GiB", [&] { MdsWriter(root / "a", {text}, {"", {}, uint64_t{1} << 32}); });
  EXPECT_FALSE(std::filesystem::exists(root / "a"));
  MdsWriter writer(root / "b", {text}, {});
  expect_error(ErrorKind::usage, "no sample", [&] { writer.finish(); });
  expect_error(ErrorKind::corrupt, "column 'text'", [&] { writer.write(std::array<std::string_view, 1>{"\xff"}); });
  writer.write(std::array<std::string_view, 1>{"x"});
  writer.finish();
  expect_error(ErrorKind::usage, "not empty", [&] { MdsWriter(root / "b", {text}, {}); });
}

// A sample larger than the limit gets a shard of its own, with no empty shard before it.
TEST(Mds, ASampleBeyondTheLimitGetsItsOwnShard) {
  const Folder root;
  MdsWriter writer(root / "a", {{"text", parse_mds_encoding("str")}}, {"", {}, 300});
  const std::string large(500, 'x');
  for (const std::string_view text : {std::string_view(large), std::string_view("y"), std::string_view("z")}) {
    writer.write(std::array<std::string_view, 1>{text});
  }
  writer.finish();
  const MdsFolder data(root / "a");
  ASSERT_EQ(data.shards().size(), 2U);
  EXPECT_EQ(data.shards()[0].samples, 1);
  EXPECT_EQ(data.shards()[1].samples, 2);
}

TEST(Compression, DamagedDataIsRefused) {
  const std::string text(100000, 'x');
  for (const char* kind : {"br:2", "bz2:1", "gz", "snappy", "zstd"}) {
    SCOPED_TRACE(kind);
    const std::string packed = compress(kind, testing::as_span(text));
    EXPECT_LT(packed.size(), text.size() / 10);
    EXPECT_EQ(decompress(kind, testing::as_span(packed), text.size(), "f"), text);
    const auto unpack = [&](const std::string& bytes, uint64_t size) {
      return [kind, bytes, size] { decompress(kind, testing::as_span(bytes), size, "f"); };
    };
    expect_error(ErrorKind::corrupt, "f: ", unpack(packed, text.size() - 1));
    expect_error(ErrorKind::corrupt, "f: ", unpack(packed, text.size() + 1));
    expect_error(ErrorKind::corrupt, "f: ", unpack(packed, uint64_t{1} << 32));
    expect_error(ErrorKind::corrupt, "f: ", unpack(packed.substr(0, packed.size() - 3), text.size()));
    expect_error(ErrorKind::corrupt, "f: ", unpack("", text.size()));
    expect_error(ErrorKind::corrupt, "f: ", unpack("no compressed data at all", text.size()));
    expect_error(ErrorKind::corrupt, "f: ", unpack(packed + "x", text.size()));
  }
}

TEST(Digest, UnknownNamesAreRefused) {
  EXPECT_EQ(digest_hex("md5", {}), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(digest_hex("xxh32", {}), "02cc5d05");  // the folder "everything" covers the others
  EXPECT_FALSE(is_digest("shake_128"));
  expect_error(ErrorKind::unsupported, "shake_128", [] { digest_hex("shake_128", {}); });
}

}  // namespace
}  // namespace ingot::formats
