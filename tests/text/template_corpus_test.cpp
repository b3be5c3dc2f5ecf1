// Runs the fuzz targets of templates on their corpora.
#include "tests/fuzz/replay.h"
#include "tests/fuzz/templates.h"

namespace ingot::text {
namespace {

TEST(JinjaCorpus, IsAcceptedOrRefusedByName) { ingot::fuzz::replay("jinja", fuzz::render_template); }
TEST(ChatTemplateCorpus, IsAcceptedOrRefusedByName) { ingot::fuzz::replay("chat_template", fuzz::render_chat); }

}  // namespace
}  // namespace ingot::text
