#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>

#include "base/error.h"
#include "base/mapped_range.h"
#include "base/number.h"
#include "base/strings.h"
#include "cli/command.h"

namespace ingot::cli {

namespace {

// Writes all of `text` or throws: a full disk or a closed pipe must not look like success.
void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw_error(ErrorKind::unavailable, "cannot write to standard output: {}", errno_message(errno));
  }
}

class CliArguments : public Arguments {
 public:
  explicit CliArguments(CLI::App& app) : app_(app) {}

  void positional(const char* name, std::string& value, const char* help, bool required) override {
    app_.add_option(name, value, help)->required(required);
  }
  void positional(const char* name, std::vector<std::string>& values, const char* help, bool required) override {
    app_.add_option(name, values, help)->required(required);
  }
  void option(const char* name, std::string& value, const char* help, bool required) override {
    app_.add_option(dashed(name), value, help)->required(required);
  }
  void option(const char* name, std::optional<std::string>& value, const char* help) override {
    app_.add_option(dashed(name), value, help);
  }
  void option(const char* name, std::vector<std::string>& values, const char* help) override {
    app_.add_option(dashed(name), values, help)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  void option(const char* name, int64_t& value, const char* help) override {
    number(name, value, help)->default_str(fmt::format("{}", value));
  }
  void option(const char* name, std::optional<int64_t>& value, const char* help) override { number(name, value, help); }
  void option(const char* name, double& value, const char* help) override {
    number(name, value, help)->default_str(fmt::format("{}", value));
  }
  void option(const char* name, std::optional<double>& value, const char* help) override { number(name, value, help); }
  void flag(const char* name, bool& value, const char* help) override { app_.add_flag(dashed(name), value, help); }
  void flag(const char* name, std::optional<std::string>& value, const char* help) override {
    // CLI11 passes "true" for a flag without a word.
    const std::string text = help;
    app_.add_flag(dashed(name), text)->each([&value](const std::string& word) { value = word == "true" ? "" : word; });
  }
  void example(const char* text) override {
    examples_ += examples_.empty() ? "Example:\n  " : "\n  ";
    app_.footer(examples_ += text);
  }

 private:
  static std::string dashed(const char* name) { return std::string("--") + name; }

  static int64_t parsed(const std::string& name, const std::string& text, std::type_identity<int64_t>) {
    if (const std::optional<int64_t> number = parse_int(text)) return *number;
    throw CLI::ValidationError(name, fmt::format("'{}' is not a whole number of at most 64 bits", text));
  }
  static double parsed(const std::string& name, const std::string& text, std::type_identity<double>) {
    if (const std::optional<double> number = parse_double(text)) return *number;
    throw CLI::ValidationError(name, fmt::format("'{}' is not a finite number", text));
  }

  // Parsed by parse_int and parse_double, as in recipes: CLI11 would round to the nearest representable number.
  template <class T>
  CLI::Option* number(const char* name, T& value, const char* help) {
    using Number =
        std::conditional_t<std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>, int64_t, double>;
    const auto read = [&value, option = dashed(name)](const std::string& text) {
      value = parsed(option, text, std::type_identity<Number>{});
    };
    return app_.add_option_function<std::string>(dashed(name), read, help)
        ->type_name(std::is_same_v<Number, int64_t> ? "INT" : "FLOAT");
  }

  CLI::App& app_;
  std::string examples_;
};

struct Declared {
  std::unique_ptr<Command> command;
  CLI::App* app;
  bool json = false;
};

void declare(CLI::App& parent, std::unique_ptr<Command> command, std::vector<std::unique_ptr<Declared>>& declared) {
  CLI::App* app = parent.add_subcommand(command->name(), command->summary());
  std::vector<std::unique_ptr<Command>> children = command->children();
  auto entry = std::make_unique<Declared>();
  entry->app = app;
  CliArguments arguments(*app);
  command->declare(arguments);
  if (command->reports()) app->add_flag("--json", entry->json, "print one JSON object to standard output");
  if (!children.empty()) app->require_subcommand(1);
  entry->command = std::move(command);
  declared.push_back(std::move(entry));
  for (std::unique_ptr<Command>& child : children) declare(*app, std::move(child), declared);
}

int report(const Error& error) {
  std::string text = fmt::format("ingot: {}\n", error.message());
  if (!error.hint().empty()) text += fmt::format("  {}\n", error.hint());
  std::fwrite(text.data(), 1, text.size(), stderr);
  return exit_code(error.kind());
}

// The error for a word that is not a command below `app`; absent when all words are commands. CLI11's own error only
// says that a command is missing.
std::optional<Error> unknown_command(CLI::App& app, int argc, char** argv) {
  CLI::App* group = &app;
  for (int i = 1; i < argc && !group->get_subcommands({}).empty(); ++i) {
    const std::string word = argv[i];
    if (word.starts_with("-")) return std::nullopt;
    std::vector<std::string> names;
    CLI::App* next = nullptr;
    for (CLI::App* each : group->get_subcommands({})) {
      names.push_back(each->get_name());
      if (each->get_name() == word) next = each;
    }
    if (next == nullptr) {
      const std::string near = nearest(word, names);
      return Error(ErrorKind::usage, fmt::format("'{}' is not a command", word),
                   near.empty() ? fmt::format("{} --help lists the commands",
                                              group == &app ? "ingot" : "ingot " + group->get_name())
                                : fmt::format("did you mean '{}'?", near));
    }
    group = next;
  }
  return std::nullopt;
}

// The error for an option that the command does not have, with the nearest existing one; absent when all are known.
std::optional<Error> unknown_option(CLI::App& app, int argc, char** argv) {
  CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::vector<CLI::App*> below = command->get_subcommands({});
    const auto next =
        std::find_if(below.begin(), below.end(), [&](CLI::App* each) { return each->get_name() == word; });
    if (next != below.end()) {
      command = *next;
      continue;
    }
    const std::string option = word.substr(0, word.find('='));
    if (word == "--") break;
    if (!word.starts_with("--") || command->get_option_no_throw(option) != nullptr) continue;
    std::vector<std::string> names;
    for (const CLI::Option* each : command->get_options()) {
      for (const std::string& name : each->get_lnames()) names.push_back("--" + name);
    }
    const std::string near = nearest(option, names);
    return Error(ErrorKind::usage, fmt::format("'{}' is not an option of {}", option, command->get_name()),
                 near.empty() ? std::string("--help lists the options") : fmt::format("did you mean '{}'?", near));
  }
  return std::nullopt;
}

