#include "tests/backend/gpu/fakes/device_functions.h"

#include "tests/backend/gpu/fakes/collective.h"
#include "tests/backend/gpu/fakes/cudnn_call.h"
#include "tests/backend/gpu/fakes/gemm.h"

namespace fake {
namespace {

template <class Args>
constexpr DeviceFunction function() {
  return {Args::name, sizeof(Args), [](const void* args) { static_cast<const Args*>(args)->run(); }};
}
constexpr DeviceFunction functions[] = {function<Gemm>(), function<CudnnCall>(), function<CollectiveGroup>()};

}  // namespace

const DeviceFunction* find_device_function(std::string_view name) {
  for (const DeviceFunction& each : functions) {
    if (name == each.name) return &each;
  }
  return nullptr;
}

}  // namespace fake
