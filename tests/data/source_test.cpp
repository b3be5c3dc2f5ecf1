#include "data/source.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <vector>

#include "tests/data/temp_folder.h"

namespace ingot::data {
namespace {

std::vector<Document> read_all(const std::filesystem::path& path, Format format = Format::automatic,
                               OnError on_error = OnError::stop) {
  DocumentReader reader(path, format, on_error);
  std::vector<Document> documents;
  for (Document document; reader.next(document);) documents.push_back(document);
  return documents;
}

std::string gzip(const std::string& text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, text.size()) + 32, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - state.avail_out);
  deflateEnd(&state);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Lines of very different lengths, over several buffers of the readers; the middle one compresses to almost nothing.
std::string many_lines(std::vector<std::string>& texts) {
  std::string lines;
  uint32_t word = 1;
  for (int i = 0; i < 400; ++i) {
    std::string text(i == 200 ? 3'000'000 : static_cast<size_t>(1 + i * 7), 'z');
    if (i != 200) {
      for (char& c : text) {
        word = word * 1664525 + 1013904223;
        c = static_cast<char>('a' + (word >> 24) % 26);
      }
    }
    texts.push_back(text);
    lines += "{\"text\": \"" + text + "\"}\n";
  }
  return lines;
}

void expect_texts(const std::filesystem::path& path, const std::vector<std::string>& texts) {
  const auto documents = read_all(path);
  ASSERT_EQ(documents.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) ASSERT_TRUE(documents[i].text == texts[i]) << "line " << i + 1;
}

TEST(Source, reads_each_format_as_the_first_record_shows) {
  const TempFolder folder;
  auto documents = read_all(folder.file("a.jsonl", "{\"id\": 7, \"text\": \"one\"}\r\n\n  \n{\"text\": \"two\"}"));
  ASSERT_EQ(documents.size(), 2U);
  EXPECT_EQ(documents[0].text, "one");
  EXPECT_EQ(documents[1].text, "two");
  EXPECT_EQ(documents[1].line, 4);
  EXPECT_EQ(documents[1].format, Format::text);

  documents = read_all(folder.file("b.jsonl", R"({"instruction": "Add", "input": "1 2", "output": "3"}
{"instruction": "Greet", "input": null, "output": "hi"}
{"instruction": "Leave", "output": "bye"})"));
  ASSERT_EQ(documents.size(), 3U);
  EXPECT_EQ(documents[0].format, Format::instruction);
  EXPECT_EQ(documents[0].prompt + "|" + documents[0].input + "|" + documents[0].answer, "Add|1 2|3");
  EXPECT_EQ(documents[1].input, "");
  EXPECT_EQ(documents[2].answer, "bye");

  documents = read_all(folder.file("c.jsonl", R"({"prompt": "", "completion": "x"})"));
  EXPECT_EQ(documents[0].format, Format::completion);
  EXPECT_EQ(documents[0].answer, "x");
}

TEST(Source, reads_chats_with_parts_tools_and_other_keys) {
  const TempFolder folder;
  const auto documents = read_all(folder.file(
      "d.jsonl", R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )"
                 R"({"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "tool_calls": [1]}], )"
                 R"("tools": [{"name": "f"}]})"));
  ASSERT_EQ(documents.size(), 1U);
  EXPECT_EQ(documents[0].format, Format::chat);
  EXPECT_EQ(documents[0].messages,
            R"([{"role":"user","content":"ab"},{"role":"assistant","content":"","tool_calls":[1]}])");
  EXPECT_EQ(documents[0].tools, R"([{"name":"f"}])");
}

TEST(Source, a_plain_text_file_is_one_document) {
  const TempFolder folder;
  const auto documents = read_all(folder.file("a.txt", "\xef\xbb\xbf{one}\r\n\ntwo\n"));
  ASSERT_EQ(documents.size(), 1U);
  EXPECT_EQ(documents[0].text, "{one}\r\n\ntwo\n");
  EXPECT_EQ(documents[0].format, Format::text);
  EXPECT_EQ(read_all(folder.file("novel", "It was"), Format::text)[0].text, "It was");
  EXPECT_EQ(read_all(folder.file("lines", "\n {\"text\": \"x\"}"))[0].text, "x");
}

