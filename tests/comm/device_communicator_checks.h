// Checks that every device communicator must pass. Every rank calls each with its own communicator and device.
#pragma once

#include "comm/device_communicator.h"

namespace ingot::comm {

void check_integers_are_reduced(DeviceCommunicator& ranks, Device& device);
void check_floats_are_reduced(DeviceCommunicator& ranks, Device& device);
void check_sections_are_scattered_and_gathered(DeviceCommunicator& ranks, Device& device);
void check_sections_are_exchanged(DeviceCommunicator& ranks, Device& device);
// Between all pairs of ranks, several at once: each begins after the work before it, and they arrive in the order in
// which they were sent.
void check_messages_are_sent(DeviceCommunicator& ranks, Device& device);
// Several operations at once, each of which begins after the work before it, and is before the work after its wait().
void check_operations_are_in_the_order_of_streams(DeviceCommunicator& ranks, Device& device);

}  // namespace ingot::comm
