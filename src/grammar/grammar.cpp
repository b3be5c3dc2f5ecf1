#include "grammar/grammar.h"

#include "grammar/automaton.h"

namespace ingot::grammar {

Grammar::Grammar(Automaton automaton, int32_t start)
    : automaton_(std::make_unique<const Automaton>(std::move(automaton))), start_(start) {}

Grammar::~Grammar() = default;

}  // namespace ingot::grammar
