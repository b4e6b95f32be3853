#include "bus/prefix/prefix_index.h"

#include <algorithm>

#include "bus/prefix/prefix_tree.h"
#include "bus/prefix/served_objects.h"

namespace moonpool::bus {

// The tree owns the slots, the objects own the lists through them.
struct PrefixIndex::State {
  PrefixTree tree;
  ServedObjects objects;
  TimePoint last_stamp{};
  uint64_t evicted_total = 0;

  uint64_t Bytes() const { return tree.bytes() + objects.bytes(); }

  // Stamps are times, but no two uses share one: order must not depend on the clock's grain or direction.
  TimePoint NextStamp(TimePoint now) {
    last_stamp = std::max(now, last_stamp + Duration(1));
    return last_stamp;
  }

  void Drop(PrefixSlot& slot) {
    PrefixNode* node = slot.node;
    objects.Detach(slot);
    tree.Prune(node);
  }

  void EvictTo(const Limits& limits) {
    while (objects.slots() > limits.entries_max || Bytes() > limits.bytes_max) {
      PrefixSlot* oldest = tree.Oldest();
      if (oldest == nullptr) return;
      Drop(*oldest);
      ++evicted_total;
    }
  }
};

PrefixIndex::PrefixIndex(Limits limits) : limits_(limits), state_(std::make_unique<State>()) {}

PrefixIndex::~PrefixIndex() = default;

void PrefixIndex::Insert(std::span<const Digest256> chain, const std::string& object, TimePoint now) {
  // What could not stay anyway is not even added, so that one endless chain cannot outgrow the limits on the way.
  const uint64_t blocks_max = std::min<uint64_t>(limits_.entries_max, limits_.bytes_max / PrefixTree::BytesPerSlot());
  const auto kept = chain.first(static_cast<size_t>(std::min<uint64_t>(chain.size(), blocks_max)));
  if (kept.empty()) return;

  MutexLock lock(mutex_);
  const TimePoint stamp = state_->NextStamp(now);
  PrefixTree::Place place = state_->tree.Walk(kept);
  state_->tree.Touch(place, stamp);
  if (place.blocks < kept.size()) place = state_->tree.Extend(place, kept.subspan(place.blocks), stamp);
  for (; place.blocks > 0; place = PrefixTree::Up(place)) {
    state_->objects.Attach(PrefixTree::SlotAt(place), object);
  }
  state_->EvictTo(limits_);
}

PrefixIndex::Match PrefixIndex::Longest(std::span<const Digest256> chain, TimePoint now) {
  MutexLock lock(mutex_);
  const PrefixTree::Place place = PrefixTree::LastServed(state_->tree.Walk(chain));
  if (place.blocks == 0) return {};
  const PrefixSlot& slot = PrefixTree::SlotAt(place);
  Match match{.blocks = place.blocks,
              .object = *slot.object->name,
              .hotness = static_cast<double>(PrefixTree::FanOut(place)),
              .last_used = slot.last_use};
  state_->tree.Touch(place, state_->NextStamp(now));
  return match;
}

void PrefixIndex::Erase(std::span<const Digest256> chain, size_t blocks_kept) {
  MutexLock lock(mutex_);
  const PrefixTree::Place end = state_->tree.Walk(chain);
  for (PrefixTree::Place place = end; place.blocks > blocks_kept; place = PrefixTree::Up(place)) {
    PrefixSlot& slot = PrefixTree::SlotAt(place);
    if (slot.object != nullptr) state_->objects.Detach(slot);
  }
  // Only the last node of a path can be a leaf, so only it can end in holes now.
  if (end.blocks > 0) state_->tree.Prune(end.node);
}

void PrefixIndex::RemoveObject(const std::string& object) {
  MutexLock lock(mutex_);
  ServedObject* served = state_->objects.Find(object);
  if (served == nullptr) return;
  // The object's record dies with its last slot, so count instead of looking at it again.
  for (size_t left = served->slots; left > 0; --left) state_->Drop(*served->first);
}

void PrefixIndex::Clear() {
  MutexLock lock(mutex_);
  state_->tree.Clear();
  state_->objects.Clear();
}

PrefixIndex::Stats PrefixIndex::GetStats() const {
  MutexLock lock(mutex_);
  return {.entries = state_->objects.slots(),
          .holes = state_->tree.slots() - state_->objects.slots(),
          .nodes = state_->tree.nodes(),
          .objects = state_->objects.objects(),
          .bytes = state_->Bytes(),
          .evicted_total = state_->evicted_total};
}

std::string PrefixIndex::CheckInvariants() const {
  MutexLock lock(mutex_);
  if (std::string problem = state_->tree.CheckInvariants(); !problem.empty()) return problem;
  if (std::string problem = state_->objects.CheckInvariants(); !problem.empty()) return problem;
  if (state_->objects.slots() > state_->tree.slots()) return "more slots are served than there are";
  if (state_->objects.slots() > limits_.entries_max) return "more entries than allowed";
  if (state_->Bytes() > limits_.bytes_max) return "more bytes than allowed";
  return "";
}

}  // namespace moonpool::bus
