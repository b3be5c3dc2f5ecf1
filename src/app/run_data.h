// The data of a run, as a recipe names it.
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

namespace ingot::app {

struct RunData {
  std::unique_ptr<data::SequenceSet> train;
  std::unique_ptr<data::Order> order;       // of train
  std::unique_ptr<data::SequenceSet> eval;  // null without held-out data
  bool is_chat = false;                     // train was rendered by the model's chat template
};

// Reads, and says in the log what there is. `vocabulary`: of the model. Where the order depends on the length of the
// run, the recipe's becomes one in steps. Errors: not_found for a model without a tokenizer where text is read; usage
// for sources that the recipe's order does not go with; else as Dataset::build and MegatronDataset::build.
RunData read_run_data(train::Recipe& recipe, const checkpoint::TextAssets& text, int64_t vocabulary,
                      ThreadPool& threads, const Log& log);

// The training data alone, with data.order: megatron.
data::MegatronDataset read_megatron(train::Recipe& recipe, int64_t vocabulary, std::optional<int32_t> pad_id);

// What data.split holds out of it, each sample once, in any order; null where that is nothing, which the log says where
// it was asked for.
std::unique_ptr<data::MegatronDataset> read_megatron_split(const train::Recipe& recipe, int64_t vocabulary,
                                                           std::optional<int32_t> pad_id, const Log& log);

// StreamingDataset's order of the MDS folders that data.train names. Errors: usage for a source that is none; those of
// StreamingOrder and formats::MdsFolder.
data::StreamingOrder read_streaming_order(const train::Recipe& recipe);

}  // namespace ingot::app
