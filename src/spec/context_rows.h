// Which rows of a batch context-parallel ranks have, and by what their attention communicates.
#pragma once

#include <cstdint>
#include <vector>

#include "spec/slice.h"

namespace ingot::spec {

// a2a: ranks exchange heads, and each has consecutive rows (nn/head_exchange.h). allgather: ranks gather the keys and
// values of all rows (nn/key_value_gather.h). p2p: these pass from rank to rank (nn/key_value_ring.h). The names are
// those of Megatron-LM's --cp-comm-type.
enum class CpCommType { a2a, allgather, p2p };

// The rows of rank `rank` of `ranks`, of a batch of `rows`, in order. For allgather and p2p, whose attention costs a
// row as much as it has rows before it, the batch is divided into 2 x `ranks` chunks, of which a rank has one from the
// beginning and one from the end (Llama 3: arXiv 2407.21783, section 3.3.2): numbers `rank` and 2 x `ranks` - 1 -
// `rank`. `rows` is a multiple of the parts, their number.
std::vector<Range> context_rows(CpCommType type, int64_t rank, int64_t ranks, int64_t rows);
int64_t context_parts(CpCommType type, int64_t ranks);

}  // namespace ingot::spec
