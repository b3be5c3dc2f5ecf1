#include "formats/npy.h"

#include "formats/npy_dtype.h"
#include "tests/formats/bytes.h"

namespace ingot::formats {
namespace {

using testing::as_span;
using testing::as_string;
using testing::expect_error;
using testing::Folder;
using testing::golden;
using testing::raw;

std::string file_of(const std::string& header, const std::string& data = "", char version = 1) {
  const std::string size =
      version == 1 ? raw(static_cast<uint16_t>(header.size())) : raw(static_cast<uint32_t>(header.size()));
  return std::string("\x93NUMPY") + version + '\0' + size + header + data;
}

void expect_kind(ErrorKind kind, const std::string& bytes, const std::string& part) {
  SCOPED_TRACE(part);
  expect_error(kind, part, [&] { NpyFile(as_span(bytes), "f"); });
}

void expect_corrupt(const std::string& bytes, const std::string& part) { expect_kind(ErrorKind::corrupt, bytes, part); }

template <class T>
void expect_counts_to_six(const std::string& dtype) {
  const NpyFile file(golden("npy/" + dtype + ".npy"));
  EXPECT_EQ(file.dtype(), dtype);
  EXPECT_EQ(file.shape(), (std::vector<int64_t>{2, 3}));
  std::string expected;
  for (int i = 0; i < 6; ++i) expected += raw(static_cast<T>(i));
  EXPECT_EQ(as_string(file.bytes()), expected) << dtype;
}

TEST(Npy, ReadsNumpysFiles) {
  expect_counts_to_six<float>("f4");
  expect_counts_to_six<double>("f8");
  expect_counts_to_six<int8_t>("i1");
  expect_counts_to_six<int16_t>("i2");
  expect_counts_to_six<int32_t>("i4");
  expect_counts_to_six<int64_t>("i8");
  expect_counts_to_six<uint8_t>("u1");
  expect_counts_to_six<uint16_t>("u2");
  expect_counts_to_six<uint32_t>("u4");
  expect_counts_to_six<uint64_t>("u8");
  EXPECT_EQ(as_string(NpyFile(golden("npy/f2.npy")).bytes()), testing::hex("00 00 00 3c 00 40 00 42 00 44 00 45"));
  EXPECT_EQ(as_string(NpyFile(golden("npy/bool.npy")).bytes()), testing::hex("01 00 01"));
  EXPECT_TRUE(NpyFile(golden("npy/scalar.npy")).shape().empty());
  EXPECT_EQ(NpyFile(golden("npy/empty.npy")).shape(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(NpyFile(golden("npy/version2.npy")).shape(), std::vector<int64_t>{4});
}

TEST(Npy, RefusesUnsupportedArrays) {
  const auto refused = [](const std::string& name, const std::string& part) {
    expect_error(ErrorKind::unsupported, part, [&] { NpyFile(golden("npy/" + name + ".npy")); });
  };
  refused("fortran", "Fortran order");
  refused("big_endian", "dtype '>f4' is not little-endian");
  refused("record", "arrays of records");
}

TEST(Npy, ReadsObjectArrays) {
  const NpyFile report(golden("npy/govreport.npy"));
  const NpyFile arrays(golden("npy/govreport_arrays.npy"));
  EXPECT_EQ(report.dtype(), "O");
  EXPECT_EQ(report.shape(), std::vector<int64_t>{3});
  EXPECT_TRUE(report.bytes().empty());
  ASSERT_EQ(report.objects().size(), 3U);
  ASSERT_EQ(arrays.objects().size(), 3U);
  for (int64_t r = 0; r < 3; ++r) {
    const auto items = [&](const char* key) {
      const PickleValue* list = report.pickle().find(report.objects()[static_cast<size_t>(r)], key);
      const PickleValue* array = arrays.pickle().find(arrays.objects()[static_cast<size_t>(r)], key);
      std::vector<int64_t> values, array_values;
      for (const PickleValue value : report.pickle().items(*list)) values.push_back(value.integer());
      const PickleArray& numbers = arrays.pickle().array(*array);
      const size_t size = npy_item_size(numbers.dtype);
      for (size_t i = 0; i < numbers.data.size(); i += size) {
        array_values.push_back(npy_integer(numbers.dtype, numbers.data.substr(i)).value());
      }
      EXPECT_EQ(values, array_values) << key;
      return values;
    };
    std::vector<int64_t> ids = {1}, mask;
    for (int64_t i = 0; i < 38; ++i) ids.push_back((r * 7919 + i * 104729) % 32000);
    ids.push_back(2);
    for (int64_t i = 0; i < 40; ++i) mask.push_back(i >= 10 + r ? 1 : 0);
    EXPECT_EQ(items("input_ids"), ids);
    EXPECT_EQ(items("loss_mask"), mask);
    EXPECT_EQ(items("seq_start_id"), std::vector<int64_t>{0});
    EXPECT_EQ(report.pickle().find(report.objects()[0], "labels"), nullptr);
  }
  const NpyFile ragged(golden("npy/ragged.npy"));
  EXPECT_EQ(ragged.pickle().items(ragged.objects()[1]).size(), 1500U);
  EXPECT_EQ(ragged.pickle().items(ragged.objects()[1])[1499].integer(), 1499);
  EXPECT_EQ(NpyFile(golden("npy/object_2d.npy")).shape(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(NpyFile(golden("npy/object_2d.npy")).objects().size(), 4U);
  EXPECT_TRUE(NpyFile(golden("npy/object_empty.npy")).objects().empty());
}

TEST(Npy, InvalidObjectArraysAreRefused) {
  const auto with_pickle = [](const std::string& shape, const std::string& pickle) {
    return file_of("{'descr': '|O', 'fortran_order': False, 'shape': " + shape + "}", "\x80\4" + pickle + ".");
  };
  expect_corrupt(with_pickle("(1,)", "]Na"), "a value that is not an object array");
  expect_kind(ErrorKind::unsupported, with_pickle("(1,)", "cos\nsystem\n"), "f: the pickle has the global 'os.system'");
  const std::string object = read_file(golden("npy/object.npy"));
  const std::string pickle = object.substr(object.find("\x80\4") + 2);
  expect_corrupt(with_pickle("(3,)", pickle.substr(0, pickle.size() - 1)), "the shape needs 3 objects, the file has 2");
  for (size_t size = 0; size < object.size(); ++size) {
    const std::string cut = object.substr(0, size);
    EXPECT_THROW(NpyFile(as_span(cut), "f"), Error) << size << " bytes";
  }
}

TEST(Npy, WritesNumpysBytes) {
  const Folder folder;
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  NpyWriter writer(folder / "out", std::vector<int64_t>{2, 3});
  writer.write(std::span(values).subspan(0, 4));
  expect_error(ErrorKind::internal, "2 values are missing", [&] { writer.finish(); });
  writer.write(std::span(values).subspan(4));
  expect_error(ErrorKind::internal, "6 values more than the shape holds", [&] { writer.write(values); });
  writer.finish();
  EXPECT_EQ(read_file(folder / "out"), read_file(golden("npy/f4.npy")));

  NpyWriter scalar(folder / "scalar", {});
  scalar.write(std::vector<float>{2.5F});
  scalar.finish();
  EXPECT_EQ(read_file(folder / "scalar"), read_file(golden("npy/scalar.npy")));
  NpyWriter empty(folder / "empty", std::vector<int64_t>{0, 3});
  empty.finish();
  EXPECT_EQ(read_file(folder / "empty"), read_file(golden("npy/empty.npy")));
  NpyWriter row(folder / "row", std::vector<int64_t>{1});
  row.write(std::vector<float>{1.0F});
  row.finish();
  EXPECT_EQ(NpyFile(folder / "row").shape(), std::vector<int64_t>{1});
}

TEST(Npy, EveryTruncationIsRefused) {
  const std::string bytes = read_file(golden("npy/f4.npy"));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    EXPECT_THROW(NpyFile(as_span(cut), "f"), Error) << size << " bytes";
  }
}

TEST(Npy, HostileHeadersAreRefused) {
  const auto with_shape = [](const std::string& shape) {
    return file_of("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}");
  };
  expect_corrupt("\x93NUMPX\x01", "does not begin with");
  expect_corrupt(file_of("", "", 2).substr(0, 8) + raw(0xffffffffU), "the header needs 4294967295 bytes");
  expect_kind(ErrorKind::unsupported, file_of("{}", "", 3), "version 3.0");
  expect_corrupt(file_of("{}"), "lacks descr, fortran_order or shape");
  expect_corrupt(file_of("{'descr': '<f4', 'descr': '<f4'}"), "duplicate key descr");
  expect_corrupt(file_of("{'order': 'C'}"), "unknown key 'order'");
  expect_corrupt(file_of("{'descr': '<f4"), "a string without end");
  expect_corrupt(file_of("{'fortran_order': 0}"), "neither True nor False");
  expect_corrupt(file_of("__import__('os')"), "malformed header");
  expect_corrupt(with_shape("(0,)") + "x", "need 0 bytes of data, the file has 1");
  expect_corrupt(with_shape("(1,)"), "need 4 bytes of data, the file has 0");
  expect_corrupt(with_shape("(4294967296, 4294967296)"), "product of the dimensions overflows");
  expect_corrupt(with_shape("(9223372036854775808,)"), "a bad dimension");
  expect_corrupt(with_shape("(-1,)"), "a bad dimension");
  expect_corrupt(with_shape("(0 0)"), "no comma");
  expect_corrupt(with_shape("(0)"), "a number where a tuple belongs");
  expect_corrupt(with_shape("0"), "no (");
  expect_corrupt(with_shape("(0,)} x"), "text after the dictionary");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "0,";
  expect_corrupt(with_shape(many + ")"), "more than 64 dimensions");
  for (const std::string dtype : {"<O", "<O8", "|V8", "<U4", "<M8[ns]", "<c8", "<f16", "=f4", "|f4", "f4", ""}) {
    expect_kind(ErrorKind::unsupported, file_of("{'descr': '" + dtype + "', 'fortran_order': False, 'shape': ()}"),
                "f: ");
  }
}

}  // namespace
}  // namespace ingot::formats