TEST(Source, decompresses_gzip_and_zstandard) {
  const TempFolder folder;
  std::vector<std::string> texts;
  const std::string lines = many_lines(texts);
  const std::string half = lines.substr(0, lines.size() / 2), rest = lines.substr(lines.size() / 2);
  expect_texts(folder.file("a.jsonl", lines), texts);
  expect_texts(folder.file("a.jsonl.gz", gzip(lines)), texts);
  expect_texts(folder.file("b.jsonl.gz", gzip(half) + gzip(rest)), texts);
  expect_texts(folder.file("a.jsonl.zst", zstd(lines)), texts);
  expect_texts(folder.file("b.jsonl.zst", zstd(half) + zstd(rest)), texts);
  EXPECT_EQ(read_all(folder.file("a.txt.gz", gzip("plain")))[0].text, "plain");
}

TEST(Source, damaged_compressed_files_are_errors) {
  const TempFolder folder;
  std::vector<std::string> texts;
  const std::string lines = many_lines(texts);
  for (const bool use_gzip : {true, false}) {
    const std::string whole = use_gzip ? gzip(lines) : zstd(lines);
    const std::string suffix = use_gzip ? ".gz" : ".zst";
    const auto cut = folder.file("cut.jsonl" + suffix, whole.substr(0, whole.size() - 9));
    expect_error(error_of([&] { read_all(cut); }), ErrorKind::corrupt, {"cut.jsonl", "too early"});
    std::string bent = whole;
    for (size_t i = 0; i < 64; ++i) bent[bent.size() / 2 + i] = static_cast<char>(bent[bent.size() / 2 + i] ^ 0x5a);
    const auto damaged = folder.file("bent.jsonl" + suffix, bent);
    EXPECT_EQ(error_of([&] { read_all(damaged); }).kind(), ErrorKind::corrupt);
    const auto wrong = folder.file("plain.jsonl" + suffix, lines);
    expect_error(error_of([&] { read_all(wrong); }), ErrorKind::corrupt, {"plain.jsonl", "does not start as"});
  }
}

struct BadLine {
  const char* line;
  const char* words;
};

TEST(Source, bad_lines_are_named_with_what_is_wrong) {
  const TempFolder folder;
  const BadLine texts[] = {{"{\"text\": \"a\"", "not JSON"},
                           {"[1]", "array"},
                           {"{\"texts\": \"a\"}", "needs \"text\"; this one has \"texts\""},
                           {"{\"text\": 3}", "\"text\" must be a string, not of type number"},
                           {"{\"text\": \"\"}", "\"text\" is empty"},
                           {"{\"text\": \"\xff\"}", "not JSON"}};
  for (const BadLine& bad : texts) {
    const auto path =
        folder.file("t.jsonl", std::string("{\"text\": \"good\"}\n\n") + bad.line + "\n{\"text\": \"also\"}\n");
    expect_error(error_of([&] { read_all(path); }), ErrorKind::corrupt, {"t.jsonl line 3: ", bad.words});
    DocumentReader reader(path, Format::automatic, OnError::skip);
    Document document;
    ASSERT_TRUE(reader.next(document));
    ASSERT_TRUE(reader.next(document));
    EXPECT_EQ(document.text, "also");
    EXPECT_EQ(document.line, 4);
    EXPECT_FALSE(reader.next(document));
    EXPECT_EQ(reader.num_skipped(), 1);
    EXPECT_NE(reader.first_skipped().find(bad.words), std::string::npos) << reader.first_skipped();
  }
  const BadLine others[] = {
      {R"({"messages": []})", "at least one message"},
      {R"({"messages": [{"content": "a"}]})", "message 0 is not an object with a string \"role\""},
      {R"({"messages": [{"role": "user", "content": "a"}]})", "assistant"},
      {R"({"messages": [{"role": "assistant"}]})", "message 0 has no \"content\""},
      {R"({"messages": [{"role": "assistant", "content": 1}]})", "\"content\" of message 0 must be a string"},
      {R"({"messages": [{"role": "assistant", "content": [{"type": "image"}]}]})", "not text"},
      {R"({"messages": [{"role": "assistant", "content": "a"}], "tools": {}})", "\"tools\" must be a list"},
      {R"({"instruction": "a"})", "needs \"output\""},
      {R"({"prompt": "a", "completion": ""})", "\"completion\" is empty"},
      {R"({"conversations": []})", "its keys are \"conversations\""}};
  for (const BadLine& bad : others) {
    const auto path = folder.file("o.jsonl", bad.line);
    expect_error(error_of([&] { read_all(path); }), ErrorKind::corrupt, {"o.jsonl line 1: ", bad.words});
  }
}

