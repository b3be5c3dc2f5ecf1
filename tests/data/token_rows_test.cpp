#include "data/token_rows.h"

#include <gtest/gtest.h>

#include "data/dataset.h"
#include "data/source.h"
#include "data/tokenized.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"

namespace ingot::data {
namespace {

using namespace std::string_literals;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(test_data) / "formats/npy" / (name + ".npy");
}

std::vector<Document> read_all_rows(const std::filesystem::path& path) {
  TokenRows rows(path);
  std::vector<Document> documents;
  for (Document document; rows.next(document);) documents.push_back(document);
  return documents;
}

// An array of objects, each a pickled value (protocol 2).
std::string npy_of(const std::vector<std::string>& rows) {
  std::string header = "{'descr': '|O', 'fortran_order': False, 'shape': (" + std::to_string(rows.size()) + ",)}";
  std::string file = "\x93NUMPY\1\0"s + static_cast<char>(header.size()) + '\0' + header;
  file +=
      "\x80\2cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
      "Baaaa\x87R(K\1K"s;
  file.replace(file.find("Baaaa"), 5, "B\1\0\0\0b"s);
  file += static_cast<char>(rows.size());
  file +=
      "\x85"
      "cnumpy\ndtype\nX\2\0\0\0O8\x89\x88\x87R\x89]("s;
  for (const std::string& row : rows) file += row;
  return file + "etb.";
}

std::string list(const std::vector<int>& values) {
  std::string out = "](";
  for (const int value : values) {
    out += 'J';
    for (int byte = 0; byte < 4; ++byte) out += static_cast<char>(value >> (8 * byte));
  }
  return out + "e";
}

std::string dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string out = "}(";
  for (const auto& [key, value] : items) {
    out += 'X';
    out += static_cast<char>(key.size());
    out += "\0\0\0"s;
    out += key;
    out += value;
  }
  return out + "u";
}

using Ids = std::vector<int32_t>;
using Marks = std::vector<uint8_t>;

TEST(TokenRows, ReadsMlperfsGovReport) {
  for (const char* name : {"govreport", "govreport_arrays"}) {
    const std::vector<Document> documents = read_all_rows(golden(name));
    ASSERT_EQ(documents.size(), 3U) << name;
    for (size_t r = 0; r < 3; ++r) {
      const Document& document = documents[r];
      EXPECT_EQ(document.format, Format::tokens);
      EXPECT_EQ(document.line, static_cast<int64_t>(r) + 1);
      EXPECT_FALSE(document.splittable);
      ASSERT_EQ(document.ids.size(), 40U);
      EXPECT_EQ(document.ids[2], static_cast<int32_t>((r * 7919 + 104729) % 32000));
      // The mask belongs to the predicting position: from 10 + r on, so the token after it is the first loss token.
      for (size_t i = 1; i < 40; ++i) EXPECT_EQ(document.loss_mask[i], i >= 11 + r ? 1 : 0) << i;
    }
  }
}

TEST(TokenRows, ReadsNumericArrays) {
  const std::vector<Document> rows = read_all_rows(golden("u2"));
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].ids, (Ids{3, 4, 5}));
  EXPECT_EQ(rows[1].loss_mask, (Marks{1, 1, 1}));
  EXPECT_TRUE(rows[1].splittable);
  const std::vector<Document> one = read_all_rows(golden("version2"));
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].ids, (Ids{0, 1, 2, 3}));
  const std::vector<Document> ragged = read_all_rows(golden("ragged"));
  ASSERT_EQ(ragged.size(), 3U);
  EXPECT_EQ(ragged[1].ids.size(), 1500U);
  EXPECT_EQ(ragged[2].ids, Ids{300000});
  for (const char* name : {"f4", "bool", "scalar"}) {
    expect_error(error_of([&] { TokenRows rows(golden(name)); }), ErrorKind::unsupported,
                 {"array of", "dtype", "integers"});
  }
}

TEST(TokenRows, ReadsLabelsMasksAndPackedRows) {
  const TempFolder folder;
  const std::string ids = list({5, 6, 7, 8});
  const std::vector<Document> documents = read_all_rows(folder.file(
      "a.npy",
      npy_of({ids, dict({{"input_ids", ids}}), dict({{"input_ids", ids}, {"labels", list({-100, -100, 7, 8})}}),
              dict({{"input_ids", ids}, {"labels", list({5, 6, -100, 8})}, {"attention_mask", list({1, 1, 1, 0})}}),
              dict({{"input_ids", ids}, {"loss_mask", list({0, 1, 1, 0})}, {"seq_start_id", list({0, 1, 3})}})})));
  ASSERT_EQ(documents.size(), 7U);
  EXPECT_EQ(documents[0].loss_mask, (Marks{1, 1, 1, 1}));
  EXPECT_EQ(documents[1].loss_mask, (Marks{1, 1, 1, 1}));
  EXPECT_EQ(documents[2].loss_mask, (Marks{0, 0, 1, 1}));
  EXPECT_EQ(documents[3].ids, (Ids{5, 6, 7}));
  EXPECT_EQ(documents[3].loss_mask, (Marks{1, 1, 0}));
  EXPECT_EQ(documents[4].ids, (Ids{5}));
  EXPECT_EQ(documents[5].ids, (Ids{6, 7}));
  EXPECT_EQ(documents[5].loss_mask[1], 1);
  EXPECT_EQ(documents[6].ids, (Ids{8}));
  for (size_t d = 4; d < 7; ++d) EXPECT_EQ(documents[d].line, 5);
}

