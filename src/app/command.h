// A subcommand of `ingot`: what it takes, and what it does. CLI11 itself stays in arguments.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ingot::app {

// Declares options and positionals; values are written when the command line is read. Names are without dashes. A value
// that does not parse, an unknown option or a missing required one ends with exit code 2 and one line that says so.
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
  // Shown at the end of --help.
  virtual void example(const char* text) = 0;
  // May have a word behind it: --NAME or --NAME=WORD. `value` stays empty without the flag, and is "" without a word.
  virtual void flag(const char* name, std::optional<std::string>& value, const char* help) = 0;
};

// What a command writes to. Results go to standard output; logs and progress to standard error. Nothing is printed that
// may come of a mapped file's missing bytes. Errors: those of check_mapped_files (base/mapped_range.h).
class Output {
 public:
  explicit Output(bool json) : json_(json) {}
  bool json() const { return json_; }              // --json was given: print() is for people and does nothing
  void print(std::string_view text) const;         // a piece of a result for people
  void print_json(const std::string& text) const;  // the one JSON object; does nothing without --json
 private:
  bool json_;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual const char* name() const = 0;
  virtual const char* summary() const = 0;  // one line
  virtual void declare(Arguments& arguments) = 0;
  virtual bool reports() const { return false; }  // takes --json
  // Returns the exit code; 130 when it was stopped by a signal. Errors are thrown as ingot::Error.
  virtual int run(const Output& output) = 0;
  // Commands below this one ("model list"); run() is not called when there are any.
  virtual std::vector<std::unique_ptr<Command>> children() { return {}; }
};

// Every subcommand, in the order of --help. One line a command in commands.cpp.
std::vector<std::unique_ptr<Command>> all_commands();

// Reads the command line, runs the command it names, and returns the exit code.
int run_command_line(int argc, char** argv);

}  // namespace ingot::app
