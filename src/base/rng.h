// Rng: the only source of chance. SystemRng is for identifiers that must not be guessed or repeated;
// SeededRng repeats a run.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "base/mutex.h"

namespace moonpool {

class Rng {
 public:
  virtual ~Rng() = default;
  virtual uint64_t Next() = 0;

  // In [0, 1).
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // 2 * bytes lower-case hex digits.
  std::string HexId(int bytes);
};

// Thread-safe; reads the kernel's random source.
class SystemRng final : public Rng {
 public:
  uint64_t Next() override;
};

// Thread-safe; the same seed gives the same sequence.
class SeededRng final : public Rng {
 public:
  explicit SeededRng(uint64_t seed) : engine_(seed) {}
  uint64_t Next() override {
    MutexLock lock(mutex_);
    return engine_();
  }

 private:
  Mutex mutex_;
  std::mt19937_64 engine_ GUARDED_BY(mutex_);
};

}  // namespace moonpool