// The root cause: `error` may result from zeros that were read in place of a mapped file's missing bytes.
Error cause_of(const Error& error) {
  try {
    check_mapped_files();
    return error;
  } catch (const Error& fault) {
    return fault;
  }
}

}  // namespace

void Output::print(std::string_view text) const {
  check_mapped_files();
  if (!json_) write_out(text);
}

void Output::print_json(const std::string& text) const {
  check_mapped_files();
  if (json_) write_out(text + "\n");
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Ingot pretrains, fine-tunes and serves language models on CPUs and GPUs.", "ingot");
  app.require_subcommand(1);
  app.set_version_flag("--version", INGOT_VERSION);
  std::vector<std::unique_ptr<Declared>> declared;
  for (std::unique_ptr<Command>& command : all_commands()) declare(app, std::move(command), declared);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    if (const std::optional<Error> unknown = unknown_command(app, argc, argv)) return report(*unknown);
    if (const std::optional<Error> unknown = unknown_option(app, argc, argv)) return report(*unknown);
    return report(
        Error(ErrorKind::usage, error.what(), "ingot --help lists the commands, ingot COMMAND --help the options"));
  }
  try {
    for (auto entry = declared.rbegin(); entry != declared.rend(); ++entry) {
      if (!(*entry)->app->parsed()) continue;
      const int code = (*entry)->command->run(Output((*entry)->json));
      if (code == 0) check_mapped_files();
      return code;
    }
    return 0;
  } catch (const Error& error) {
    return report(cause_of(error));
  } catch (const std::bad_alloc&) {
    return report(cause_of(Error(ErrorKind::resource, "out of memory")));
  } catch (const std::exception& error) {
    return report(cause_of(Error(ErrorKind::internal, error.what(), "this is a bug in Ingot; please report it")));
  }
}

}  // namespace ingot::cli
