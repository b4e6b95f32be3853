// PrefixSlot: one block key in the prefix tree, and its place in the list of what its object serves.
// Owned by the node of the tree whose label it is part of; not thread-safe.
#pragma once

#include "base/clock.h"
#include "base/sha256.h"

namespace moonpool::bus {

class PrefixTree;
struct PrefixNode;
struct ServedObject;

struct PrefixSlot {
  Digest256 key;
  TimePoint last_use;              // never earlier than that of any slot below it
  PrefixNode* node = nullptr;      // whose label this slot is part of
  ServedObject* object = nullptr;  // that serves the prefix ending here; null: a hole
  PrefixSlot* object_previous = nullptr;
  PrefixSlot* object_next = nullptr;
};

}  // namespace moonpool::bus
