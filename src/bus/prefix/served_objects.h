// ServedObjects: for each object, the slots of the prefix tree that it serves, as an intrusive list, so that an
// object can be removed without a search. An object without slots is not kept.
// Owned by PrefixIndex; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "bus/prefix/prefix_slot.h"

namespace moonpool::bus {

struct ServedObject {
  const std::string* name = nullptr;  // the key of its own map entry
  PrefixSlot* first = nullptr;
  size_t slots = 0;
};

class ServedObjects {
 public:
  ServedObjects() = default;
  ServedObjects(const ServedObjects&) = delete;
  ServedObjects& operator=(const ServedObjects&) = delete;

  // Makes `object` serve the slot instead of whoever did.
  void Attach(PrefixSlot& slot, const std::string& object);
  // Makes the slot a hole; it must be served.
  void Detach(PrefixSlot& slot);
  // Null if it serves nothing.
  ServedObject* Find(const std::string& object);
  void Clear();

  size_t objects() const { return objects_.size(); }
  size_t slots() const { return slots_; }
  // Memory held, see allocation_cost.h.
  uint64_t bytes() const { return bytes_; }
  // Empty if every list agrees with its count and its slots.
  std::string CheckInvariants() const;

 private:
  static uint64_t Cost(const std::string& name);

  std::unordered_map<std::string, ServedObject> objects_;
  ServedObject* latest_ = nullptr;  // of Attach: runs of slots go to one object
  size_t slots_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace moonpool::bus
