#include "backend/gpu/runtime/cudnn_backend.h"

#include "base/error.h"

namespace ingot::gpu::cudnn {

void Functions::check(Status status, const char* what) const {
  if (status == 0) return;
  char message[512] = {};
  GetLastErrorString(message, sizeof message - 1);
  throw_error(ErrorKind::unavailable, "cuDNN: {}: status {}{}{}", what, status, message[0] != '\0' ? ": " : "",
              message);
}

Descriptor::Descriptor(const Functions& functions, Kind kind) : functions_(&functions) {
  functions_->check(functions_->CreateDescriptor(kind, &descriptor_), "a descriptor");
}

Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) functions_->DestroyDescriptor(descriptor_);
}

Descriptor& Descriptor::set(int attribute, Type type, int64_t count, const void* values) {
  functions_->check(functions_->SetAttribute(descriptor_, attribute, type, count, values), "an attribute");
  return *this;
}

Descriptor& Descriptor::set_integers(int attribute, const std::vector<int64_t>& values) {
  return set(attribute, int64_type, static_cast<int64_t>(values.size()), values.data());
}

Descriptor& Descriptor::set_choice(int attribute, Type type, int value) { return set(attribute, type, 1, &value); }

Descriptor& Descriptor::set_flag(int attribute) {
  const bool yes = true;
  return set(attribute, boolean_type, 1, &yes);
}

Descriptor& Descriptor::set_pointers(int attribute, Type type, const std::vector<void*>& values) {
  return set(attribute, type, static_cast<int64_t>(values.size()), static_cast<const void*>(values.data()));
}

Descriptor& Descriptor::set_descriptors(int attribute, const std::vector<const Descriptor*>& values) {
  std::vector<void*> raw;
  for (const Descriptor* value : values) raw.push_back(value->get());
  return set_pointers(attribute, descriptor_type, raw);
}

void Descriptor::finalize(const char* what) { functions_->check(functions_->Finalize(descriptor_), what); }

int64_t Descriptor::integer(int attribute) const {
  int64_t value = 0;
  int64_t returned = 0;
  functions_->check(functions_->GetAttribute(descriptor_, attribute, int64_type, 1, &returned, &value), "an attribute");
  return value;
}

int Descriptor::choice(int attribute, Type type) const {
  int value = 0;
  int64_t returned = 0;
  functions_->check(functions_->GetAttribute(descriptor_, attribute, type, 1, &returned, &value), "an attribute");
  return value;
}

std::vector<Descriptor> Descriptor::descriptors(int attribute, Kind kind, size_t max_count) const {
  std::vector<Descriptor> made;
  std::vector<void*> raw;
  for (size_t i = 0; i < max_count; ++i) {
    made.emplace_back(*functions_, kind);
    raw.push_back(made.back().get());
  }
  int64_t returned = 0;
  functions_->check(functions_->GetAttribute(descriptor_, attribute, descriptor_type, static_cast<int64_t>(max_count),
                                             &returned, static_cast<void*>(raw.data())),
                    "an attribute");
  while (static_cast<int64_t>(made.size()) > returned) made.pop_back();
  return made;
}

}  // namespace ingot::gpu::cudnn