TEST(TokenRows, BadRowsAreNamed) {
  const TempFolder folder;
  const std::string ids = list({5, 6, 7});
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"K\1", "the row is of type int; it must be a list"},
      {"](NNe", "the row is of type list"},
      {"]", "the row has no tokens"},
      {list({5, -1}), "-1 is not a token id"},
      {dict({{"labels", ids}}), "the row has no \"input_ids\""},
      {dict({{"input_ids", "X\1\0\0\0a"s}}), "\"input_ids\" is of type str"},
      {dict({{"input_ids", ids}, {"position_ids", ids}}), "the row has the unknown key 'position_ids'"},
      {dict({{"input_ids", ids}, {"labels", ids}, {"loss_mask", ids}}), "both \"labels\" and \"loss_mask\""},
      {dict({{"input_ids", ids}, {"labels", list({5, 6})}}), "\"labels\" has 2 values for 3 tokens"},
      {dict({{"input_ids", ids}, {"labels", list({6, 7, 5})}}),
       "label 0 is 6; expected the token at that position (5) or -100"},
      {dict({{"input_ids", ids}, {"loss_mask", ids}}), "\"loss_mask\" contains 5"},
      {dict({{"input_ids", ids}, {"attention_mask", list({0, 1, 1})}}), "masks tokens other than padding"},
      {dict({{"input_ids", ids}, {"attention_mask", list({1, 0, 1})}}), "masks tokens other than padding"},
      {dict({{"input_ids", ids}, {"seq_start_id", list({1})}}), "must ascend from 0 to less than 3"},
      {dict({{"input_ids", ids}, {"seq_start_id", list({0, 2, 2})}}), "must ascend"},
      {dict({{"input_ids", ids}, {"seq_start_id", list({0, 3})}}), "must ascend"},
      {dict({{"input_ids", ids}, {"seq_start_id", "]"}}), "must ascend"},
  };
  std::vector<std::string> rows = {ids};
  for (const auto& [row, words] : cases) {
    const std::filesystem::path path = folder.file("bad.npy", npy_of({ids, row}));
    DocumentReader reader(path, Format::automatic, OnError::stop);
    Document document;
    EXPECT_TRUE(reader.next(document));
    expect_error(error_of([&] { reader.next(document); }), ErrorKind::corrupt, {"bad.npy row 2: ", words});
    rows.push_back(row);
  }
  rows.push_back(ids);
  DocumentReader reader(folder.file("some.npy", npy_of(rows)), Format::tokens, OnError::skip);
  EXPECT_TRUE(reader.tokens());
  for (Document document; reader.next(document);) EXPECT_EQ(document.ids, (Ids{5, 6, 7}));
  EXPECT_EQ(reader.num_documents(), 2);
  EXPECT_EQ(reader.num_skipped(), std::ssize(cases));
  expect_error(error_of([&] {
                 DocumentReader none(folder.file("none.npy", npy_of({"N", "N"})), Format::tokens, OnError::skip);
                 Document document;
                 none.next(document);
               }),
               ErrorKind::corrupt, {"all 2 rows are bad, the first", "NoneType"});
}

TEST(TokenRows, FormatMustMatchTheFilesName) {
  const TempFolder folder;
  const std::filesystem::path array = folder.file("a.npy", npy_of({list({1, 2})}));
  const std::filesystem::path text = folder.file("a.txt", "a text");
  const std::filesystem::path lines = folder.file("a.jsonl", "{\"text\": \"a\"}");
  const std::filesystem::path unnamed = folder.file("a.bin", npy_of({list({1, 2})}));
  expect_error(error_of([&] { DocumentReader(array, Format::text, OnError::stop); }), ErrorKind::usage,
               {"array of tokens"});
  expect_error(error_of([&] { DocumentReader(text, Format::tokens, OnError::stop); }), ErrorKind::usage, {".npy"});
  expect_error(error_of([&] { DocumentReader(lines, Format::tokens, OnError::stop); }), ErrorKind::usage, {".npy"});
  expect_error(error_of([&] { DocumentReader(unnamed, Format::automatic, OnError::stop); }), ErrorKind::unsupported,
               {"a NumPy array", "name it .npy"});
}

// Each row is one document. Token ids outside the vocabulary are refused before the model gets them.
TEST(TokenRows, FormADataset) {
  const TempFolder folder;
  ThreadPool pool(1);
  const auto tokenizer = byte_tokenizer();
  const auto build = [&](const std::vector<std::string>& rows, OnError on_error) {
    const std::vector<Source> sources = {{folder.file("a.npy", npy_of(rows)), 1}};
    DatasetSettings settings;
    settings.on_error = on_error;
    settings.packing.sequence_length = 4;
    return Dataset::build(sources, *tokenizer, nullptr, settings, pool);
  };
  const std::string row = dict({{"input_ids", list({9, 8, 7, 6})}, {"loss_mask", list({0, 0, 1, 0})}});
  const Dataset dataset = build({row, row}, OnError::stop);
  ASSERT_EQ(dataset.num_sequences(), 2);
  EXPECT_EQ(dataset.get(0).ids, (Ids{9, 8, 7, 6}));
  EXPECT_EQ(dataset.get(0).targets, (Ids{-1, -1, 6, -1}));
  const std::string beyond = list({9, tokenizer->size()});
  expect_error(error_of([&] { build({row, beyond}, OnError::stop); }), ErrorKind::corrupt,
               {"a.npy row 2: token 101 is not in the vocabulary"});
  EXPECT_EQ(build({row, beyond}, OnError::skip).statistics().num_bad_lines, 1);
}

}  // namespace
}  // namespace ingot::data
