#include "formats/pickle.h"

#include <fmt/core.h>

#include "formats/npy_dtype.h"
#include "tests/formats/bytes.h"

namespace ingot::formats {
namespace {

using namespace std::string_literals;
using Kind = PickleValue::Kind;
using testing::as_span;
using testing::expect_error;
using testing::golden;
using testing::raw;

std::string show(const Pickle& pickle, PickleValue value);

std::string show_items(const Pickle& pickle, std::span<const PickleValue> items) {
  std::string out;
  for (const PickleValue item : items) out += (out.empty() ? "" : ",") + show(pickle, item);
  return out;
}

std::string show_array(const Pickle& pickle, const PickleArray& array) {
  std::string out = array.dtype + "(";
  for (const int64_t dim : array.shape) out += std::to_string(dim) + ",";
  out += ")";
  if (array.dtype == "O") return out + "[" + show_items(pickle, pickle.items(array.objects)) + "]";
  const size_t size = npy_item_size(array.dtype);
  std::string items;
  for (size_t i = 0; i < array.data.size(); i += size) {
    const std::string_view item = array.data.substr(i);
    items += items.empty() ? "" : ",";
    items += array.dtype[0] == 'f' ? fmt::format("{}", npy_real(array.dtype, item))
                                   : fmt::format("{}", npy_integer(array.dtype, item).value());
  }
  return out + "[" + items + "]";
}

// Formats a value much as Python prints it. Strings of more than 20 bytes are shown by their length.
std::string show(const Pickle& pickle, PickleValue value) {
  switch (value.kind()) {
    case Kind::none: return "None";
    case Kind::boolean: return value.integer() != 0 ? "True" : "False";
    case Kind::integer: return std::to_string(value.integer());
    case Kind::real: return fmt::format("{:.1f}", value.real());
    case Kind::text:
    case Kind::bytes: {
      const std::string_view text = pickle.string(value);
      const std::string quote = value.kind() == Kind::text ? "'" : "b'";
      return text.size() > 20 ? fmt::format("{}{}*{}'", quote, text[0], text.size()) : quote + std::string(text) + "'";
    }
    case Kind::list: return "[" + show_items(pickle, pickle.items(value)) + "]";
    case Kind::tuple: return "(" + show_items(pickle, pickle.items(value)) + ")";
    case Kind::array: return show_array(pickle, pickle.array(value));
    case Kind::dict: {
      std::string out;
      for (const char* key : {"a", "b", "c", "i8", "f4", "bool", "none", "zero", "objects", "scalars"}) {
        const PickleValue* found = pickle.find(value, key);
        if (found != nullptr) out += (out.empty() ? "" : ",") + std::string(key) + ":" + show(pickle, *found);
      }
      return "{" + out + "}";
    }
    default: return name(value.kind());
  }
}

std::string show(const std::string& bytes) {
  const Pickle pickle(as_span(bytes), "f");
  return show(pickle, pickle.root());
}

TEST(Pickle, ReadsPlainValuesOfEveryProtocol) {
  for (const char protocol : {'2', '3', '4', '5'}) {
    EXPECT_EQ(show(read_file(golden(std::string("pickle/plain") + protocol + ".pkl"))),
              "[None,True,False,0,255,256,65535,65536,-1,2147483647,-2147483648,2147483648,4611686018427387904,"
              "-9223372036854775808,1.5,-0.0,'text','d\xc3\xa9j\xc3\xa0','x*300',b'by\xff" +
                  std::string(1, '\0') +
                  "',b'',b'y*300',(),(1),(1,2),(1,2,3),(1,2,3,4),[],[3],{},{a:[1,2],b:{c:[1,2]}}]")
        << protocol;
  }
}

TEST(Pickle, ReadsArraysOfEveryProtocol) {
  for (const char protocol : {'2', '3', '4', '5'}) {
    EXPECT_EQ(show(read_file(golden(std::string("pickle/arrays") + protocol + ".pkl"))),
              "{i8:i8(3,)[0,1,2],f4:f4(1,2,)[0.5,-1],bool:b1(2,)[1,0],none:i2(2,0,)[],zero:u2()[7],"
              "objects:O(2,)['a',[1]],scalars:[-7,1.5,0.2,200,True]}")
        << protocol;
  }
}

TEST(Pickle, EveryTruncationIsRefused) {
  for (const std::string name : {"plain2", "plain4", "arrays2", "arrays4", "arrays5"}) {
    const std::string bytes = read_file(golden("pickle/" + name + ".pkl"));
    for (size_t size = 0; size < bytes.size(); ++size) {
      const std::string cut = bytes.substr(0, size);
      EXPECT_THROW(Pickle(as_span(cut), "f"), Error) << name << ", " << size << " bytes";
    }
  }
}

// A string and a global name, as protocol 4 writes them.
std::string text(const std::string& value) { return "\x8c" + raw(static_cast<uint8_t>(value.size())) + value; }
std::string named(const std::string& module, const std::string& member) { return text(module) + text(member) + "\x93"; }

void refused(ErrorKind kind, const std::string& program, const std::string& part) {
  SCOPED_TRACE(part);
  const std::string bytes = "\x80\x04"s + program + ".";
  expect_error(kind, part, [&] { Pickle(as_span(bytes), "f"); });
}
void unsupported(const std::string& program, const std::string& part) {
  refused(ErrorKind::unsupported, program, part);
}
void corrupt(const std::string& program, const std::string& part) { refused(ErrorKind::corrupt, program, part); }

TEST(Pickle, NamesOutsideNumpyAreRefused) {
  unsupported(named("os", "system") + text("id") + "\x85R", "the global 'os.system'; only plain values");
  unsupported("cposix\nsystem\nX" + raw(2U) + "id\x85R", "the global 'posix.system'");
  unsupported(named("builtins", "eval") + text("1") + "\x85R", "the global 'builtins.eval'");
  unsupported(named("builtins", "getattr"), "the global 'builtins.getattr'");
  unsupported(named("numpy", "ndarray.tofile"), "the global 'numpy.ndarray.tofile'");
  unsupported(named("numpy.f2py", "crackfortran"), "the global 'numpy.f2py.crackfortran'");
  unsupported(named("torch._utils", "_rebuild_tensor_v2"), "the global 'torch._utils._rebuild_tensor_v2'");
  unsupported(named("collections", "OrderedDict") + ")R", "the global 'collections.OrderedDict'");
  unsupported(named("\x01\n", std::string(200, 'a')), "the global '\\x01\\x0a.aaaaaaa");
  unsupported(named("numpy", "ndarray") + ")R", "a call of ndarray");
  unsupported(named("numpy", "ndarray"), "a function as a value");
  unsupported(named("numpy", "dtype") + text("i8") + "\x89\x88\x87R", "a numpy.dtype as a value");
  corrupt("K\1)R", "found a int where a function was expected");
}

TEST(Pickle, OpcodesThatBuildOtherObjectsAreRefused) {
  unsupported(named("numpy", "ndarray") + ")\x81", "the opcode NEWOBJ");
  unsupported("]}\x92", "the opcode NEWOBJ_EX");
  unsupported("(ios\nsystem\n", "the opcode INST");
  unsupported("(o", "the opcode OBJ");
  unsupported("K\1Q", "the opcode BINPERSID");
  unsupported("P7\n", "the opcode PERSID");
  unsupported("\x82\1", "the opcode EXT1");
  unsupported("\x84" + raw(1U), "the opcode EXT4");
  unsupported("\x8f", "the opcode EMPTY_SET");
  unsupported("\x97", "the opcode NEXT_BUFFER");
  unsupported("I1\n", "the opcode INT");
  unsupported(
      "K\1"
      "2",
      "the opcode DUP");
  unsupported("U\1a", "the opcode SHORT_BINSTRING");
  corrupt("\xff", "0xff is not an opcode");
}

TEST(Pickle, ValuesThatAreNotPlainAreRefused) {
  unsupported("]\x94h\0a"s, "a list that contains itself");
  unsupported("}\x94" + text("a") + "h\0s"s, "a dict that contains itself");
  unsupported("]\x94(h\0ta"s, "a list that contains itself");
  unsupported("}K\1K\2s", "a key of type int in a dict");
  unsupported("\x8a\x09" + std::string(9, '\1'), "an integer of 9 bytes");
  unsupported("])b", "a state for a list");
  corrupt("\x8b" + raw(-1), "an integer of negative length");
  corrupt("}(" + text("a") + "K\1" + text("a") + "K\2u", "the key 'a' twice");
}

TEST(Pickle, MalformedProgramsAreRefused) {
  for (const std::string& bytes : {std::string("]."), std::string("\x95")}) {
    expect_error(ErrorKind::corrupt, "does not begin with a protocol", [&] { Pickle(as_span(bytes), "f"); });
  }
  for (const char protocol : {'\0', '\1', '\6'}) {
    const std::string bytes = std::string("\x80") + protocol + "N.";
    expect_error(ErrorKind::unsupported, "expected 2 to 5", [&] { Pickle(as_span(bytes), "f"); });
  }
  corrupt("", "not end with exactly one value");
  corrupt("NN", "not end with exactly one value");
  corrupt("(N", "not end with exactly one value");
  corrupt("N.N", "bytes after its end");
  corrupt("a", "lacks its argument");
  corrupt("](a", "lacks its argument");
  corrupt("Ne", "lacks its mark");
  corrupt("NNa", "found a NoneType where a list was expected");
  corrupt("}(" + text("a") + "u", "a key without a value");
  corrupt("h\7", "memo 7 is not defined");
  corrupt("\x94", "lacks its argument");
  corrupt("\x95" + raw(uint64_t{1} << 40) + "N", "a frame is longer than the file");
  corrupt("\x8e" + raw(~uint64_t{0}), "needs 18446744073709551615 bytes");
  corrupt("X" + raw(~uint32_t{0}), "needs 4294967295 bytes");
  corrupt("\x8b" + raw(int32_t{1} << 30), "needs 1073741824 bytes");
  corrupt("cnumpy", "cut short");
}

// The opcodes of protocol 4 for numpy.dtype(kind) and for an array.
std::string dtype(const std::string& kind, const std::string& order = "<") {
  return named("numpy", "dtype") + text(kind) + "\x89\x88\x87R(K\3" + text(order) + "NNNJ" + raw(-1) + "J" + raw(-1) +
         "K\0tb"s;
}
std::string array_of(const std::string& shape, const std::string& kind, const std::string& data) {
  return named("numpy.core.multiarray", "_reconstruct") + named("numpy", "ndarray") +
         "K\0\x85"s
         "C\1b\x87R(K\1" +
         shape + kind + "\x89" + data + "tb";
}
std::string data(const std::string& bytes) { return "C" + std::string(1, static_cast<char>(bytes.size())) + bytes; }

TEST(Pickle, InvalidArraysAreRefused) {
  EXPECT_EQ(show("\x80\4"s + array_of("K\2\x85", dtype("i2"), data("\1\0\2\0"s)) + "."), "i2(2,)[1,2]");
  corrupt(array_of("K\2\x85", dtype("i2"), data("123")), "more or fewer bytes than its shape has");
  corrupt(array_of("K\2\x85", dtype("O8", "|"), "]Na"), "more or fewer items than its shape has");
  corrupt(array_of("K\2\x85", dtype("O8", "|"), data("12")), "an object array without its list");
  corrupt(array_of("K\2\x85", dtype("i2"), "]"), "an array without its bytes");
  corrupt(array_of("J" + raw(-1) + "\x85", dtype("i2"), data("")), "a bad shape");
  const std::string huge = "\x8a\x08" + raw(int64_t{1} << 62);
  corrupt(array_of(huge + huge + "\x86", dtype("i2"), data("")), "product overflows");
  corrupt(array_of(huge + "\x85", dtype("i8"), data("")), "more or fewer bytes");
  corrupt(array_of(
              "(" +
                  [] {
                    std::string dims;
                    for (int i = 0; i < 65; ++i) dims += "K\1";
                    return dims;
                  }() +
                  "t",
              dtype("i1"), data("1")),
          "a bad shape");
  corrupt(named("numpy.core.multiarray", "_reconstruct") + named("numpy", "dtype") +
              "K\0\x85"s
              "C\1b\x87R",
          "_reconstruct of something other than ndarray");
  corrupt(named("numpy.core.multiarray", "_reconstruct") + named("numpy", "ndarray") +
              "K\0\x85"s
              "C\1b\x87R",
          "an array without shape and data");
  corrupt(named("numpy.core.multiarray", "_reconstruct") + ")R", "the arguments of _reconstruct");
  corrupt(named("numpy.core.multiarray", "scalar") + dtype("i8") + data("1") + "\x86R", "a scalar of the wrong size");
  unsupported(named("numpy.core.multiarray", "scalar") + dtype("O8", "|") + data("1") + "\x86R",
              "a scalar of dtype 'O'");
  unsupported(
      named("numpy.core.multiarray", "scalar") + dtype("u8") + data("\xff\xff\xff\xff\xff\xff\xff\xff") + "\x86R",
      "more than 63 bits");
  unsupported(dtype("i8", ">"), "big-endian");
  unsupported(dtype("U5"), "an array of dtype 'U5'");
  unsupported(dtype("V8"), "an array of dtype 'V8'");
  unsupported(dtype("M8"), "an array of dtype 'M8'");
  corrupt(named("_codecs", "encode") + text("a") + text("rot13") + "\x86R", "an encoding other than latin1");
  corrupt(named("_codecs", "encode") + text("\xe2\x82\xac") + text("latin1") + "\x86R", "not latin1");
}

TEST(Pickle, ExpandingPicklesAreRefused) {
  const auto limited = [](const std::string& program, const std::string& part) {
    refused(ErrorKind::resource, program, part);
  };
  limited(std::string(65, ']') + std::string(64, 'a'), "more than 64 levels");
  limited(std::string(1 << 20, ']') + std::string((1 << 20) - 1, 'a'), "more than 64 levels");
  EXPECT_EQ(show("\x80\2"s + std::string(64, ']') + std::string(63, 'a') + "."),
            std::string(64, '[') + std::string(64, ']'));

  std::string laughs = "](NNNNNNNNNNe\x94";  // "billion laughs": ten values, in each of ten lists, in each of...
  for (char place = 0; place < 9; ++place) {
    laughs += "](";
    for (int i = 0; i < 10; ++i) laughs += std::string("h") + place;
    laughs += "e\x94";
  }
  // Only the last one is the value; the others are below it on the stack and in the memo.
  limited("(" + laughs + "t", "values (counting repeated references)");

  const std::string long_text(200, 'a');
  std::string copies = named("_codecs", "encode") + "\x94" + text(long_text) + text("latin1") + "\x86\x94";
  for (int i = 0; i < 100; ++i) copies += "h\0h\1R"s;
  limited("(" + copies + "t", "bytes in texts");
}

}  // namespace
}  // namespace ingot::formats
