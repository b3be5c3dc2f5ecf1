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

// Lines of very different lengths that span several read buffers. The middle one compresses to almost nothing.
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

TEST(Source, DetectsTheFormatFromTheFirstRecord) {
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

TEST(Source, ReadsChatsWithPartsToolsAndOtherKeys) {
  const TempFolder folder;
  const auto documents = read_all(folder.file(
      "d.jsonl",
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, )"
      R"({"type": "text", "text": "b"}]}, {"role": "assistant", "content": null, "tool_calls": [{"function": )"
      R"({"name": "f", "arguments": "{\"x\": [1, 2.5]}"}}, {"name": "g", "arguments": {}}]}], )"
      R"("tools": [{"name": "f"}]})"));
  ASSERT_EQ(documents.size(), 1U);
  EXPECT_EQ(documents[0].format, Format::chat);
  EXPECT_EQ(documents[0].messages,
            R"([{"role":"user","content":"ab"},{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f",)"
            R"("arguments":{"x":[1,2.5]}}},{"name":"g","arguments":{}}]}])")
      << "arguments given as a JSON string become an object";
  EXPECT_EQ(documents[0].tools, R"([{"name":"f"}])");
}

TEST(Source, SharegptTurnsBecomeMessages) {
  const TempFolder folder;
  const auto path = folder.file(
      "s.jsonl", R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})"
                 "\n"
                 R"({"system": "S", "tools": "[{\"name\": \"f\"}]", "conversations": [{"from": "user", "value": "q"}, )"
                 R"({"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}, )"
                 R"({"from": "observation", "value": "7"}, {"from": "assistant", "value": "a"}]})"
                 "\n"
                 R"({"system": "", "tools": "", "conversations": [{"from": "system", "value": "S"}, )"
                 R"({"from": "gpt", "value": "a"}]})");
  DocumentReader reader(path, Format::automatic, OnError::stop);
  Document document;
  ASSERT_TRUE(reader.next(document));
  EXPECT_EQ(reader.format(), Format::sharegpt);
  EXPECT_EQ(document.format, Format::chat);
  EXPECT_EQ(document.messages, R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"}])");
  ASSERT_TRUE(reader.next(document));
  EXPECT_EQ(document.messages,
            R"([{"role":"system","content":"S"},{"role":"user","content":"q"},{"role":"assistant","content":"",)"
            R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
            R"({"role":"tool","content":"7"},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(document.tools, R"([{"name":"f"}])");
  ASSERT_TRUE(reader.next(document));
  EXPECT_EQ(document.messages, R"([{"role":"system","content":"S"},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(document.tools, "");
  EXPECT_FALSE(reader.next(document));
}

TEST(Source, APlainTextFileIsOneDocument) {
  const TempFolder folder;
  const auto documents = read_all(folder.file("a.txt", "\xef\xbb\xbf{one}\r\n\ntwo\n"));
  ASSERT_EQ(documents.size(), 1U);
  EXPECT_EQ(documents[0].text, "{one}\r\n\ntwo\n");
  EXPECT_EQ(documents[0].format, Format::text);
  EXPECT_EQ(read_all(folder.file("novel", "It was"), Format::text)[0].text, "It was");
  EXPECT_EQ(read_all(folder.file("lines", "\n {\"text\": \"x\"}"))[0].text, "x");
}

TEST(Source, DecompressesGzipAndZstandard) {
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

TEST(Source, DamagedCompressedFilesAreErrors) {
  const TempFolder folder;
  std::vector<std::string> texts;
  const std::string lines = many_lines(texts);
  for (const bool use_gzip : {true, false}) {
    const std::string whole = use_gzip ? gzip(lines) : zstd(lines);
    const std::string suffix = use_gzip ? ".gz" : ".zst";
    const auto cut = folder.file("cut.jsonl" + suffix, whole.substr(0, whole.size() - 9));
    const std::string place = "near byte " + std::to_string(whole.size() - 9);
    expect_error(error_of([&] { read_all(cut); }), ErrorKind::corrupt, {"cut.jsonl", place.c_str(), "too early"});
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

TEST(Source, BadLinesAreNamedWithTheReason) {
  const TempFolder folder;
  const BadLine texts[] = {{"{\"text\": \"a\"", "not JSON"},
                           {"[1]", "array"},
                           {"{\"texts\": \"a\"}", "needs \"text\"; this one has \"texts\""},
                           {"{\"text\": 3}", "\"text\" must be a string, not of type number"},
                           {"{\"text\": \"\"}", "\"text\" is empty"},
                           {"{\"text\": \"\xff\"}", "is not UTF-8: error at byte 11"},
                           {"{\"text\": \"\\ud800\"}", "not JSON"},
                           {"{\"text\": \"a\", \"text\": \"b\"}", "the key \"text\" is written twice"},
                           {"{\"text\": \"a\", \"n\": 1e999}", "a number before byte 24 is too large"},
                           {"{\"text\": \"a\"} {}", "not JSON"}};
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
      {R"({"messages": [{"role": "assistant", "content": null, "function_call": {}}]})", "\"function_call\""},
      {R"({"messages": [{"role": "assistant", "tool_calls": {}}]})", "\"tool_calls\" of message 0 must be a list"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [1]}]})", "tool call 0 of message 0 is not an object"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": 1}]}]})", "\"function\" of tool call 0"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]})", "no string \"name\""},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}]})",
       "the \"arguments\" of tool call 0 of message 0: is not JSON"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "3"}]}]})",
       "is a JSON value of type number, not an object"},
      {R"({"messages": [{"role": "assistant", "content": "a", "weight": 0.5}]})", "\"weight\" of message 0"},
      {R"({"conversations": []})", "at least one turn"},
      {R"({"conversations": [{"from": "human"}]})", "turn 0 is not an object with strings"},
      {R"({"conversations": [{"from": "human", "value": "q"}]})", "no assistant message"},
      {R"({"conversations": [{"from": "narrator", "value": "q"}]})", "turn 0 is from 'narrator'"},
      {R"({"conversations": [{"from": "function_call", "value": "f of x"}]})", "function_call of turn 0: is not JSON"},
      {R"({"conversations": [{"from": "function_call", "value": "{}"}]})", "no string \"name\""},
      {R"({"conversations": [{"from": "gpt", "value": "a"}], "tools": "{"})", "not JSON"},
      {R"({"conversations": [{"from": "gpt", "value": "a"}], "system": 1})", "\"system\" must be a string"},
      {R"({"dialog": []})", "its keys are \"dialog\""}};
  for (const BadLine& bad : others) {
    const auto path = folder.file("o.jsonl", bad.line);
    expect_error(error_of([&] { read_all(path); }), ErrorKind::corrupt, {"o.jsonl line 1: ", bad.words});
  }
}

