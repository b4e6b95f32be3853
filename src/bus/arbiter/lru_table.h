// LruTable: a map of at most `entries_max` values; making room drops the least recently used one.
// A value's address is stable until it is dropped. Owned by RestoreArbiter; not thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <utility>

namespace moonpool::bus {

template <class Key, class Value>
class LruTable {
 public:
  // A bound of 0 is taken as 1, so that Use always has something to answer.
  explicit LruTable(size_t entries_max) : entries_max_(entries_max > 0 ? entries_max : 1) {}

  // The value of `key`, made if absent; counts as a use.
  Value& Use(const Key& key) {
    const auto known = positions_.find(key);
    if (known != positions_.end()) {
      order_.splice(order_.begin(), order_, known->second);
      return order_.front().second;
    }
    if (positions_.size() >= entries_max_) {
      positions_.erase(order_.back().first);
      order_.pop_back();
    }
    order_.emplace_front(key, Value());
    positions_.emplace(key, order_.begin());
    return order_.front().second;
  }

  // Null if absent; no use.
  const Value* Find(const Key& key) const {
    const auto known = positions_.find(key);
    return known == positions_.end() ? nullptr : &known->second->second;
  }

  size_t size() const { return positions_.size(); }

 private:
  using Order = std::list<std::pair<Key, Value>>;

  size_t entries_max_;
  Order order_;  // most recently used first
  std::map<Key, typename Order::iterator> positions_;
};

}  // namespace moonpool::bus
