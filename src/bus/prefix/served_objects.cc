#include "bus/prefix/served_objects.h"

#include "base/check.h"
#include "bus/prefix/allocation_cost.h"

namespace moonpool::bus {

uint64_t ServedObjects::Cost(const std::string& name) {
  // The map's node is the entry, a link and the cached hash; a name beyond the short-string buffer of 15 letters is
  // an allocation of its own.
  using Entry = decltype(objects_)::value_type;
  const uint64_t text = name.size() > 15 ? AllocationCost(name.size() + 1) : 0;
  return AllocationCost(sizeof(Entry) + 2 * sizeof(void*)) + text + kBucketCost;
}

void ServedObjects::Attach(PrefixSlot& slot, const std::string& object) {
  ServedObject* server = latest_;
  if (server == nullptr || *server->name != object) {
    auto [entry, is_new] = objects_.try_emplace(object);
    server = &entry->second;
    if (is_new) {
      server->name = &entry->first;
      bytes_ += Cost(object);
    }
  }
  if (slot.object != server) {
    if (slot.object != nullptr) Detach(slot);
    slot.object = server;
    slot.object_next = server->first;
    if (server->first != nullptr) server->first->object_previous = &slot;
    server->first = &slot;
    ++server->slots;
    ++slots_;
  }
  latest_ = server;
}

void ServedObjects::Detach(PrefixSlot& slot) {
  ServedObject* server = slot.object;
  MP_CHECK(server != nullptr && server->slots > 0);
  (slot.object_previous == nullptr ? server->first : slot.object_previous->object_next) = slot.object_next;
  if (slot.object_next != nullptr) slot.object_next->object_previous = slot.object_previous;
  slot.object = nullptr;
  slot.object_previous = slot.object_next = nullptr;
  --slots_;
  if (--server->slots > 0) return;
  if (latest_ == server) latest_ = nullptr;
  bytes_ -= Cost(*server->name);
  // By iterator: the name is the entry's own key, and must not be read while the entry dies.
  objects_.erase(objects_.find(*server->name));
}

ServedObject* ServedObjects::Find(const std::string& object) {
  const auto entry = objects_.find(object);
  return entry == objects_.end() ? nullptr : &entry->second;
}

void ServedObjects::Clear() {
  objects_.clear();
  latest_ = nullptr;
  slots_ = 0;
  bytes_ = 0;
}

std::string ServedObjects::CheckInvariants() const {
  size_t slots = 0;
  uint64_t bytes = 0;
  for (const auto& [name, object] : objects_) {
    size_t listed = 0;
    const PrefixSlot* previous = nullptr;
    for (const PrefixSlot* slot = object.first; slot != nullptr; slot = slot->object_next) {
      if (slot->object != &object) return "a listed slot belongs to another object than " + name;
      if (slot->object_previous != previous) return "the slot list is broken for " + name;
      previous = slot;
      ++listed;
    }
    if (listed == 0 || listed != object.slots) return "the slot count is wrong for " + name;
    slots += listed;
    bytes += Cost(name);
  }
  if (slots != slots_) return "the number of served slots is wrong";
  if (bytes != bytes_) return "the objects' bytes are wrong";
  return "";
}

}  // namespace moonpool::bus
