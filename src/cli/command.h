// A subcommand of `ingot`: its arguments and its action. Only arguments.cpp uses CLI11.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ingot::cli {

// Declares options and positionals; their variables are assigned when the command line is parsed. Names are without
// dashes; "NAME,--OTHER" also accepts --OTHER. A value that does not parse, an unknown option or a missing required one
// ends the program with exit code 2 and a one-line message.
class Arguments {
 public:
  virtual ~Arguments() = default;
  virtual void positional(const char* name, std::string& value, const char* help, bool required = true) = 0;
  virtual void positional(const char* name, std::vector<std::string>& values, const char* help,
                          bool required = true) = 0;
  virtual void option(const char* name, std::string& value, const char* help, bool required = false) = 0;
  virtual void option(const char* name, std::optional<std::string>& value, const char* help) = 0;
  virtual void option(const char* name, std::vector<std::string>& values, const char* help) = 0;  // may be repeated
  virtual void option(const char* name, int64_t& value, const char* help) = 0;
  virtual void option(const char* name, std::optional<int64_t>& value, const char* help) = 0;
  virtual void option(const char* name, double& value, const char* help) = 0;
  virtual void option(const char* name, std::optional<double>& value, const char* help) = 0;
  virtual void flag(const char* name, bool& value, const char* help) = 0;
  // Shown at the end of --help; several calls add lines.
  virtual void example(const char* text) = 0;
  // A flag with an optional value: --NAME or --NAME=WORD. `value` stays empty without the flag, and is "" without a
  // word.
  virtual void flag(const char* name, std::optional<std::string>& value, const char* help) = 0;
};

// A command's output. Results go to standard output; logs and progress to standard error. Nothing is printed that may
// result from missing bytes of a mapped file. Errors: those of check_mapped_files (base/mapped_range.h).
class Output {
 public:
  explicit Output(bool json) : json_(json) {}
  bool json() const { return json_; }              // --json was given; print() then does nothing
  void print(std::string_view text) const;         // prints part of a human-readable result
  void print_json(const std::string& text) const;  // prints the one JSON object; does nothing without --json
 private:
  bool json_;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;  // one line
  virtual void declare(Arguments& arguments) = 0;
  virtual bool reports() const { return false; }  // whether it accepts --json
  // Returns the exit code; 130 when it was stopped by a signal. Errors are thrown as ingot::Error.
  virtual int run(const Output& output) = 0;
  // Subcommands of this command ("model list"); run() is not called when there are any.
  virtual std::vector<std::unique_ptr<Command>> children() { return {}; }
};

// All subcommands, in the order of --help. commands.cpp has one line for each.
std::vector<std::unique_ptr<Command>> all_commands();

// Reads the command line, runs the command it names, and returns the exit code.
int run_command_line(int argc, char** argv);

}  // namespace ingot::cli
