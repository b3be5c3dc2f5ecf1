#!/usr/bin/env python3
"""Checks banned symbols: only cli/ prints or ends the process (two files of runs/ end processes); only backend/ and comm/ call a
vendor; only base/path.cpp lists folders, and nothing calls functions that throw std::filesystem_error; only base/json.cpp parses
JSON; only base/environment.cpp reads the environment.

Two checks of the same rules: the source text under src/ (without comments and strings), and the undefined symbols of the archives
build/release/src/**/libingot_*.a and of cli/'s objects, which show calls in macros and inline functions, too.
`--self-test` tests the checker.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ENDS_OR_PRINTS = re.compile(
    r"(?<![\w.>:])(?:std::|::)?(?:_?exit|_Exit|quick_exit|abort|v?f?printf|puts|putchar|perror)\s*\("
    r"|std::(?:cout|cerr|clog|wcout|wcerr)\b|\bfmt::print(?:ln)?\s*\(|(?<!\w)std(?:out|err)(?!\w)"
)
# These may call _exit: in a child process that they forked, and where a rank cannot be ended otherwise.
PROCESS_ENDERS = ("runs/ranks.cpp", "runs/supervisor.cpp")
VENDOR = re.compile(r"\b(?:cuda[A-Z]|cu[A-Z]|cublas|cudnn|hip[A-Z]|hipblas|nccl[A-Z]|rccl[A-Z]|MPI_)\w*")
ENDS_OR_PRINTS_OBJECT = re.compile(
    r"^(?:_?exit|_Exit|quick_exit|abort|(?:__)?v?f?printf(?:_chk)?|puts|putchar|perror|_ZSt4c(?:out|err|log)|_ZSt5wc(?:out|err))$"
)
VENDOR_OBJECT = re.compile(r"^(?:cuda[A-Z]|cu[A-Z]|cublas|cudnn|hip[A-Z]|hipblas|nccl[A-Z]|rccl[A-Z]|MPI_)\w*$")
# std::filesystem exceptions are not our Error: its functions are called with an error_code, and list_folder lists
# folders.
FOLDER_WALK = re.compile(r"\b(?:recursive_)?directory_(?:iterator|entry)\b")
FOLDER_WALKERS = ("base/path.cpp", "storage/store.cpp", "backend/gpu/runtime/library_folders.cpp")
FILESYSTEM_THROWS_OBJECT = re.compile(
    r"^_ZNSt10filesystem(?:\d+[a-z_]+(?:B5cxx11)?E\w*(?<!RSt10error_code)|7__cxx11\d+(?:recursive_)?directory_iteratorpp\w*)$"
)
# nlohmann's parser has no depth limit. The two other files have their own.
JSON_PARSE = re.compile(r"\b(?:json|Json|ordered_json)::(?:sax_)?parse\s*\(")
JSON_PARSERS = ("base/json.cpp", "formats/unique_json.cpp", "formats/safetensors_header.cpp")
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b")
TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S
)


def code_only(text):
    """The text without comments, strings and #include lines; line numbers do not change."""

    def blank(match):
        # A digit separator (1'000'000) is not a character literal.
        start = match.start()
        if match.group().startswith("'") and start and text[start - 1].isalnum():
            return match.group()
        return "\n" * match.group().count("\n") or " "

    return re.sub(r"(?m)^\s*#\s*include.*$", "", TOKENS.sub(blank, text))


def text_problems(path, text):
    """path is relative to src/."""
    folder = path.split("/")[0]
    problems = []
    for number, line in enumerate(code_only(text).splitlines(), 1):
        if folder != "cli":
            for match in ENDS_OR_PRINTS.finditer(line):
                if path in PROCESS_ENDERS and "_exit" in match.group():
                    continue
                problems.append(f"src/{path}:{number}: '{match.group().strip()}': only cli/ ends the process or prints")
        if folder not in ("backend", "comm"):
            for match in VENDOR.finditer(line):
                problems.append(f"src/{path}:{number}: '{match.group()}': only backend/ and comm/ call a vendor's runtime")
        if path not in FOLDER_WALKERS:
            for match in FOLDER_WALK.finditer(line):
                problems.append(f"src/{path}:{number}: '{match.group()}': list_folder of base/path.h lists folders")
        if path not in JSON_PARSERS:
            for match in JSON_PARSE.finditer(line):
                problems.append(f"src/{path}:{number}: '{match.group()}': base/json.h parses JSON, with its limit of depth")
        if path != "base/environment.cpp":
            for match in ENVIRONMENT.finditer(line):
                problems.append(f"src/{path}:{number}: '{match.group()}': base/environment.h reads the environment")
    return problems


def object_problems(archive, symbols):
    name = re.sub(r"^libingot_|\.a$", "", archive)
    problems = []
    for member, symbol in symbols:
        may_exit = symbol == "_exit" and f"{name}/{member.removesuffix('.o')}" in PROCESS_ENDERS
        if ENDS_OR_PRINTS_OBJECT.match(symbol) and not name.endswith(".o") and not may_exit:
            problems.append(f"{archive}({member}): refers to '{symbol}': only cli/ ends the process or prints")
        if VENDOR_OBJECT.match(symbol) and not name.startswith(("backend_", "comm")):
            problems.append(f"{archive}({member}): refers to '{symbol}': only backend/ and comm/ call a vendor's runtime")
        if FILESYSTEM_THROWS_OBJECT.match(symbol):
            problems.append(f"{archive}({member}): refers to '{symbol}', which throws std::filesystem_error: see base/path.h")
    return problems


