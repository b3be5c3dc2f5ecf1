// The data of a run, as specified by its recipe.
#pragma once

#include <memory>
#include <optional>

#include "base/log.h"
#include "base/thread_pool.h"
#include "checkpoint/text_assets.h"
#include "data/megatron_dataset.h"
#include "data/order.h"
#include "data/sequence_set.h"
#include "data/streaming_order.h"
#include "train/recipe.h"

namespace ingot::runs {

struct RunData {
  std::unique_ptr<data::SequenceSet> train;
  std::unique_ptr<data::Order> order;       // order of `train`
  std::unique_ptr<data::SequenceSet> eval;  // null without held-out data
  bool is_chat = false;                     // whether `train` was rendered with the model's chat template
};

// Reads the data and logs a summary. `vocabulary`: the model's vocabulary size. Where the order depends on the length
// of the run, the recipe's length is converted to steps. Errors: not_found for a model without a tokenizer where text
// is read; usage for sources that do not support the recipe's order; else as Dataset::build and MegatronDataset::build.
RunData read_run_data(train::Recipe& recipe, const checkpoint::TextAssets& text, int64_t vocabulary,
                      ThreadPool& threads, const Log& log);

// Reads only the training data, for data.order: megatron.
data::MegatronDataset read_megatron(train::Recipe& recipe, int64_t vocabulary, std::optional<int32_t> pad_id);

// The held-out part of data.split, each sample once, in any order; null when it is empty, which is logged if it was
// requested.
std::unique_ptr<data::MegatronDataset> read_megatron_split(const train::Recipe& recipe, int64_t vocabulary,
                                                           std::optional<int32_t> pad_id, const Log& log);

// StreamingDataset's sample order for the MDS folders of data.train. Errors: usage for a source that is not an MDS
// folder; those of StreamingOrder and formats::MdsFolder.
data::StreamingOrder read_streaming_order(const train::Recipe& recipe);

}  // namespace ingot::runs
