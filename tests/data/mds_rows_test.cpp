#include "data/mds_rows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/file.h"
#include "data/dataset.h"
#include "data/source.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"

namespace ingot::data {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;

// Writes samples of one column, a few per shard, with hashes.
fs::path write(const fs::path& folder, const std::string& column, const std::string& encoding,
               const std::vector<std::string>& values) {
  formats::MdsWriter writer(folder, {{column, formats::parse_mds_encoding(encoding)}}, {"", {"xxh64"}, 300});
  for (const std::string& value : values) writer.write(std::vector<std::string_view>{value});
  writer.finish();
  return folder;
}

template <class T>
std::string raw(const std::vector<T>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

std::string array(const std::string& dtype, const std::string& bytes, std::vector<int64_t> shape) {
  return formats::mds_array_value(formats::parse_mds_encoding("ndarray"), {dtype, std::move(shape), bytes});
}

std::vector<Document> read_all(const fs::path& path, Format format = Format::automatic) {
  DocumentReader reader(path, format, OnError::stop);
  std::vector<Document> documents;
  for (Document document; reader.next(document);) documents.push_back(document);
  return documents;
}

TEST(MdsRows, TokensMayBeInt64BytesOrIntegerArrays) {
  const TempFolder folder;
  std::vector<std::string> bytes, arrays;
  std::vector<Ids> expected;
  for (int i = 0; i < 30; ++i) {
    const std::vector<int64_t> ids = {i, 2 * i, 7};
    bytes.push_back(raw(ids));
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    arrays.push_back(i % 2 == 0 ? array("i8", raw(ids), {3}) : array("u2", raw(narrow), {3}));
    expected.emplace_back(ids.begin(), ids.end());
  }
  for (const fs::path& path : {write(folder.path() / "bytes", "tokens", "bytes", bytes),
                               write(folder.path() / "arrays", "tokens", "ndarray", arrays)}) {
    ASSERT_GT(formats::MdsFolder(path).shards().size(), 3U);
    const std::vector<Document> documents = read_all(path);
    ASSERT_EQ(documents.size(), expected.size());
    for (size_t i = 0; i < documents.size(); ++i) {
      EXPECT_EQ(documents[i].ids, expected[i]);
      EXPECT_EQ(documents[i].loss_mask, std::vector<uint8_t>(3, 1));
      EXPECT_EQ(documents[i].line, static_cast<int64_t>(i) + 1);
      EXPECT_TRUE(documents[i].splittable);
      EXPECT_EQ(documents[i].format, Format::tokens);
    }
  }
}

// Written by MosaicML Streaming (tools/reference/make_mds_golden.py).
TEST(MdsRows, ReadsFoldersWrittenByStreaming) {
  const fs::path golden = fs::path(test_data) / "formats/mds";
  const std::vector<Document> tokens = read_all(golden / "tokens"), bytes = read_all(golden / "tokens_bytes");
  ASSERT_EQ(tokens.size(), 23U);
  ASSERT_EQ(bytes.size(), 23U);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].ids.size(), 16U);
    EXPECT_EQ(tokens[i].ids, bytes[i].ids);
  }
  const std::vector<Document> texts = read_all(golden / "zstd");
  ASSERT_EQ(texts.size(), 30U);
  EXPECT_EQ(texts[0].format, Format::text);
  EXPECT_EQ(texts[0].text.substr(0, 17), "once upon a time ");
}

