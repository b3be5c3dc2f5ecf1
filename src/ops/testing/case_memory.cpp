#include "ops/testing/case_memory.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/half.h"
#include "tensor/block_quant.h"
#include "tensor/fp8.h"

namespace ingot::ops::testing {
namespace {

template <class T>
void put(std::vector<std::byte>& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}
template <class T>
T get(const std::vector<std::byte>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

bool is_real(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::bf16 || dtype == DType::f16;
}

std::vector<std::byte> encode(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::f32: put(bytes, i, static_cast<float>(values[i])); break;
      case DType::f64: put(bytes, i, values[i]); break;
      case DType::bf16: put(bytes, i, float_to_bf16(static_cast<float>(values[i]))); break;
      case DType::f16: put(bytes, i, float_to_f16(static_cast<float>(values[i]))); break;
      case DType::i8: put(bytes, i, static_cast<int8_t>(values[i])); break;
      case DType::u8: put(bytes, i, static_cast<uint8_t>(values[i])); break;
      case DType::i32: put(bytes, i, static_cast<int32_t>(values[i])); break;
      case DType::i64: put(bytes, i, static_cast<int64_t>(values[i])); break;
    }
  }
  return bytes;
}

std::vector<double> decode(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    switch (dtype) {
      case DType::f32: values[i] = static_cast<double>(get<float>(bytes, i)); break;
      case DType::f64: values[i] = get<double>(bytes, i); break;
      case DType::bf16: values[i] = static_cast<double>(bf16_to_float(get<uint16_t>(bytes, i))); break;
      case DType::f16: values[i] = static_cast<double>(f16_to_float(get<uint16_t>(bytes, i))); break;
      case DType::i8: values[i] = get<int8_t>(bytes, i); break;
      case DType::u8: values[i] = get<uint8_t>(bytes, i); break;
      case DType::i32: values[i] = get<int32_t>(bytes, i); break;
      case DType::i64: values[i] = static_cast<double>(get<int64_t>(bytes, i)); break;
    }
  }
  return values;
}

bool has_poison(DType dtype, const std::byte* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::f32: return std::isnan(as(0.0F));
    case DType::f64: return std::isnan(as(0.0));
    case DType::bf16: return std::isnan(bf16_to_float(as(uint16_t{0})));
    case DType::f16: return std::isnan(f16_to_float(as(uint16_t{0})));
    case DType::i32: return as(int32_t{0}) == unwritten_integer;
    case DType::i64: return as(int64_t{0}) == unwritten_integer;
    default: return false;
  }
}

OperandMemory::OperandMemory(Device& device, size_t bytes) : bytes_(bytes) {
  if (!device.host_visible()) {
    buffer_ = Buffer(device, bytes);
  } else if (posix_memalign(&heap_, 64, std::max<size_t>(bytes, 1)) != 0) {
    throw_error(ErrorKind::resource, "{} bytes of memory are needed", bytes);
  }
}

OperandMemory::OperandMemory(OperandMemory&& other) noexcept
    : bytes_(other.bytes_), heap_(std::exchange(other.heap_, nullptr)), buffer_(std::move(other.buffer_)) {}

OperandMemory::~OperandMemory() { std::free(heap_); }  // from posix_memalign

namespace {

// What outputs are filled with. Bytes have no value that no op computes, and no op has outputs of bytes.
std::vector<std::byte> poison(DType dtype, size_t count) {
  if (dtype == DType::i8 || dtype == DType::u8) throw_error(ErrorKind::internal, "an output of {}", name(dtype));
  const double value = is_real(dtype) ? std::numeric_limits<double>::quiet_NaN() : double{unwritten_integer};
  return encode(dtype, std::vector<double>(count, value));
}

// Encodes a weight's rows in a storage type that is not plain: from `values` where there is an encoder, else random
// blocks with scales of typical size.
std::vector<std::byte> encode_weight(StorageType storage, const Shape& shape, const std::vector<double>& values,
                                     RandomStream& random) {
  const size_t row = row_bytes(storage, shape[1]);
  std::vector<std::byte> bytes(row * static_cast<size_t>(shape[0]));
  const std::vector<float> floats(values.begin(), values.end());
  const auto for_rows = [&](auto encode_row) {
    for (int64_t r = 0; r < shape[0]; ++r) {
      encode_row(floats.data() + r * shape[1], bytes.data() + static_cast<size_t>(r) * row);
    }
  };
  if (is_fp8(storage)) {
    for_rows([&](const float* from, std::byte* to) { encode_fp8(storage, from, shape[1], to); });
    return bytes;
  }
  const BlockCodec& codec = block_codec(storage);
  if (codec.encode != nullptr) {
    for_rows([&](const float* from, std::byte* to) { codec.encode(from, shape[1], to); });
    return bytes;
  }
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next_u32());
  const size_t block = block_bytes(storage);
  for (size_t begin = 0; begin < bytes.size(); begin += block) {
    const auto set_half = [&](size_t offset, double value) {
      const uint16_t half = float_to_f16(static_cast<float>(value));
      std::memcpy(bytes.data() + begin + offset, &half, sizeof half);
    };
    const bool last = storage == StorageType::q6_k;
    set_half(last ? block - 2 : 0, 0.01 * random.normal());
    if (storage == StorageType::q5_1 || storage == StorageType::q4_k) set_half(2, 0.1 * random.normal());
  }
  return bytes;
}

