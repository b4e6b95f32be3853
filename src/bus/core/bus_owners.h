// BusOwners: the state of one bus, each part with its one owner, built once and borrowed by the use cases
// (Preparer, Committer). Holds no logic of its own.
#pragma once

#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/rng.h"
#include "bus/arbiter/restore_arbiter.h"
#include "bus/blobs/blob_store.h"
#include "bus/core/bus_config.h"
#include "bus/core/bus_counters.h"
#include "bus/core/engine_registry.h"
#include "bus/core/prefix_finder.h"
#include "bus/core/promise_ledger.h"
#include "bus/core/single_flight.h"
#include "bus/core/slot_restorer.h"
#include "bus/core/slot_saver.h"
#include "bus/core/slot_tickets.h"
#include "bus/prefix/prefix_index.h"

namespace moonpool::bus {

// The one store of a bus, as the arbiter calls it.
inline constexpr const char* kStoreName = "store";

struct BusOwners {
  BusOwners(BusConfig config_in, FileSystem& files, const Clock& clock_in, Rng& rng, Executor& executor_in,
            BlobStore& store_in)
      : config(std::move(config_in)),
        clock(clock_in),
        executor(executor_in),
        store(store_in),
        tickets(clock_in, rng),
        flights(clock_in),
        ledger(config.promises_broken_max, config.promise_probe_every),
        arbiter(config.arbiter),
        index(config.index),
        finder(store_in, index, clock_in),
        restorer(files, clock_in, rng, store_in),
        saver(files, clock_in, rng, store_in) {}

  const BusConfig config;
  const Clock& clock;
  Executor& executor;
  BlobStore& store;

  EngineRegistry engines;
  SlotTickets tickets;
  SingleFlight flights;
  PromiseLedger ledger;
  BusCounters counters;
  RestoreArbiter arbiter;
  PrefixIndex index;

  PrefixFinder finder;
  SlotRestorer restorer;
  SlotSaver saver;
};

// Prefill rates belong to a model on a server: two processors do not share one.
inline std::string RateFamily(const EngineSession& session, const EngineProfile& profile) {
  return profile.fingerprint_hex + "@" + session.config().name;
}

inline PromiseKey PromiseKeyOf(const EngineProfile& profile, const std::string& name_space) {
  return {profile.fingerprint_hex, profile.build, name_space};
}

}  // namespace moonpool::bus
