// Documents that were tokenized elsewhere: the rows of a .npy file.
//
// - An array of integers: [n], one document; [r, n], a document a row. Everything counts, and it may be cut anywhere.
// - An array of objects: a document an item, a list or an array of integers, in which everything counts, or a dict of
//   such under these keys:
//
//   input_ids                 the tokens
//   labels                    Hugging Face's: the token itself where predicting it counts, -100 where it does not
//   loss_mask                 NeMo's, and MLPerf's GovReport: 1 where predicting the token behind this one counts
//   attention_mask            1, and 0 for padding at the end, which is left out
//   seq_start_id              where the documents of a packed row begin: from 0, ascending; each becomes one of ours
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "data/document.h"
#include "formats/npy.h"

namespace ingot::data {

class TokenRows {
 public:
  // Errors: as formats::NpyFile; unsupported for an array of other numbers or of more than two dimensions.
  explicit TokenRows(const std::filesystem::path& path);

  // The next document, of format tokens; false at the end. Errors: corrupt for a row that is none of the above, saying
  // what is wrong but not where; the next call goes on with the row behind it.
  bool next(Document& document);
  int64_t row() const { return row_; }  // the one given or refused last, from 1

 private:
  std::vector<int64_t> numbers(formats::PickleValue value, std::string_view key) const;
  Document read_numbers(int64_t row) const;
  void read_object(formats::PickleValue row);
  void read_dict(formats::PickleValue row);
  void set_marks(formats::PickleValue row, Document& document) const;

  formats::NpyFile file_;
  int64_t num_rows_ = 0;
  int64_t row_ = 0;
  std::vector<Document> left_;  // of the row, the next one last
};

}  // namespace ingot::data