TEST(Source, ARecordOfAnotherFormatThanAskedForIsAnError) {
  const TempFolder folder;
  const auto path = folder.file("a.jsonl", "{\"text\": \"x\"}\n");
  expect_error(error_of([&] { read_all(path, Format::chat); }), ErrorKind::corrupt, {"line 1", "\"messages\""});
  const auto plain = folder.file("a.txt", "x");
  expect_error(error_of([&] { read_all(plain, Format::chat); }), ErrorKind::usage, {"a.txt", "chat"});
}

std::string repeated(const std::string& piece, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(Source, LinesThatExpandBeyondTheirLengthAreBadLines) {
  const TempFolder folder;
  std::string many_keys = "{\"text\": \"a\"";
  for (int i = 0; i < 1100; ++i) many_keys += ", \"" + std::to_string(i) + "\": 0";
  const std::pair<std::string, const char*> lines[] = {
      {"{\"text\": \"a\", \"deep\": " + std::string(100'000, '['), "nested deeper than 200 levels"},
      {"{\"text\": \"a\", \"deep\": " + repeated("{\"a\": ", 100'000), "nested deeper than 200 levels"},
      {many_keys + "}", "more than 1024 keys"},
      {"{\"text\": \"a\", \"zeros\": [0" + repeated(", 0", 1 << 20) + "]}", "more than 1048576 values"},
      {"{\"text\": \"" + std::string(LineReader::max_line_bytes, 'a') + "\"}", "is longer than 64 MiB"}};
  for (const auto& [line, words] : lines) {
    const auto path = folder.file("big.jsonl", "{\"text\": \"x\"}\n" + line + "\n{\"text\": \"y\"}\n");
    expect_error(error_of([&] { read_all(path); }), ErrorKind::corrupt, {"big.jsonl line 2: ", words});
    const auto documents = read_all(path, Format::automatic, OnError::skip);
    ASSERT_EQ(documents.size(), 2U) << words;
    EXPECT_EQ(documents[1].text, "y");
    EXPECT_EQ(documents[1].line, 3);
  }
}

TEST(Source, EndlessCompressedDataIsBounded) {
  const TempFolder folder;
  std::string bomb;
  const std::string member = gzip(std::string(size_t{1} << 20, 'a'));
  for (int i = 0; i < 65; ++i) bomb += member;
  const auto text = folder.file("bomb.txt.gz", bomb);
  LineReader reader(ByteStream(text), size_t{3} << 20);
  expect_error(error_of([&] { reader.rest(); }), ErrorKind::resource, {"bomb.txt.gz", "more than 3 MiB"});
  const auto line = folder.file("bomb.jsonl.gz", gzip("{\"text\": \"") + bomb);
  expect_error(error_of([&] { read_all(line); }), ErrorKind::corrupt, {"bomb.jsonl.gz line 1", "longer than 64 MiB"});
}

TEST(Source, ZstandardWithALargeWindowIsAnError) {
  const TempFolder folder;
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);  // otherwise the window shrinks to the content
  std::string input = "{\"text\": \"a\"}\n";
  std::string out(ZSTD_compressBound(input.size()), '\0');
  ZSTD_inBuffer from{input.data(), input.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  while (ZSTD_compressStream2(context, &to, &from, ZSTD_e_flush) != 0) {
  }
  ZSTD_compressStream2(context, &to, &from, ZSTD_e_end);
  out.resize(to.pos);
  ZSTD_freeCCtx(context);
  const auto wide = folder.file("wide.jsonl.zst", out);
  expect_error(error_of([&] { read_all(wide); }), ErrorKind::unsupported, {"wide.jsonl.zst", "128 MiB", "--long"});

  // Preceded by a skippable frame of three bytes (RFC 8878, 3.1.2).
  const std::string skippable("\x5a\x2a\x4d\x18\x03\x00\x00\x00xyz", 11);
  EXPECT_EQ(read_all(folder.file("seekable.jsonl.zst", skippable + zstd(input)))[0].text, "a");
}

TEST(Source, UnsupportedFileTypesAreNamedWithARemedy) {
  const TempFolder folder;
  struct File {
    std::string bytes;
    const char* kind;
    const char* command;
  };
  const File files[] = {{"BZh91AY", "bzip2", "bunzip2"},
                        {"\xfd"
                         "7zXZ",
                         "xz", "unxz"},
                        {"PK\x03\x04", "zip archive", "unzip"},
                        {"ARROW1", "Arrow", "read_feather"},
                        {std::string("\xff\xfe{\0", 4), "UTF-16", "iconv"},
                        {gzip("PAR1"), "Parquet", "to_json"}};
  for (const auto& [bytes, kind, command] : files) {
    const auto path = folder.file("data.jsonl", bytes);
    expect_error(error_of([&] { read_all(path); }), ErrorKind::unsupported, {kind, command});
  }
}

TEST(Source, FilesWithoutDataAreErrors) {
  const TempFolder folder;
  expect_error(error_of([&] { read_all(folder.path() / "none.jsonl"); }), ErrorKind::not_found,
               {"none.jsonl", "no such file"});
  expect_error(error_of([&] { read_all(folder.path()); }), ErrorKind::not_found, {"folder"});
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

TEST(Source, ParsesSettings) {
  for (const Format format :
       {Format::automatic, Format::chat, Format::sharegpt, Format::instruction, Format::completion, Format::text}) {
    EXPECT_EQ(parse_format(name(format)), format);
  }
  expect_error(error_of([] { parse_format("alpaca"); }), ErrorKind::usage, {"alpaca", "instruction"});
  EXPECT_EQ(parse_on_error("skip"), OnError::skip);
  EXPECT_EQ(parse_on_error("stop"), OnError::stop);
  expect_error(error_of([] { parse_on_error("go"); }), ErrorKind::usage, {"go", "stop or skip"});
}

}  // namespace
}  // namespace ingot::data