def undefined_symbols(archive):
    output = subprocess.run(["nm", "-u", str(archive)], capture_output=True, text=True, check=True).stdout
    member = ""
    for line in output.splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif line.strip():
            yield member, line.split()[-1].split("@")[0]


def self_test():
    bad = [
        ("base/a.cpp", "void f() { exit(1); }"),
        ("base/a.cpp", "void f() { std::abort(); }"),
        ("ops/a.cpp", "int n = 1'000; void f() { std::printf(\"x\"); }"),
        ("ops/a.cpp", "void f() { std::cerr << 1; }"),
        ("ops/a.cpp", "void f() { fmt::print(\"x\"); }"),
        ("train/a.cpp", "void f() { fputs(\"x\", stderr); }"),
        ("nn/a.cpp", "void f() { cudaMalloc(&p, 1); }"),
        ("cli/a.cpp", "void f() { ncclCommAbort(c); }"),
        ("train/a.cpp", "void f() { MPI_Init(0, 0); }"),
        ("cli/a.cpp", "for (const auto& each : std::filesystem::directory_iterator(folder)) {}"),
        ("server/a.cpp", "const auto value = Json::parse(text);"),
        ("text/a.cpp", "nlohmann::json::sax_parse(text, &handler);"),
        ("cli/a.cpp", "const char* home = std::getenv(\"HOME\");"),
    ]
    good = [
        ("cli/main.cpp", "int main() { std::cout << 1; exit(2); }"),
        ("base/a.cpp", "// exit(1) ends\n/* abort() */ const char* s = \"printf(\"; char q = '\\'';"),
        ("base/a.cpp", "std::snprintf(b, 2, \"\"); on_exit(1); pool.exit(); my_abort(); int cu_seqlens = 0;"),
        ("base/a.cpp", 'auto s = R"x(std::cerr "quoted" exit(1))x";'),
        ("backend/gpu/a.cpp", "cuModuleLoadData(&m, p);"),
        ("comm/nccl.cpp", "ncclGroupStart();"),
        ("base/path.cpp", "fs::directory_iterator each(folder, failed);"),
        ("base/json.cpp", "return Json::parse(text);"),
        ("server/a.cpp", "LockHolder::parse(text); parse_json(text);"),
    ]
    for path, text in bad:
        assert len(text_problems(path, text)) == 1, (path, text, text_problems(path, text))
    for path, text in good:
        assert not text_problems(path, text), (path, text, text_problems(path, text))
    assert not object_problems("libingot_runs.a", [("supervisor.cpp.o", "_exit")])
    assert not text_problems("runs/supervisor.cpp", "::_exit(127);")
    assert len(text_problems("runs/supervisor.cpp", "exit(127);")) == 1
    assert len(text_problems("runs/run.cpp", "_exit(127);")) == 1
    for archive, symbol, count in [
        ("libingot_base.a", "abort", 1),
        ("libingot_base.a", "__printf_chk", 1),
        ("libingot_base.a", "_ZSt4cerr", 1),
        ("libingot_base.a", "snprintf", 0),
        ("libingot_nn.a", "cuLaunchKernel", 1),
        ("libingot_backend_gpu.a", "cuLaunchKernel", 0),
        ("main.cpp.o", "exit", 0),
        ("main.cpp.o", "_ZNSt10filesystem6statusERKNS_7__cxx114pathE", 1),
        ("libingot_data.a", "_ZNSt10filesystem6statusERKNS_7__cxx114pathE", 1),
        ("libingot_data.a", "_ZNSt10filesystem6statusERKNS_7__cxx114pathERSt10error_code", 0),
        ("libingot_data.a", "_ZNSt10filesystem12current_pathB5cxx11Ev", 1),
        ("libingot_data.a", "_ZNSt10filesystem7__cxx1118directory_iteratorppEv", 1),
        ("libingot_data.a", "_ZNSt10filesystem7__cxx1118directory_iterator9incrementERSt10error_code", 0),
        ("libingot_data.a", "_ZNSt10filesystem7__cxx114path14_M_split_cmptsEv", 0),
    ]:
        found = object_problems(archive, [("a.o", symbol)])
        assert len(found) == count, (archive, symbol, found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true")
    if parser.parse_args().self_test:
        return self_test()
    root = Path(__file__).resolve().parent.parent
    problems = []
    sources = sorted(p for p in (root / "src").rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".inc"))
    for source in sources:
        problems += text_problems(str(source.relative_to(root / "src")), source.read_text(encoding="utf-8"))
    archives = sorted((root / "build/release/src").rglob("libingot_*.a"))
    for archive in archives + sorted((root / "build/release/src/cli").rglob("ingot.dir/*.o")):
        problems += object_problems(archive.name, undefined_symbols(archive))
    if not archives:
        problems.append("no archives under build/release/src: build first (./run build)")
    print("\n".join(problems + [f"banned symbols: {len(sources)} files, {len(archives)} archives, {len(problems)} problems"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