std::vector<double> decode_weight(StorageType storage, const Shape& shape, const std::vector<std::byte>& bytes) {
  std::vector<float> floats(static_cast<size_t>(shape.elements()));
  const size_t row = row_bytes(storage, shape[1]);
  for (int64_t r = 0; r < shape[0]; ++r) {
    const std::byte* from = bytes.data() + static_cast<size_t>(r) * row;
    float* to = floats.data() + r * shape[1];
    if (is_fp8(storage)) {
      decode_fp8(storage, from, shape[1], 0, shape[1], to);
    } else {
      block_codec(storage).decode(from, shape[1], to);
    }
  }
  return {floats.begin(), floats.end()};
}

DType plain_dtype(StorageType storage) {
  switch (storage) {
    case StorageType::f32: return DType::f32;
    case StorageType::bf16: return DType::bf16;
    case StorageType::f16: return DType::f16;
    default: throw_error(ErrorKind::internal, "{} is not a plain type", name(storage));
  }
}

// Number of random values that fill operands of a large case by repetition: prime, so that rows differ.
constexpr size_t pool_elements = 1'048'573;

}  // namespace

CaseMemory::CaseMemory(Device& device, const OpCase& op_case, uint64_t seed) : device_(device), case_(op_case) {
  const size_t count = op_case.operands.size();
  values_.resize(count);
  arguments_.tensors.resize(count);
  arguments_.weights.resize(count);
  memory_.reserve(count);
  for (size_t i = 0; i < count; ++i) make(i, seed);
  for (size_t i = 0; i < count; ++i) {
    if (op_case.operands[i].alias >= 0) share(i);
  }
}

std::vector<std::byte> CaseMemory::bytes_of(size_t i) const {
  const Tensor& tensor = arguments_.tensors[i];
  std::vector<std::byte> bytes(tensor.bytes());
  device_.copy_to_host(bytes.data(), tensor.data, bytes.size());
  return bytes;
}

std::vector<double> CaseMemory::after(size_t i) const { return decode(case_.operands[i].dtype, bytes_of(i)); }

void CaseMemory::wait() const {
  std::byte one{};
  if (!memory_.empty()) device_.copy_to_host(&one, memory_[0].data(), std::min<size_t>(1, memory_[0].bytes()));
}

void CaseMemory::make(size_t i, uint64_t seed) {
  const Operand& operand = case_.operands[i];
  RandomStream random(seed, i);
  const size_t count = static_cast<size_t>(operand.shape.elements());
  if (case_.large && !operand.storage && count > pool_elements) return make_large(i, random);
  std::vector<double> wanted(count);
  if (operand.role != Role::output) operand.fill(wanted, random);
  std::vector<std::byte> bytes;
  DType dtype = operand.dtype;
  if (operand.storage && !is_plain(*operand.storage)) {
    bytes = encode_weight(*operand.storage, operand.shape, wanted, random);
    values_[i] = decode_weight(*operand.storage, operand.shape, bytes);
  } else {
    if (operand.storage) dtype = plain_dtype(*operand.storage);
    bytes = operand.role == Role::output ? poison(dtype, count) : encode(dtype, wanted);
    values_[i] = decode(dtype, bytes);
  }
  memory_.emplace_back(device_, bytes.size());
  if (operand.absent) return;
  device_.copy_from_host(memory_[i].data(), bytes.data(), bytes.size());
  if (operand.storage) {
    arguments_.weights[i] = Weight{*operand.storage, memory_[i].data(), operand.shape[0], operand.shape[1], &device_};
  } else {
    arguments_.tensors[i] = Tensor{memory_[i].data(), dtype, operand.shape, &device_};
  }
}

// Fills the operand from a pool, without keeping its values on the host.
void CaseMemory::make_large(size_t i, RandomStream& random) {
  const Operand& operand = case_.operands[i];
  const size_t bytes = static_cast<size_t>(operand.shape.elements()) * size_of(operand.dtype);
  memory_.emplace_back(device_, bytes);
  if (operand.absent) return;
  std::vector<double> wanted(pool_elements);
  if (operand.role != Role::output) operand.fill(wanted, random);
  const std::vector<std::byte> pool =
      operand.role == Role::output ? poison(operand.dtype, wanted.size()) : encode(operand.dtype, wanted);
  auto* to = static_cast<std::byte*>(memory_[i].data());
  for (size_t at = 0; at < bytes; at += pool.size()) {
    device_.copy_from_host(to + at, pool.data(), std::min(pool.size(), bytes - at));
  }
  arguments_.tensors[i] = Tensor{memory_[i].data(), operand.dtype, operand.shape, &device_};
}

void CaseMemory::share(size_t i) {
  const size_t other = static_cast<size_t>(case_.operands[i].alias);
  arguments_.tensors[i].data = arguments_.tensors[other].data;
  if (memory_[i].bytes() != memory_[other].bytes()) {
    throw_error(ErrorKind::internal, "{} shares memory with '{}', which has another size", case_.operands[i].name,
                case_.name);
  }
}

}  // namespace ingot::ops::testing