TEST(MdsRows, BadSamplesAreNamedOrSkipped) {
  const TempFolder folder;
  const std::vector<int64_t> good = {1, 2}, bad = {1, -1}, large = {int64_t{1} << 31};
  const auto refuse = [&](const std::string& name, const std::string& encoding, const std::string& value,
                          const char* words) {
    const std::string first = encoding == "bytes" ? raw(good) : array("i8", raw(good), {2});
    const fs::path path = write(folder.path() / name, "tokens", encoding, {first, value, first});
    expect_error(error_of([&] { read_all(path); }), ErrorKind::corrupt, {(name + " sample 2: ").c_str(), words});
    DocumentReader reader(path, Format::automatic, OnError::skip);
    for (Document document; reader.next(document);) EXPECT_EQ(document.ids, (Ids{1, 2}));
    EXPECT_EQ(reader.num_documents(), 2);
    EXPECT_EQ(reader.num_skipped(), 1);
  };
  refuse("half", "bytes", raw(good).substr(1), "not a whole number of int64");
  refuse("none", "bytes", "", "no tokens");
  refuse("negative", "bytes", raw(bad), "-1 is not a token id");
  refuse("large", "ndarray", array("i8", raw(large), {1}), "2147483648 is not a token id");
  refuse("real", "ndarray", array("f8", raw(good), {2}), "dtype f8");
  refuse("matrix", "ndarray", array("i8", raw(good), {1, 2}), "2 dimensions");
}

// A shard that contradicts the index stops the run even when bad lines are skipped: all its samples may be wrong.
TEST(MdsRows, ADamagedShardIsAnError) {
  const TempFolder folder;
  const fs::path path = write(folder.path() / "a", "text", "str", std::vector<std::string>(30, "a text"));
  std::string bytes = read_file(path / "shard.00001.mds");
  bytes.back() = 'X';
  write_file(path / "shard.00001.mds", bytes);
  expect_error(error_of([&] {
                 DocumentReader reader(path, Format::automatic, OnError::skip);
                 for (Document document; reader.next(document);) continue;
               }),
               ErrorKind::corrupt, {"shard.00001.mds", "xxh64"});
}

TEST(MdsRows, MissingFormatsAndColumnsAreErrors) {
  const TempFolder folder;
  const fs::path text = write(folder.path() / "text", "text", "str", {"a text"});
  const fs::path tokens = write(folder.path() / "tokens", "tokens", "ndarray:int32", {std::string("\4\1\7\0\0\0", 6)});
  const fs::path other = write(folder.path() / "other", "words", "str", {"a text"});
  const auto read = [](const fs::path& path, Format format) { return [=] { read_all(path, format); }; };
  EXPECT_EQ(read_all(tokens, Format::tokens)[0].ids, (Ids{7}));
  EXPECT_EQ(read_all(text, Format::text)[0].text, "a text");
  expect_error(error_of(read(text, Format::tokens)), ErrorKind::unsupported, {"text (str)"});
  expect_error(error_of(read(tokens, Format::text)), ErrorKind::unsupported, {"tokens (ndarray:int32)"});
  expect_error(error_of(read(other, Format::automatic)), ErrorKind::unsupported, {"words (str)", "tokens"});
  expect_error(error_of(read(text, Format::chat)), ErrorKind::usage, {"MDS", "chat"});
  expect_error(error_of(read(folder.path(), Format::automatic)), ErrorKind::not_found, {"is a folder"});
}

TEST(MdsRows, FormADataset) {
  const TempFolder folder;
  ThreadPool pool(1);
  const auto tokenizer = byte_tokenizer();
  std::vector<std::string> rows;
  for (int64_t i = 0; i < 20; ++i) rows.push_back(raw(std::vector<int64_t>{5 + i, 6, 7, 8}));
  const std::vector<Source> sources = {{write(folder.path() / "a", "tokens", "bytes", rows), 1}};
  DatasetSettings settings;
  settings.packing.sequence_length = 4;
  const Dataset dataset = Dataset::build(sources, *tokenizer, nullptr, settings, pool);
  ASSERT_EQ(dataset.num_sequences(), 20);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(dataset.get(i).ids, (Ids{static_cast<int32_t>(5 + i), 6, 7, 8}));
  const std::vector<Source> beyond = {
      {write(folder.path() / "b", "tokens", "bytes", {raw(std::vector<int64_t>{5, 101})}), 1}};
  expect_error(error_of([&] { Dataset::build(beyond, *tokenizer, nullptr, settings, pool); }), ErrorKind::corrupt,
               {"b sample 1: token 101 is not in the vocabulary"});
}

}  // namespace
}  // namespace ingot::data
