# Everything comes from the distribution's packages (see ./run, function install_packages).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
# Not find_package(dnnl): Debian's package file asks for OpenCL's headers, which the CPU engine does not use.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES
  IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
find_package(Boost REQUIRED COMPONENTS context)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
# What MDS shards are compressed with and hashed by, besides.
find_package(BZip2 REQUIRED)
pkg_check_modules(BROTLI REQUIRED IMPORTED_TARGET libbrotlienc libbrotlidec)
find_path(SNAPPY_INCLUDE_DIR snappy-c.h REQUIRED)
find_library(SNAPPY_LIBRARY snappy REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)  # headers only
# Not through pkg-config: Debian's file also links the trainer.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
add_library(SentencePiece::sentencepiece SHARED IMPORTED)
set_target_properties(SentencePiece::sentencepiece PROPERTIES
  IMPORTED_LOCATION ${SENTENCEPIECE_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${SENTENCEPIECE_INCLUDE_DIR})
if(INGOT_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
