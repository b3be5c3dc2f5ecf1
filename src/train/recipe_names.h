// The names of enum values in recipes. Included by recipe.cpp only.
#pragma once

#include <utility>

#include "train/recipe.h"

template <>
struct ingot::EnumNames<ingot::train::InitFrom> {
  static constexpr std::pair<train::InitFrom, const char*> names[] = {{train::InitFrom::pretrained, "pretrained"},
                                                                      {train::InitFrom::random, "random"}};
};
template <>
struct ingot::EnumNames<ingot::train::Precision> {
  static constexpr std::pair<train::Precision, const char*> names[] = {
      {train::Precision::fp32, "fp32"}, {train::Precision::bf16, "bf16"}, {train::Precision::fp8, "fp8"}};
};
template <>
struct ingot::EnumNames<ingot::train::Fp8Gradients> {
  static constexpr std::pair<train::Fp8Gradients, const char*> names[] = {{train::Fp8Gradients::e4m3, "e4m3"},
                                                                          {train::Fp8Gradients::e5m2, "e5m2"}};
};
template <>
struct ingot::EnumNames<ingot::train::StateType> {
  static constexpr std::pair<train::StateType, const char*> names[] = {
      {train::StateType::fp32, "fp32"}, {train::StateType::bf16, "bf16"}, {train::StateType::int8, "int8"}};
};
template <>
struct ingot::EnumNames<ingot::train::MasterType> {
  static constexpr std::pair<train::MasterType, const char*> names[] = {{train::MasterType::fp32, "fp32"},
                                                                        {train::MasterType::bf16, "bf16"}};
};
template <>
struct ingot::EnumNames<ingot::train::OptimizerName> {
  static constexpr std::pair<train::OptimizerName, const char*> names[] = {{train::OptimizerName::adamw, "adamw"},
                                                                           {train::OptimizerName::muon, "muon"},
                                                                           {train::OptimizerName::sgd, "sgd"},
                                                                           {train::OptimizerName::lion, "lion"}};
};
template <>
struct ingot::EnumNames<ingot::spec::PipelineScheduleName> {
  static constexpr std::pair<spec::PipelineScheduleName, const char*> names[] = {
      {spec::PipelineScheduleName::gpipe, "gpipe"},
      {spec::PipelineScheduleName::one_f_one_b, "1f1b"},
      {spec::PipelineScheduleName::interleaved, "interleaved"},
      {spec::PipelineScheduleName::zb_h1, "zb_h1"},
      {spec::PipelineScheduleName::zb_v, "zb_v"}};
};
template <>
struct ingot::EnumNames<ingot::spec::CpCommType> {
  static constexpr std::pair<spec::CpCommType, const char*> names[] = {
      {spec::CpCommType::a2a, "a2a"}, {spec::CpCommType::allgather, "allgather"}, {spec::CpCommType::p2p, "p2p"}};
};
template <>
struct ingot::EnumNames<ingot::train::Order> {
  static constexpr std::pair<train::Order, const char*> names[] = {
      {train::Order::ingot, "ingot"}, {train::Order::megatron, "megatron"}, {train::Order::streaming, "streaming"}};
};
template <>
struct ingot::EnumNames<ingot::data::StreamingShuffle> {
  static constexpr std::pair<data::StreamingShuffle, const char*> names[] = {
      {data::StreamingShuffle::py1e, "py1e"}, {data::StreamingShuffle::py1br, "py1br"},
      {data::StreamingShuffle::py1b, "py1b"}, {data::StreamingShuffle::py1s, "py1s"},
      {data::StreamingShuffle::py2s, "py2s"}, {data::StreamingShuffle::naive, "naive"}};
};
template <>
struct ingot::EnumNames<ingot::data::StreamingPartition> {
  static constexpr std::pair<data::StreamingPartition, const char*> names[] = {
      {data::StreamingPartition::relaxed, "relaxed"}, {data::StreamingPartition::orig, "orig"}};
};
template <>
struct ingot::EnumNames<ingot::data::StreamingSampling> {
  static constexpr std::pair<data::StreamingSampling, const char*> names[] = {
      {data::StreamingSampling::balanced, "balanced"}, {data::StreamingSampling::fixed, "fixed"}};
};
template <>
struct ingot::EnumNames<ingot::train::Determinism> {
  static constexpr std::pair<train::Determinism, const char*> names[] = {{train::Determinism::fast, "fast"},
                                                                         {train::Determinism::bitwise, "bitwise"}};
};
template <>
struct ingot::EnumNames<ingot::train::Offload> {
  static constexpr std::pair<train::Offload, const char*> names[] = {
      {train::Offload::none, "none"}, {train::Offload::weights, "weights"}, {train::Offload::optimizer, "optimizer"}};
};
template <>
struct ingot::EnumNames<ingot::train::Collectives> {
  static constexpr std::pair<train::Collectives, const char*> names[] = {{train::Collectives::automatic, "auto"},
                                                                         {train::Collectives::device, "device"},
                                                                         {train::Collectives::host, "host"}};
};
template <>
struct ingot::EnumNames<ingot::train::ScheduleName> {
  static constexpr std::pair<train::ScheduleName, const char*> names[] = {{train::ScheduleName::constant, "constant"},
                                                                          {train::ScheduleName::linear, "linear"},
                                                                          {train::ScheduleName::cosine, "cosine"}};
};
template <>
struct ingot::EnumNames<ingot::spec::Recompute> {
  static constexpr std::pair<spec::Recompute, const char*> names[] = {
      {spec::Recompute::none, "none"}, {spec::Recompute::selective, "selective"}, {spec::Recompute::full, "full"}};
};
template <>
struct ingot::EnumNames<ingot::data::Format> {
  static constexpr std::pair<data::Format, const char*> names[] = {
      {data::Format::automatic, "auto"},        {data::Format::chat, "chat"},
      {data::Format::sharegpt, "sharegpt"},     {data::Format::instruction, "instruction"},
      {data::Format::completion, "completion"}, {data::Format::text, "text"},
      {data::Format::tokens, "tokens"}};
};
template <>
struct ingot::EnumNames<ingot::train::StreamingWeights> {
  static constexpr std::pair<ingot::train::StreamingWeights, const char*> names[] = {
      {train::StreamingWeights::repeat, "repeat"},
      {train::StreamingWeights::proportion, "proportion"},
      {train::StreamingWeights::choose, "choose"}};
};
template <>
struct ingot::EnumNames<ingot::data::OnError> {
  static constexpr std::pair<data::OnError, const char*> names[] = {{data::OnError::stop, "stop"},
                                                                    {data::OnError::skip, "skip"}};
};
template <>
struct ingot::EnumNames<ingot::data::TooLong> {
  static constexpr std::pair<data::TooLong, const char*> names[] = {
      {data::TooLong::truncate, "truncate"}, {data::TooLong::skip, "skip"}, {data::TooLong::stop, "stop"}};
};
