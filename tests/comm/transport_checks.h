// Checks that every transport must pass. Every rank calls each with the group of all ranks.
#pragma once

#include "comm/group.h"

namespace ingot::comm {

void check_integer_sums_and_maxima(const Group& group);
void check_floating_point_sums_are_in_the_order_of_ranks(const Group& group);
void check_sections_are_reduced_and_gathered(const Group& group);
void check_broadcast_text_and_one_value(const Group& group);
void check_messages_arrive_in_order(const Group& group);
void check_many_operations_at_once(const Group& group);
void check_subgroups_work_independently(const Group& group);

}  // namespace ingot::comm
