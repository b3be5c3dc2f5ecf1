#include "data/tokenize_job.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "base/file.h"
#include "formats/megatron.h"
#include "tests/data/byte_tokenizer.h"
#include "tests/data/megatron_source.h"
#include "tests/data/temp_folder.h"
#include "tests/locations.h"
#include "tests/storage/loopback_server.h"
#include "tests/storage/s3_server.h"

namespace ingot::data {
namespace {

class TokenizeJobTest : public testing::Test {
 protected:
  TokenizeJobTest() {
    std::string lines;
    for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"document number " + std::to_string(i) + "\"}\n";
    job_.inputs = {folder_.file("a.jsonl", lines), folder_.file("b.txt", "The last one."),
                   folder_.file("c.jsonl", "{\"text\": \"z\"}\n")};
    job_.prefix = folder_.path() / "out";
    job_.tokenizer = "bytes";
  }

  // Tokenizes until `batches` batches were reported.
  TokenizeTotals run(int batches = 1000, int threads = 1) const {
    ThreadPool pool(threads);
    return tokenize_files(job_, *tokenizer_, pool, [&](const TokenizeTotals&) { return --batches > 0; });
  }
  std::string written(const char* suffix) const { return read_file(job_.prefix.string() + suffix); }
  void refused(ErrorKind kind, const std::string& part) const {
    try {
      run();
      ADD_FAILURE() << "expected an error with: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(name(error.kind()), std::string(name(kind)));
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
  }
  size_t files() const {
    size_t number = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_.path())) ++number;
    return number;
  }

  TempFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_ = byte_tokenizer();
  TokenizeJob job_;
};

// Token rows with a loss mask: Megatron data sets cannot store one.
TEST_F(TokenizeJobTest, MasksAreRefused) {
  job_.inputs = {std::filesystem::path(test_data) / "formats/npy/govreport.npy"};
  refused(ErrorKind::unsupported, "counts in the loss");
}

TEST_F(TokenizeJobTest, DocumentsBecomeSequencesThatEndWithEos) {
  const TokenizeTotals totals = run();
  EXPECT_TRUE(totals.finished);
  EXPECT_EQ(totals.num_documents, 3002);
  EXPECT_EQ(totals.num_files, 3);
  const formats::MegatronFile file(job_.prefix);
  EXPECT_EQ(file.dtype(), formats::MegatronDtype::u16);
  EXPECT_EQ(file.num_sequences(), totals.num_documents);
  EXPECT_EQ(file.num_documents(), totals.num_documents);
  EXPECT_EQ(file.num_tokens(), totals.num_tokens);
  std::vector<int32_t> ids(static_cast<size_t>(file.length(7)));
  file.read(7, 0, ids);
  EXPECT_EQ(ids.back(), tokenizer_->eos_id());
  EXPECT_EQ(tokenizer_->decode(ids, true), "document number 7");
  EXPECT_EQ(files(), 5U);
  refused(ErrorKind::usage, "already exists");
}

TEST_F(TokenizeJobTest, ContinuesAfterAnInterruption) {
  run();
  const std::string index = written(".idx"), tokens = written(".bin");
  for (int batches = 1; batches <= 4; ++batches) {
    job_.prefix = folder_.path() / ("stopped" + std::to_string(batches));
    const TokenizeTotals first = run(batches, 3);
    EXPECT_FALSE(first.finished);
    EXPECT_FALSE(formats::is_megatron(job_.prefix));
    // Output that a killed process wrote after its last progress note is discarded.
    FileWriter(job_.prefix.string() + ".bin", WriteMode::resume).write("more");
    const TokenizeTotals second = run(1, 2);
    EXPECT_EQ(second.resumed_at, first.num_documents);
    if (!second.finished) EXPECT_TRUE(run().finished);
    EXPECT_EQ(written(".idx"), index) << batches;
    EXPECT_EQ(written(".bin"), tokens) << batches;
  }
  EXPECT_EQ(files(), 5U + 8U);
}

TEST_F(TokenizeJobTest, NotesOfAnotherJobAreAnError) {
  run(1);
  job_.end_of_document = false;
  refused(ErrorKind::usage, "belongs to another job");
  job_.end_of_document = true;
  std::filesystem::resize_file(job_.prefix.string() + ".lengths.partial", 3);
  refused(ErrorKind::corrupt, "too few for");
  write_file(job_.prefix.string() + ".progress", "{\"version\": 2}");
  refused(ErrorKind::unsupported, ".progress: is a tokenization progress of format version 2");
  write_file(job_.prefix.string() + ".progress", "[]");
  refused(ErrorKind::corrupt, "does not hold the progress");
  std::filesystem::remove(job_.prefix.string() + ".progress");
  EXPECT_EQ(run().resumed_at, 0);
}

// A second process with the same job leaves a running one's files alone.
TEST_F(TokenizeJobTest, ASecondProcessIsRefusedWhileTheFirstRuns) {
  ThreadPool pool(1);
  bool tried = false;
  const TokenizeTotals totals = tokenize_files(job_, *tokenizer_, pool, [&](const TokenizeTotals&) {
    if (!tried) refused(ErrorKind::unavailable, "another process");
    tried = true;
    return true;
  });
  EXPECT_TRUE(tried);
  EXPECT_EQ(formats::MegatronFile(job_.prefix).num_documents(), totals.num_documents);
  EXPECT_EQ(files(), 5U);
}

// The process is killed after .bin was published and before .idx was, or before the notes were removed.
TEST_F(TokenizeJobTest, ContinuesAfterAKillDuringPublishing) {
  run();
  const std::string index = written(".idx"), tokens = written(".bin");
  for (const bool indexed : {false, true}) {
    job_.prefix = folder_.path() / ("killed" + std::to_string(indexed));
    const auto at_last = [&](const TokenizeTotals& now) { return now.num_documents < 3002; };
    ThreadPool pool(1);
    EXPECT_FALSE(tokenize_files(job_, *tokenizer_, pool, at_last).finished);
    // The note written before publishing: all input files have been read.
    const std::string notes = job_.prefix.string() + ".progress";
    std::string text = read_file(notes);
    text.replace(text.find("\"file\": 2"), 9, "\"file\": 3");
    write_file(notes, text);
    std::filesystem::rename(job_.prefix.string() + ".bin.partial", job_.prefix.string() + ".bin");
    if (indexed) write_file(job_.prefix.string() + ".idx", index);
    const TokenizeTotals totals = run();
    EXPECT_TRUE(totals.finished);
    EXPECT_EQ(totals.num_documents, 3002);
    EXPECT_EQ(totals.resumed_at, 3002);
    EXPECT_EQ(written(".idx"), index);
    EXPECT_EQ(written(".bin"), tokens);
  }
  EXPECT_EQ(files(), 5U + 4U);
}

// Documents with tokens outside the vocabulary count as bad lines.
TEST_F(TokenizeJobTest, TokensOutsideTheVocabularyAreSkipped) {
  const std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2), }";
  std::string npy = std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + header +
                    std::string(117 - header.size(), ' ') + "\n";
  const std::array<int32_t, 6> rows = {1, 2, 3, 1 << 20, 4, 5};
  npy.append(reinterpret_cast<const char*>(rows.data()), sizeof rows);
  job_.inputs = {folder_.file("rows.npy", npy)};
  refused(ErrorKind::corrupt, "rows.npy row 2");
  job_.on_error = OnError::skip;
  const TokenizeTotals totals = run();
  EXPECT_EQ(totals.num_documents, 2);
  EXPECT_EQ(totals.num_skipped, 1);
  EXPECT_NE(totals.first_skipped.find("rows.npy row 2"), std::string::npos) << totals.first_skipped;
}

TEST_F(TokenizeJobTest, WritesDocumentsWithoutEos) {
  const int64_t with = run().num_tokens;
  job_.prefix = folder_.path() / "bare";
  job_.end_of_document = false;
  EXPECT_EQ(run().num_tokens, with - 3002);
}

TEST_F(TokenizeJobTest, BadLinesAreSkippedOrErrors) {
  job_.inputs = {folder_.file("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n{\"text\": \"b\"}\n")};
  refused(ErrorKind::corrupt, "bad.jsonl line 2");
  std::filesystem::remove(job_.prefix.string() + ".progress");
  job_.on_error = OnError::skip;
  const TokenizeTotals totals = run();
  EXPECT_EQ(totals.num_documents, 2);
  EXPECT_EQ(totals.num_skipped, 1);
  job_.prefix = folder_.path() / "chat";
  job_.inputs = {folder_.file("chat.jsonl", R"({"prompt": "a", "completion": "b"})")};
  refused(ErrorKind::unsupported, "has the format completion");
  job_.inputs.clear();
  refused(ErrorKind::usage, "no file");
}

