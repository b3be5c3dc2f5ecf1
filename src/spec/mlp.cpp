#include "spec/mlp.h"

#include "base/error.h"
#include "spec/limits.h"
#include "spec/table.h"

namespace ingot::spec {

namespace {

struct Roles {
  Role gate, up, down;
};

// `expert`: of a mixture, otherwise -1. `used`: the fraction of tokens.
void add_linears(TableBuilder& table, const Dense& mlp, const Roles& roles, int64_t expert, double used) {
  const int64_t h = table.hidden();
  const int64_t f = mlp.features;
  const TableBuilder::LinearRow in{.out = f, .in = h, .bias = mlp.bias, .expert = expert, .used = used};
  if (mlp.gated) table.linear(roles.gate, in);
  table.linear(roles.up, in);
  table.linear(
      roles.down,
      {.out = h, .in = f, .bias = mlp.bias, .split = Split::columns, .residual = true, .expert = expert, .used = used});
}

// Kernels for few tokens have a row of blocks for each expert, and no grid has more (CUDA programming guide, "Compute
// Capabilities").
constexpr int64_t max_experts = 65535;

void add_activations(SavedList& list, const Dense& mlp, int64_t rows) {
  if (mlp.gated) list.matrix(Saved::gate, mlp.features, rows);
  list.matrix(Saved::up, mlp.features, rows);
  list.cheap_matrix(Saved::activated, mlp.features, rows);
}

}  // namespace

void Dense::check() const { check_positive("feed-forward size", features); }

void Dense::add_parameters(TableBuilder& table) const {
  add_linears(table, *this, {Role::gate, Role::up, Role::down}, -1, 1);
}

void Dense::add_saved(SavedList& list, int64_t) const { add_activations(list, *this, 1); }

void Dense::check_split(Parts parts) const { check_divides(parts, "MLP features", features); }

Dense Dense::split(int64_t tp) const {
  Dense part = *this;
  part.features /= tp;
  return part;
}

void Experts::check() const {
  expert.check();
  if (count < 1 || count > max_experts || per_token < 1 || per_token > count) {
    throw_error(ErrorKind::corrupt, "{} of {} experts per token is not possible", per_token, count);
  }
}

void Experts::add_parameters(TableBuilder& table) const {
  table.linear(Role::router, {.out = count, .in = table.hidden(), .split = Split::none, .precise = true});
  const double used = static_cast<double>(per_token) / static_cast<double>(count);
  for (int64_t e = 0; e < count; ++e) {
    add_linears(table, expert, {Role::expert_gate, Role::expert_up, Role::expert_down}, e, used);
  }
}

void Experts::add_saved(SavedList& list, int64_t hidden) const {
  using Kind = SavedTensor::Kind;
  list.matrix(Saved::router, count);
  list.numbers(Saved::topk_ids, per_token, Kind::index);
  list.numbers(Saved::topk_weights, per_token, Kind::real);
  list.numbers(Saved::token_of_row, per_token, Kind::index);
  list.numbers(Saved::row_of_choice, per_token, Kind::index);
  // Rows that other ranks have sent are kept: recomputing them would send them again.
  ranks > 1 ? list.matrix(Saved::grouped, hidden, max_rows()) : list.cheap_matrix(Saved::grouped, hidden, max_rows());
  add_activations(list, expert, max_rows());
  list.matrix(Saved::expert_out, hidden, per_token);
}

void Experts::check_split(Parts parts) const { expert.check_split(parts); }

Experts Experts::split(int64_t tp) const { return {count, per_token, expert.split(tp), ranks, balanced}; }

const Dense& dense_of(const Mlp& mlp) {
  const Experts* experts = experts_of(mlp);
  return experts ? experts->expert : std::get<Dense>(mlp);
}

Dense& dense_of(Mlp& mlp) {
  auto* experts = std::get_if<Experts>(&mlp);
  return experts ? experts->expert : std::get<Dense>(mlp);
}

}  // namespace ingot::spec
