// Documents that were tokenized elsewhere: the rows of a .npy file.
//
// - An array of integers: [n], one document; [r, n], one document per row. All tokens are in the loss, and the document
//   may be split at any token.
// - An array of objects, one document each: a list or an array of integers, all in the loss, or a dict of lists or
//   arrays with these keys:
//
//   input_ids                 the tokens
//   labels                    as in Hugging Face: the token itself, or -100 where its prediction is not in the loss
//   loss_mask                 as in NeMo and MLPerf's GovReport: 1 where the next token's prediction is in the loss
//   attention_mask            1, and 0 for padding at the end, which is removed
//   seq_start_id              starts of the documents of a packed row: ascending from 0; each becomes one document
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

  // The next document, of format tokens; false at the end. Errors: corrupt for a row in none of the forms above, saying
  // what is wrong but not where; the next call continues with the next row.
  bool next(Document& document);
  int64_t row() const { return row_; }  // number of the row last returned or rejected, from 1

 private:
  std::vector<int64_t> numbers(formats::PickleValue value, std::string_view key) const;
  Document read_numbers(int64_t row) const;
  void read_object(formats::PickleValue row);
  void read_dict(formats::PickleValue row);
  void set_loss_mask(formats::PickleValue row, Document& document) const;

  formats::NpyFile file_;
  int64_t num_rows_ = 0;
  int64_t row_ = 0;
  std::vector<Document> remaining_;  // remaining documents of the row, the next one last
};

}  // namespace ingot::data