// The error is that of the first bad line in file order, whichever thread reads it.
TEST_F(TokenizeJobTest, ReportsTheFirstBadLineForAnyNumberOfThreads) {
  std::string lines;
  for (int i = 1; i <= 5000; ++i) {
    lines += i == 2600 || i == 2601 ? "{\"text\": 3}\n" : "{\"text\": \"a\"}\n";
  }
  lines += "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  job_.inputs = {folder_.file("bad.jsonl", lines)};
  for (const int threads : {1, 4}) {
    try {
      run(1000, threads);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("bad.jsonl line 2600"), std::string::npos) << error.message();
    }
  }
  job_.inputs = {folder_.file("both.jsonl", "no\n{\"prompt\": \"a\", \"completion\": \"b\"}\n")};
  job_.prefix = folder_.path() / "both";
  refused(ErrorKind::corrupt, "both.jsonl line 1");
}

// Bad lines before the resume point were reported by the process that read them.
TEST_F(TokenizeJobTest, ContinuesAfterBadLines) {
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += i % 100 == 0 ? "bad\n" : "{\"text\": \"" + std::to_string(i) + "\"}\n";
  job_.inputs = {folder_.file("bad.jsonl", lines)};
  job_.on_error = OnError::skip;
  const TokenizeTotals whole = run(1000, 2);
  EXPECT_EQ(whole.num_documents, 2970);
  EXPECT_EQ(whole.num_skipped, 30);
  EXPECT_NE(whole.first_skipped.find("line 1:"), std::string::npos) << whole.first_skipped;
  const std::string index = written(".idx"), tokens = written(".bin");
  job_.prefix = folder_.path() / "stopped";
  const TokenizeTotals first = run(1, 2);
  EXPECT_FALSE(first.finished);
  const TokenizeTotals second = run(1000, 3);
  EXPECT_TRUE(second.finished);
  EXPECT_EQ(first.num_skipped + second.num_skipped, 30);
  EXPECT_EQ(written(".idx"), index);
  EXPECT_EQ(written(".bin"), tokens);
}

TEST_F(TokenizeJobTest, DetectsChangedRemoteInputs) {
  S3Server server;
  server.announce();
  ::setenv("INGOT_CACHE", (folder_.path() / "cache").c_str(), 1);
  const std::string lines = read_file(job_.inputs[0]);
  job_.inputs = {"s3://bucket/a.jsonl", "s3://bucket/rest"};
  server.put("bucket/a.jsonl", lines);
  write_source(folder_.path() / "m", {5, 7, 3}, 0);
  const auto put_rest = [&](const char* of) {
    for (const std::string suffix : {".idx", ".bin"}) {
      server.put("bucket/rest" + suffix, read_file(folder_.path() / (of + suffix)));
    }
  };
  put_rest("m");
  const TokenizeTotals first = run(2);
  EXPECT_FALSE(first.finished);
  std::string other = lines;
  other[other.find("document")] = 'D';
  server.put("bucket/a.jsonl", other);
  refused(ErrorKind::usage, "belongs to another job");
  server.put("bucket/a.jsonl", lines);
  write_source(folder_.path() / "n", {5, 3, 7}, 0);  // the same size in bytes
  put_rest("n");
  refused(ErrorKind::usage, "belongs to another job");
  put_rest("m");
  const TokenizeTotals rest = run();
  EXPECT_TRUE(rest.finished);
  EXPECT_EQ(rest.resumed_at, first.num_documents);
  EXPECT_EQ(rest.num_documents, 3000 + formats::MegatronFile(folder_.path() / "m").num_documents());
  EXPECT_EQ(server.problem(), "");
  job_.prefix = folder_.path() / "gone";
  job_.inputs.emplace_back("s3://bucket/gone.jsonl");
  refused(ErrorKind::not_found, "s3://bucket/gone.jsonl: there is no such file");
  ::unsetenv("INGOT_CACHE");
}

// The web server reports no versions and, without HEAD, no sizes: an interrupted job continues.
TEST_F(TokenizeJobTest, ContinuesWithAServerWithoutVersions) {
  const std::string lines = read_file(job_.inputs[0]);
  const LoopbackServer web([&](const std::string& head, int) {
    if (head.starts_with("HEAD "))
      return std::string("HTTP/1.1 403 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    return "HTTP/1.1 200 X\r\nContent-Length: " + std::to_string(lines.size()) + "\r\nConnection: close\r\n\r\n" +
           lines;
  });
  ::setenv("no_proxy", "127.0.0.1", 1);
  ::setenv("INGOT_CACHE", (folder_.path() / "cache").c_str(), 1);
  job_.inputs = {web.url("/a.jsonl")};
  const TokenizeTotals first = run(1);
  EXPECT_FALSE(first.finished);
  const TokenizeTotals rest = run();
  EXPECT_TRUE(rest.finished);
  EXPECT_EQ(rest.resumed_at, first.num_documents);
  ::unsetenv("INGOT_CACHE");
}

}  // namespace
}  // namespace ingot::data