TEST(Source, a_record_of_another_format_than_asked_for_is_an_error) {
  const TempFolder folder;
  const auto path = folder.file("a.jsonl", "{\"text\": \"x\"}\n");
  expect_error(error_of([&] { read_all(path, Format::chat); }), ErrorKind::corrupt, {"line 1", "\"messages\""});
  const auto plain = folder.file("a.txt", "x");
  expect_error(error_of([&] { read_all(plain, Format::chat); }), ErrorKind::usage, {"a.txt", "chat"});
}

TEST(Source, files_that_are_no_data_are_errors) {
  const TempFolder folder;
  expect_error(error_of([&] { read_all(folder.path() / "none.jsonl"); }), ErrorKind::not_found,
               {"none.jsonl", "no such file"});
  expect_error(error_of([&] { read_all(folder.path()); }), ErrorKind::usage, {"folder"});
  for (const char* name : {"empty.jsonl", "empty.txt", "empty"}) {
    const auto path = folder.file(name, "");
    expect_error(error_of([&] { read_all(path); }), ErrorKind::corrupt, {name, "no documents"});
    const auto blank = folder.file(name, "\n  \n");
    expect_error(error_of([&] { read_all(blank); }), ErrorKind::corrupt, {name, "no documents"});
  }
  const auto bad = folder.file("bad.jsonl", "x\ny\n");
  expect_error(error_of([&] { read_all(bad, Format::automatic, OnError::skip); }), ErrorKind::corrupt,
               {"bad.jsonl", "all 2 lines", "line 1: is not JSON"});
  const auto parquet = folder.file("a.parquet", "x");
  expect_error(error_of([&] { read_all(parquet); }), ErrorKind::unsupported, {"a.parquet", "Parquet", "to_json"});
  const auto hidden = folder.file("b.bin", "PAR1....PAR1");
  expect_error(error_of([&] { read_all(hidden); }), ErrorKind::unsupported, {"b.bin", "Parquet"});
  const auto array = folder.file("c.json", "[{\"text\": \"x\"}]");
  expect_error(error_of([&] { read_all(array); }), ErrorKind::unsupported, {"c.json", "array", "jq"});
  const auto unknown = folder.file("d.bin", "hello");
  expect_error(error_of([&] { read_all(unknown); }), ErrorKind::usage, {"d.bin", "format"});
  const auto latin = folder.file("e.txt", "caf\xe9");
  expect_error(error_of([&] { read_all(latin); }), ErrorKind::corrupt, {"e.txt", "UTF-8", "iconv"});
}

TEST(Source, setting_words) {
  for (const Format format : {Format::automatic, Format::chat, Format::instruction, Format::completion, Format::text}) {
    EXPECT_EQ(parse_format(name(format)), format);
  }
  expect_error(error_of([] { parse_format("alpaca"); }), ErrorKind::usage, {"alpaca", "instruction"});
  EXPECT_EQ(parse_on_error("skip"), OnError::skip);
  EXPECT_EQ(parse_on_error("stop"), OnError::stop);
  expect_error(error_of([] { parse_on_error("go"); }), ErrorKind::usage, {"go", "stop or skip"});
}

}  // namespace
}  // namespace ingot::data
