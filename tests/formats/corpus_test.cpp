// Runs the fuzz targets of the file formats on their corpora.
#include "tests/formats/bytes.h"
#include "tests/fuzz/formats.h"
#include "tests/fuzz/replay.h"

namespace ingot::formats {
namespace {

void replay(const std::string& target, bool (*read)(std::span<const std::byte>)) {
  ingot::fuzz::replay(target, [&](const std::string& bytes) { return read(testing::as_span(bytes)); }, {.size = 4096});
}

TEST(SafetensorsCorpus, IsAcceptedOrRefusedByName) { replay("safetensors", fuzz::read_safetensors); }
TEST(GgufCorpus, IsAcceptedOrRefusedByName) { replay("gguf", fuzz::read_gguf); }
TEST(MegatronCorpus, IsAcceptedOrRefusedByName) { replay("megatron", fuzz::read_megatron); }
TEST(NpyCorpus, IsAcceptedOrRefusedByName) { replay("npy", fuzz::read_npy); }
TEST(MdsCorpus, IsAcceptedOrRefusedByName) { replay("mds", fuzz::read_mds); }

}  // namespace
}  // namespace ingot::formats
