#include "bus/core/promise_ledger.h"

#include <algorithm>

namespace moonpool::bus {

PromiseLedger::Record& PromiseLedger::At(const PromiseKey& key) {
  // Namespaces come from callers: when the table is full, the record that knows least makes room.
  if (records_.size() >= kRecordsMax && !records_.contains(key)) {
    records_.erase(std::min_element(records_.begin(), records_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second.broken_in_row, a.second.promised) < std::tie(b.second.broken_in_row, b.second.promised);
    }));
  }
  return records_[key];
}

bool PromiseLedger::Allows(const PromiseKey& key) {
  MutexLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end() || found->second.broken_in_row < broken_max_) return true;
  return ++found->second.declined % probe_every_ == 0;
}

bool PromiseLedger::AllowsCommit(const PromiseKey& key) {
  MutexLock lock(mutex_);
  const auto found = records_.find(key);
  if (found == records_.end() || found->second.broken_in_row < broken_max_) return true;
  return ++found->second.declined_commits % probe_every_ == 0;
}

bool PromiseLedger::Declined(const PromiseKey& key) const {
  MutexLock lock(mutex_);
  const auto found = records_.find(key);
  return found != records_.end() && found->second.broken_in_row >= broken_max_;
}

void PromiseLedger::Kept(const PromiseKey& key) {
  MutexLock lock(mutex_);
  Record& record = At(key);
  ++record.promised;
  ++record.kept;
  record.broken_in_row = 0;
  record.declined = 0;
  record.declined_commits = 0;
}

void PromiseLedger::Broken(const PromiseKey& key, uint32_t strikes) {
  MutexLock lock(mutex_);
  Record& record = At(key);
  ++record.promised;
  record.broken_in_row = std::min(record.broken_in_row + strikes, broken_max_);
}

PromiseLedger::Record PromiseLedger::Total(const std::string& fingerprint, const std::string& build) const {
  MutexLock lock(mutex_);
  Record total;
  for (const auto& [key, record] : records_) {
    if (key.fingerprint != fingerprint || key.build != build) continue;
    total.promised += record.promised;
    total.kept += record.kept;
    total.declined += record.declined;
    total.broken_in_row = std::max(total.broken_in_row, record.broken_in_row);
  }
  return total;
}

}  // namespace moonpool::bus
